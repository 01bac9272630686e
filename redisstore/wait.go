package redisstore

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/elapsed"
	"github.com/redlatch/redlatch/lease"
)

// Wait implements [driver.Store]. The caller's goroutine sleeps here until a message or
// a change wakes it, and does what is to be done for its claim; the first waiter of a
// name does it for all of this process.
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
		st, due, changed := s.check(k)
		if st.Rev != rev && st.Rev != 0 {
			return st, nil
		}
		if due <= elapsed.Now() {
			if err := s.poke(ctx, k); err != nil {
				return lease.Standing{}, fault(err)
			}
			continue
		}
		timer.Reset(min(due.Sub(elapsed.Now()), time.Minute)) // timers stand still while the machine sleeps
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
			return lease.Standing{}, fault(ctx.Err())
		}
	}
}

// check returns where the claim stands, when it must look for itself, and what is
// closed when either changes.
func (s *Store) check(k *known) (lease.Standing, lease.Instant, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()

	w := k.w
	if k.gone {
		return lease.Standing{State: lease.Gone, Rev: w.last.Rev + 1}, lease.Never, w.changed
	}
	if k.held {
		return w.last, lease.Never, w.changed
	}
	due := w.look
	if w.last.Rev == 0 {
		due = 0 // no join of it was answered
	}
	if l := s.lines[k.name]; l != nil && l.first() == k {
		due = min(due, l.due)
	}
	return w.last, due, w.changed
}

// poke asks where the claim stands. The same call hands the lock to the next one in
// line if it is free, repairs whatever was lost, and takes a new place if the old one
// is gone.
func (s *Store) poke(ctx context.Context, k *known) error {
	s.mu.Lock()
	c := k.w.claim
	// Whatever comes of it, the next one is not at once.
	k.w.look = s.nextLook()
	if l := s.lines[k.name]; l != nil {
		l.due = max(l.due, elapsed.Now().Add(pollTime()))
	}
	s.mu.Unlock()
	_, err := s.ask(ctx, k, c)
	if err != nil {
		s.mu.Lock()
		k.w.look = min(k.w.look, elapsed.Now().Add(pollTime()))
		s.mu.Unlock()
	}
	return err
}

func (s *Store) endWait(k *known) {
	s.mu.Lock()
	defer s.mu.Unlock()

	k.w.waits--
	if l := s.lines[k.name]; l != nil {
		l.rouse()
	}
}

// look answers for a claim that another Store has joined, or that this one holds: it
// cannot be told of changes, so its caller gets what there is, and not too often.
func (s *Store) look(ctx context.Context, name, id string) (lease.Standing, error) {
	select {
	case <-time.After(pollTime()):
	case <-ctx.Done():
		return lease.Standing{}, fault(ctx.Err())
	}
	asked := elapsed.Now()
	q, err := s.Inspect(ctx, name)
	if err != nil {
		return lease.Standing{}, err
	}
	st := lease.Standing{State: lease.Gone, Asked: asked, Seal: q.Seal(), Rev: 1}
	for i, e := range q.Claims {
		switch {
		case e.Held() && e.ID == id:
			return lease.Standing{State: lease.Held, Ticket: e.Ticket, Asked: asked, Lease: e.Expires.Sub(q.Now), Rev: 1}, nil
		case e.Held():
			st.Holder, st.Left = e.Holder(), max(e.Expires.Sub(q.Now), 0)
		case e.ID == id:
			st.State, st.Ticket, st.Ahead = lease.Waiting, e.Ticket, i
		}
	}
	return st, nil
}
