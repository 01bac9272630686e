package quorum

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/internal/elapsed"
	"github.com/redlatch/redlatch/lease"
)

// Wait implements [driver.Store]. The caller's goroutine sleeps here; the first of a name
// asks for itself every now and then, and at once when the lock is released in this process.
func (s *Store) Wait(ctx context.Context, name, id string, rev uint64) (lease.Standing, error) {
	s.mu.Lock()
	k := s.claims[place{name, id}]
	if k == nil || k.w == nil {
		s.mu.Unlock()
		return s.look(ctx, name, id)
	}
	k.w.waits++
	s.mu.Unlock()
	defer s.endWait(k)

	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		if err := ended(ctx); err != nil {
			return lease.Standing{}, err
		}
		st, due, changed := s.check(k)
		if st.Rev != rev {
			return st, nil
		}
		if due <= elapsed.Now() {
			if err := s.poke(ctx, k); err != nil {
				return lease.Standing{}, err
			}
			continue
		}
		timer.Reset(min(due.Sub(elapsed.Now()), time.Minute)) // timers stand still while the machine sleeps
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
		}
	}
}

// check returns where the claim stands, when it must ask, and what is closed when either
// changes.
func (s *Store) check(k *claim) (lease.Standing, lease.Instant, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if k.gone {
		return lease.Standing{State: lease.Gone, Rev: k.w.last.Rev + 1}, lease.Never, k.w.changed
	}
	due := lease.Never
	if l := s.lines[k.name]; l != nil && k.w.queued != 0 && l.first() == k {
		due = l.due
	}
	return k.w.last, due, k.w.changed
}

// poke asks for a claim that waits.
func (s *Store) poke(ctx context.Context, k *claim) error {
	s.mu.Lock()
	c := k.w.claim
	if l := s.lines[k.name]; l != nil {
		l.due = elapsed.Now().Add(pollTime())
	}
	s.mu.Unlock()
	st, err := s.try(ctx, k, c)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()

	switch {
	case k.gone:
	case st.State == lease.Held:
		s.unqueue(k)
		k.w.update(st)
	case st.State == lease.Left:
		s.strike(k) // somebody else has taken it out
	case k.w.queued != 0:
		s.waits(k, st)
	}
	return nil
}

func (s *Store) endWait(k *claim) {
	s.mu.Lock()
	defer s.mu.Unlock()

	k.w.waits--
	if l := s.lines[k.name]; l != nil {
		l.rouse()
	}
}

// look answers for a claim that another Store has joined, or that holds since its join: its
// caller gets what there is, and not too often.
func (s *Store) look(ctx context.Context, name, id string) (lease.Standing, error) {
	if !sleep(ctx, pollTime()) {
		return lease.Standing{}, &driver.Fault{Kind: driver.Unavailable, Err: ctx.Err()}
	}
	asked := elapsed.Now()
	q, err := s.Inspect(ctx, name)
	if err != nil {
		return lease.Standing{}, err
	}
	st := lease.Standing{State: lease.Gone, Asked: asked, Seal: q.Seal(), Rev: 1}
	for _, e := range q.Claims {
		switch left := e.Expires.Sub(q.Now); {
		case e.Held() && e.ID == id:
			return lease.Standing{State: lease.Held, Ticket: e.Ticket, Asked: asked, Lease: left, Rev: 1}, nil
		case e.Held():
			st.Holder, st.Left = e.Holder(), max(left, 0)
		}
	}
	return st, nil
}
