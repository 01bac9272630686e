package quorum

import (
	"context"

	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/internal/elapsed"
	"github.com/redlatch/redlatch/internal/vote"
	"github.com/redlatch/redlatch/lease"
)

// Leave implements [driver.Store]. It takes the claim out at all members, also at those that
// did not give it the lock as far as is known, and returns when a majority has done it: then
// the others cannot keep anybody out. They are seen to in the background.
func (s *Store) Leave(ctx context.Context, name, id string, ticket uint64, seal lease.Seal) (lease.Standing, error) {
	asked := elapsed.Now()
	if err := ended(ctx); err != nil {
		return lease.Standing{}, err
	}
	seats, state := s.leaves(name, id, ticket)
	if seats != nil && state != lease.Held {
		seal = lease.Seal{} // a round may be on its way, and have got a few servers: they would close
	}
	l := &left{s: s, name: name, asked: asked, fence: ticket, poll: vote.NewPoll(len(s.members)), errs: make([]error, len(s.members)), once: true}
	type answer struct {
		i   int
		st  lease.Standing
		err error
	}
	answers := make(chan answer, len(s.members))
	ask := s.asked(asked)
	until := asked.Add(max(s.o.LongestTTL, lease.Tombstone))
	for i, m := range s.members {
		job := leaving{name: name, id: id, ticket: ticketAt(seats, i, ticket), seal: seal, until: until}
		if !ask[i] {
			m.undo(job)
			answers <- answer{i: i, err: m.heldBack(asked)}
			continue
		}
		s.work.Go(func() {
			st, err := s.leaveAt(m, job)
			if err != nil && kindOf(err) == driver.Unavailable {
				m.undo(job)
			}
			answers <- answer{i, st, err}
		})
	}
	for range s.members {
		select {
		case a := <-answers:
			if l.heard(a.i, a.st, a.err) {
				return l.done(state == lease.Waiting)
			}
		case <-ctx.Done():
			return lease.Standing{}, &driver.Fault{Kind: driver.Unavailable, Err: ctx.Err()}
		}
	}
	return l.done(state == lease.Waiting)
}

// leaves forgets the claim, and returns what is known of it at the members, nil if nothing is,
// and whether it waits or holds. With a ticket it must be the hold with that fence.
func (s *Store) leaves(name, id string, ticket uint64) (seats []seat, state lease.State) {
	s.mu.Lock()
	defer s.mu.Unlock()

	k := s.claims[place{name, id}]
	if k == nil || ticket != 0 && (!k.held || k.fence != ticket) {
		return nil, lease.Gone
	}
	switch {
	case k.held:
		state = lease.Held
	case k.w != nil && k.w.queued != 0:
		state = lease.Waiting
	}
	seats = append(seats, k.seats...)
	s.strike(k)
	return seats, state
}

// ticketAt is what the hold has at member i; 0 if all of the claim is to go.
func ticketAt(seats []seat, i int, fence uint64) uint64 {
	if fence != 0 && seats != nil && seats[i].ticket != 0 {
		return seats[i].ticket
	}
	return fence
}

func (s *Store) leaveAt(m *member, l leaving) (lease.Standing, error) {
	var st lease.Standing
	err := m.call(s.ctx, func(ctx context.Context) (err error) {
		st, err = m.Store.Leave(ctx, l.name, l.id, l.ticket, l.seal)
		return err
	})
	return st, err
}

// left is a leave on its way.
type left struct {
	s     *Store
	name  string
	asked lease.Instant
	fence uint64
	poll  vote.Poll
	errs  []error
	held  lease.Standing // what those said who had it, put together
	gone  lease.Standing // and what the others said
	yes   int
	once  bool
}

// heard takes an answer in, and reports whether that is enough.
func (l *left) heard(i int, st lease.Standing, err error) bool {
	l.errs[i] = err
	if err != nil {
		l.poll.Failed()
		return false
	}
	l.once = l.once && st.Once
	switch st.State {
	case lease.Held:
		l.poll.Yes()
		l.yes++
		l.held.State, l.held.Asked = lease.Held, l.asked
		l.held.Ticket = max(l.held.Ticket, st.Ticket)
		l.held.Lease = max(l.held.Lease, st.Lease)
	default:
		l.poll.No()
		if st.Holder != nil && l.gone.Holder == nil {
			l.gone.Holder, l.gone.Left = st.Holder, st.Left
		}
		if st.Seal.Closed() && !l.gone.Seal.Closed() {
			l.gone.Seal = st.Seal
		}
	}
	return l.poll.Answered() && l.poll.State() != vote.Open
}

// done is the answer: where the claim stood.
func (l *left) done(waited bool) (lease.Standing, error) {
	if !l.poll.Answered() {
		return lease.Standing{}, l.s.noQuorum(l.errs)
	}
	st := l.gone
	st.State, st.Asked, st.Once = lease.Gone, l.asked, l.once
	switch {
	case l.yes > 0 && l.poll.State() != vote.Lost:
		st = l.held
		if l.fence != 0 {
			st.Ticket = l.fence
		}
		l.s.freed(l.name)
	case waited:
		st.State = lease.Waiting
	}
	return st, nil
}

// freed lets whoever waits here ask at once.
func (s *Store) freed(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if l := s.lines[name]; l != nil {
		l.due = elapsed.Now()
		l.rouse()
	}
}
