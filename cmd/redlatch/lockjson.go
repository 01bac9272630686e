package main

import (
	"time"

	"github.com/redlatch/redlatch/lease"
)

// lockJSON is one lock as ls, who and is-held show it to programs, redlatch.lock/v1.
// Times are the store's.
type lockJSON struct {
	Schema     string       `json:"schema"`
	Name       string       `json:"name"`
	State      string       `json:"state"`
	Mode       *string      `json:"mode"`  // null: nobody uses it
	Slots      *int         `json:"slots"` // null: no bound
	SlotsUsed  int          `json:"slots_used"`
	Holders    []holderJSON `json:"holders"`
	Waiters    []waiterJSON `json:"waiters"`
	Fence      uint64       `json:"fence,omitempty"`
	Seal       *sealJSON    `json:"seal"`
	Store      string       `json:"store"`
	ObservedAt *stamp       `json:"observed_at"`
}

type holderJSON struct {
	Owner      string            `json:"owner,omitempty"`
	Host       string            `json:"host,omitempty"`
	PID        int               `json:"pid,omitempty"`
	Command    string            `json:"command,omitempty"`
	Note       string            `json:"note,omitempty"`
	Labels     map[string]string `json:"labels,omitempty"`
	Foreign    bool              `json:"foreign,omitempty"` // it does not use redlatch
	AcquiredAt *stamp            `json:"acquired_at"`
	AgeMS      *int64            `json:"age_ms"`
	RenewedAt  *stamp            `json:"renewed_at"`
	ExpiresAt  *stamp            `json:"expires_at"` // null: never
	TTLLeftMS  *int64            `json:"ttl_left_ms"`
	TTLMS      *int64            `json:"ttl_ms"`
	Fence      uint64            `json:"fence,omitempty"`
}

type waiterJSON struct {
	Owner    string `json:"owner,omitempty"`
	Host     string `json:"host,omitempty"`
	PID      int    `json:"pid,omitempty"`
	Command  string `json:"command,omitempty"`
	Since    *stamp `json:"since"`
	Position int    `json:"position"`
}

type sealJSON struct {
	LeftMS int64  `json:"left_ms"`
	Value  string `json:"value,omitempty"`
	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// The states of a lock.
const (
	stateFree     = "free"
	stateHeld     = "held"
	stateExpiring = "expiring" // held, and not renewed for so long that it may soon be over
	stateReserved = "reserved" // held by a person: redlatch hold
	stateFull     = "full"     // a semaphore without a free slot
	stateSealed   = "sealed"   // nobody holds it and nobody can have it yet
)

func stateOf(q *lease.Queue) string {
	holders := q.Holders()
	switch {
	case len(holders) == 0 && q.Seal().Closed():
		return stateSealed
	case len(holders) == 0:
		return stateFree
	case holders[0].Mode == lease.Permit:
		if used(holders) >= holders[0].Slots {
			return stateFull
		}
		return stateHeld
	}
	if reserved(holders[0].Owner) {
		return stateReserved
	}
	for _, e := range holders {
		if !expiring(e, q.Now) {
			return stateHeld
		}
	}
	return stateExpiring
}

// expiring reports whether two renewals at least have not come.
func expiring(e lease.Entry, now time.Time) bool {
	return knowsTTL(e, now) && now.Sub(renewed(e, now)) > e.TTL*2/3
}

func used(holders []lease.Entry) int {
	n := 0
	for _, e := range holders {
		n += e.Weight()
	}
	return n
}

func lockOf(name, store string, q *lease.Queue) lockJSON {
	doc := lockJSON{
		Schema: "redlatch.lock/v1", Name: name, State: stateOf(q), Fence: q.Last, Store: store, ObservedAt: at(q.Now),
		Holders: []holderJSON{}, Waiters: []waiterJSON{}, // empty is [], not null
	}
	holders := q.Holders()
	for _, e := range holders {
		doc.Holders = append(doc.Holders, holderOf(e, q.Now))
	}
	for i, e := range q.Waiters() {
		doc.Waiters = append(doc.Waiters, waiterJSON{e.Owner.Name, e.Owner.Host, e.Owner.PID, e.Owner.Command, at(e.Joined), i + 1})
	}
	if len(q.Claims) > 0 {
		mode := q.Claims[0].Mode
		doc.Mode = new(mode.String())
		switch mode {
		case lease.Exclusive:
			doc.Slots, doc.SlotsUsed = new(1), len(holders)
		case lease.Permit:
			doc.Slots, doc.SlotsUsed = new(q.Claims[0].Slots), used(holders)
		default:
			doc.SlotsUsed = len(holders)
		}
	}
	if s := q.Seal(); s.Closed() {
		doc.Seal = &sealJSON{s.For.Milliseconds(), s.Value, s.By, s.Reason}
	}
	return doc
}

// holderOf is one holder. now is the store's time; zero if that is not known.
func holderOf(e lease.Entry, now time.Time) holderJSON {
	h := holderJSON{
		Owner: e.Owner.Name, Host: e.Owner.Host, PID: e.Owner.PID, Command: e.Owner.Command, Note: e.Owner.Note, Labels: e.Owner.Labels,
		Foreign: e.Foreign != "", Fence: e.Ticket,
		AcquiredAt: at(e.Granted), RenewedAt: at(renewed(e, now)), ExpiresAt: at(e.Expires),
	}
	if e.Foreign != "" {
		h.AcquiredAt = nil // a store cannot know it
	}
	if h.AcquiredAt != nil && !now.IsZero() {
		h.AgeMS = new(now.Sub(e.Granted).Milliseconds())
	}
	if h.ExpiresAt != nil && !now.IsZero() {
		h.TTLLeftMS = new(e.Expires.Sub(now).Milliseconds())
	}
	if knowsTTL(e, now) {
		h.TTLMS = new(e.TTL.Milliseconds())
	}
	return h
}
