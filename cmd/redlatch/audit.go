package main

import (
	"os"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/lease"
)

const auditSchema = "redlatch.audit/v1"

// How a hold was broken.
const (
	modeAnswer = "answer" // the name opens when the holder has answered, or its lease is over
	modeNow    = "now"
	modeTake   = "take"
)

// auditJSON is what somebody has done to a lock that was not his.
type auditJSON struct {
	Schema    string      `json:"schema"`
	ID        string      `json:"id,omitempty"`
	At        *stamp      `json:"at,omitempty"`
	Outcome   string      `json:"outcome"` // broken, already_free, dry_run
	Name      string      `json:"name"`
	By        byJSON      `json:"by"`
	Old       *holderJSON `json:"old"`
	Fence     uint64      `json:"fence,omitempty"`
	Reason    string      `json:"reason,omitempty"`
	Mode      string      `json:"mode,omitempty"`
	TakeMS    int64       `json:"take_ms,omitempty"`
	MayWorkMS int64       `json:"may_work_ms"` // for how long the old holder may still be at work
	Via       string      `json:"via,omitempty"`
	Store     string      `json:"store,omitempty"`
}

type byJSON struct {
	User string `json:"user"`
	Host string `json:"host"`
}

func auditOf(name, store string, e lease.Entry, q *lease.Queue, me redlatch.Owner, o *breakOptions) auditJSON {
	r := auditJSON{
		Schema: auditSchema, ID: lease.NewID(), At: &stamp{time.Now()}, Outcome: "broken", Name: name, By: byJSON{me.Name, me.Host},
		Old: new(holderOf(e, q.Now)), Fence: e.Ticket, Reason: o.reason, Mode: modeAnswer, Via: "cli", Store: store,
	}
	if !e.Expires.IsZero() {
		r.MayWorkMS = e.Expires.Sub(q.Now).Milliseconds()
	}
	switch {
	case o.take:
		r.Mode, r.TakeMS = modeTake, o.takeFor.Milliseconds()
	case o.now, reserved(e.Owner):
		r.Mode = modeNow
	}
	return r
}

// auditLog is where such records go.
type auditLog struct{ file *os.File }

// openAudit opens the log before anything is done: what cannot be written down is not
// done at all.
func openAudit(path string) (*auditLog, error) {
	if path == "" {
		return &auditLog{}, nil
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		f := usage("--audit-log: %v", err)
		f.next = "nothing was done"
		return nil, f
	}
	return &auditLog{f}, nil
}

// write appends the record in one call: two who write at once do not mix their lines.
func (l *auditLog) write(r auditJSON) error {
	line := encode(r)
	systemLog(line) // if there is one
	if l.file == nil {
		return nil
	}
	if _, err := l.file.WriteString(line + "\n"); err != nil {
		return err
	}
	return l.file.Sync()
}

func (l *auditLog) close() {
	if l.file != nil {
		_ = l.file.Close() // what was written is synced
	}
}
