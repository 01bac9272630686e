package redisstore

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/elapsed"
	"github.com/redlatch/redlatch/internal/lines"
	"github.com/redlatch/redlatch/lease"
)

// Wait implements [driver.Store]. The caller's goroutine sleeps here until a message or
// a change wakes it, and does what is to be done for its claim; the first waiter of a
// name does it for all of this process.
func (s *Store) Wait(ctx context.Context, name, id string, rev uint64) (lease.Standing, error) {
	s.mu.Lock()
	k := s.book.Claim(name, id)
	if k == nil || k.W == nil {
		s.mu.Unlock()
		return s.look(ctx, name, id)
	}
	s.book.Sleeps(k)
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
func (s *Store) check(k *lines.Claim) (lease.Standing, lease.Instant, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()

	st, due := s.book.Check(k)
	bell := s.bells[k]
	if bell == nil {
		bell = make(chan struct{})
		s.bells[k] = bell
	}
	return st, due, bell
}

// ring wakes all who sleep in Wait for the claim. Called with mu.
func (s *Store) ring(k *lines.Claim) {
	if bell := s.bells[k]; bell != nil {
		close(bell)
		delete(s.bells, k)
	}
}

// poke asks where the claim stands.
func (s *Store) poke(ctx context.Context, k *lines.Claim) error {
	s.mu.Lock()
	c := k.W.Claim
	s.book.Looks(k, elapsed.Now())
	s.mu.Unlock()
	_, err := s.ask(ctx, k, c)
	if err != nil {
		s.mu.Lock()
		s.book.Missed(k, elapsed.Now())
		s.mu.Unlock()
	}
	return err
}

func (s *Store) endWait(k *lines.Claim) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.book.Wakes(k)
	if k.W.Waits == 0 {
		delete(s.bells, k)
	}
}

// look answers for a claim that another Store has joined, or that this one holds: it
// cannot be told of changes, so its caller gets what there is, and not too often.
func (s *Store) look(ctx context.Context, name, id string) (lease.Standing, error) {
	select {
	case <-time.After(s.book.PollTime()):
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
