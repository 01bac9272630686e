package quorum

import (
	"slices"
	"time"

	"github.com/redlatch/redlatch/internal/elapsed"
	"github.com/redlatch/redlatch/lease"
)

// place names a claim.
type place struct{ name, id string }

// claim is one that this Store has joined and not left. All but the first fields are
// Store.mu's.
type claim struct {
	name, id string
	turn     chan struct{} // capacity 1: one round at a time

	seats []seat // by member
	known uint64 // the highest fence of the name that was heard of

	held  bool
	fence uint64
	until lease.Instant // held, or was: the lease is over then at the latest; 0: it never was
	gone  bool          // has left, or was never queued
	w     *waiting      // nil if it never had to wait
}

// seat is what is known of a claim at one member.
type seat struct {
	// busy, if not nil: a join is on its way, or what an earlier round got is still being
	// undone. A round that asked now could be given what the undoing then takes away. It
	// is closed when that is over.
	busy   chan struct{}
	ticket uint64 // it was given the lock with that; 0: it was not, or that is not known
}

// waiting is what a claim needs that has to wait.
type waiting struct {
	claim   lease.Claim
	last    lease.Standing // as last heard; Rev counts its changes
	queued  uint64         // its arrival; 0: it does not stand in the line
	waits   int            // callers in Wait
	changed chan struct{}  // closed and renewed with each change
}

// line is who waits for a name in this process, in order of arrival.
type line struct {
	waiting []*claim
	due     lease.Instant // the first one asks then
}

// enroll returns the claim, a new one if it is not known.
func (s *Store) enroll(name, id string) *claim {
	s.mu.Lock()
	defer s.mu.Unlock()

	k := s.claims[place{name, id}]
	if k == nil {
		s.sweep()
		k = &claim{name: name, id: id, turn: make(chan struct{}, 1), seats: make([]seat, len(s.members))}
		s.claims[place{name, id}] = k
	}
	return k
}

// sweep forgets holds that were given up without a word: their leases were over a minute
// ago. It looks at a few claims only, chance says at which.
func (s *Store) sweep() {
	now, looks := elapsed.Now(), 8
	for _, k := range s.claims {
		waits := k.w != nil && k.w.queued != 0
		if !waits && k.until != 0 && k.until.Add(time.Minute) < now {
			s.strike(k)
		}
		if looks--; looks == 0 {
			return
		}
	}
}

// strike forgets the claim and wakes whoever waits for it.
func (s *Store) strike(k *claim) {
	if s.claims[place{k.name, k.id}] == k {
		delete(s.claims, place{k.name, k.id})
	}
	k.gone, k.held = true, false
	s.unqueue(k)
	if k.w != nil {
		k.w.wake()
	}
}

// queue gives the claim its place in the line of this process.
func (s *Store) queue(k *claim) {
	l := s.lines[k.name]
	if l == nil {
		l = &line{due: elapsed.Now().Add(pollTime())}
		s.lines[k.name] = l
	}
	s.arrivals++
	k.w.queued = s.arrivals
	l.waiting = append(l.waiting, k)
}

func (s *Store) unqueue(k *claim) {
	l := s.lines[k.name]
	if l == nil || k.w == nil || k.w.queued == 0 {
		return
	}
	k.w.queued = 0
	first := l.waiting[0] == k
	l.waiting = slices.DeleteFunc(l.waiting, func(o *claim) bool { return o == k })
	if len(l.waiting) == 0 {
		delete(s.lines, k.name)
		return
	}
	if first {
		l.rouse()
	}
}

// first is the one who asks for all of this process: the first whose caller is waiting.
func (l *line) first() *claim {
	for _, k := range l.waiting {
		if k.w.waits > 0 {
			return k
		}
	}
	return nil
}

// rouse lets the first one see that it is the first, or that due has changed.
func (l *line) rouse() {
	if k := l.first(); k != nil {
		k.w.wake()
	}
}

// update takes a standing in. Rev moves on if a caller would want to know.
func (w *waiting) update(st lease.Standing) {
	old := w.last
	st.Rev = old.Rev
	if old.Rev == 0 || st.State != old.State || st.Ticket != old.Ticket || !sameSeal(st.Seal, old.Seal) {
		st.Rev++
		defer w.wake()
	}
	w.last = st
}

func sameSeal(a, b lease.Seal) bool {
	a.For, b.For = min(a.For, 1), min(b.For, 1)
	return a == b
}

func (w *waiting) wake() {
	close(w.changed)
	w.changed = make(chan struct{})
}
