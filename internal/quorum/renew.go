package quorum

import (
	"context"
	"errors"

	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/internal/elapsed"
	"github.com/redlatch/redlatch/internal/vote"
	"github.com/redlatch/redlatch/lease"
)

var errNotThere = errors.New("does not have the lock")

// Renew implements [driver.Store]. A claim is kept if a majority keeps it; one that a
// majority does not have is gone. Where neither is known, nothing is: the caller's trust
// runs to its end. A server that has lost the lock is not given it again.
func (s *Store) Renew(ctx context.Context, refs []driver.Ref) []driver.Outcome {
	r := &renewal{s: s, refs: refs, asked: elapsed.Now(), outcomes: make([]driver.Outcome, len(refs)), open: len(refs)}
	for i, ref := range refs {
		r.polls = append(r.polls, vote.NewPoll(len(s.members)))
		r.answers = append(r.answers, make([]lease.Standing, len(s.members)))
		r.errs = append(r.errs, make([]error, len(s.members)))
		if err := s.refuses(ref.TTL); err != nil {
			r.outcomes[i].Err = err
			r.open--
		}
	}
	type answer struct {
		i   int
		out []driver.Outcome
	}
	answers := make(chan answer, len(s.members))
	ask := s.asked(r.asked)
	for i, m := range s.members {
		if !ask[i] {
			answers <- answer{i, allFailed(len(refs), m.heldBack(r.asked))}
			continue
		}
		s.work.Go(func() { answers <- answer{i, s.renewAt(i, refs)} })
	}
	for range s.members {
		if r.open == 0 {
			break
		}
		select {
		case a := <-answers:
			r.heard(a.i, a.out)
		case <-ctx.Done():
			r.giveUp(ctx.Err())
		}
	}
	return r.outcomes
}

// renewal is the batch on its way.
type renewal struct {
	s        *Store
	refs     []driver.Ref
	asked    lease.Instant
	polls    []vote.Poll
	answers  [][]lease.Standing // by ref and member
	errs     [][]error
	outcomes []driver.Outcome
	open     int // refs that are not decided
}

// renewAt renews at one member, each claim with the ticket that it has there.
func (s *Store) renewAt(i int, refs []driver.Ref) []driver.Outcome {
	m := s.members[i]
	there := make([]driver.Ref, len(refs))
	for j, ref := range refs {
		there[j] = ref
		there[j].Token = s.tokenAt(i, ref.Name, ref.Token)
	}
	var out []driver.Outcome
	err := m.call(s.ctx, func(ctx context.Context) error {
		out = m.Store.Renew(ctx, there)
		for _, o := range out {
			if o.Err == nil {
				return nil // it answers
			}
		}
		if len(out) == 0 {
			return nil
		}
		return out[0].Err
	})
	if out == nil {
		return allFailed(len(refs), err)
	}
	for j, o := range out {
		if o.Err == nil && o.State == lease.Gone && s.find(refs[j].Name, refs[j].Token) == nil {
			out[j] = s.renewFound(i, refs[j], o)
		}
	}
	return out
}

// tokenAt is the claim's token at member i: its ticket there may be lower than its fence.
func (s *Store) tokenAt(i int, name string, t lease.Token) lease.Token {
	s.mu.Lock()
	defer s.mu.Unlock()

	if k := s.claims[place{name, t.ID}]; k != nil && k.held && k.fence == t.Ticket && k.seats[i].ticket != 0 && k.seats[i].ticket != t.Ticket {
		return lease.Token{ID: t.ID, Ticket: k.seats[i].ticket, Owner: t.Owner}
	}
	return t
}

// find returns the claim if this Store knows it as a holder with that fence.
func (s *Store) find(name string, t lease.Token) *claim {
	s.mu.Lock()
	defer s.mu.Unlock()

	if k := s.claims[place{name, t.ID}]; k != nil && k.held && k.fence == t.Ticket {
		return k
	}
	return nil
}

// renewFound renews a hold that another Store has got, whose ticket at this member is not
// its fence, but lower: then the fence is what the member was raised to.
func (s *Store) renewFound(i int, ref driver.Ref, gone driver.Outcome) driver.Outcome {
	m := s.members[i]
	var out driver.Outcome
	err := m.call(s.ctx, func(ctx context.Context) error {
		q, err := m.Store.Inspect(ctx, ref.Name)
		if err != nil {
			return err
		}
		out = gone
		for _, e := range q.Holders() {
			if e.ID == ref.Token.ID && e.Ticket < ref.Token.Ticket && q.Last == ref.Token.Ticket {
				ref.Token = lease.Token{ID: e.ID, Ticket: e.Ticket, Owner: e.Owner}
				out = m.Store.Renew(ctx, []driver.Ref{ref})[0]
				return out.Err
			}
		}
		return nil
	})
	out.Err = err
	return out
}

func allFailed(n int, err error) []driver.Outcome {
	out := make([]driver.Outcome, n)
	for i := range out {
		out[i].Err = err
	}
	return out
}

// heard takes the answers of one member in.
func (r *renewal) heard(i int, out []driver.Outcome) {
	for j := range r.refs {
		if r.decided(j) {
			continue
		}
		poll := &r.polls[j]
		r.answers[j][i], r.errs[j][i] = out[j].Standing, out[j].Err
		switch {
		case out[j].Err != nil:
			poll.Failed()
		case out[j].State == lease.Held:
			poll.Yes()
		default:
			poll.No()
		}
		switch state := poll.State(); {
		case state == vote.Won:
			r.outcomes[j].Standing = r.held(j)
		case state == vote.Lost:
			r.outcomes[j].Standing = r.gone(j)
		case poll.Complete():
			r.outcomes[j].Err = r.unknown(j)
		default:
			continue
		}
		r.open--
	}
}

func (r *renewal) decided(j int) bool {
	return r.outcomes[j].Err != nil || r.polls[j].State() != vote.Open
}

func (r *renewal) held(j int) lease.Standing {
	ref := r.refs[j]
	st := lease.Standing{State: lease.Held, Ticket: ref.Token.Ticket, Asked: r.asked, Lease: shortest(r.answers[j])}
	r.s.mu.Lock()
	defer r.s.mu.Unlock()

	if k := r.s.claims[place{ref.Name, ref.Token.ID}]; k != nil && k.held {
		k.until = max(k.until, r.asked.Add(st.Lease))
		if k.w != nil && k.w.last.State == lease.Held {
			st.Rev = k.w.last.Rev
		}
	}
	return st
}

// gone says why, and lets the few who have it still give it up.
func (r *renewal) gone(j int) lease.Standing {
	ref := r.refs[j]
	st := lease.Standing{State: lease.Gone, Asked: r.asked}
	for _, a := range r.answers[j] {
		if a.Holder != nil && st.Holder == nil {
			st.Holder, st.Left = a.Holder, a.Left
		}
		if a.Seal.Closed() && (!st.Seal.Closed() || a.Seal.Victim == ref.Token.ID) {
			st.Seal = a.Seal
		}
	}
	r.s.loses(ref.Name, ref.Token)
	return st
}

// loses gives up what is left of a hold that is lost. The claim may join again, with a new
// ticket, and asks nowhere before that is done there.
func (s *Store) loses(name string, t lease.Token) {
	s.mu.Lock()
	defer s.mu.Unlock()

	k := s.claims[place{name, t.ID}]
	if k == nil || !k.held || k.fence != t.Ticket {
		return
	}
	now := elapsed.Now()
	k.held, k.until = false, now
	for i, m := range s.members {
		ticket := k.seats[i].ticket
		if ticket == 0 || k.seats[i].busy != nil {
			continue
		}
		k.seats[i] = seat{busy: make(chan struct{})}
		m.undo(leaving{
			name: name, id: t.ID, ticket: ticket, until: now.Add(s.o.LongestTTL), done: func() { s.free(k, i, 0) },
		})
	}
}

// unknown is the error where neither a majority has the lock nor a majority has it not.
func (r *renewal) unknown(j int) error {
	errs := append([]error(nil), r.errs[j]...)
	for i, a := range r.answers[j] {
		if errs[i] == nil && a.State != lease.Held {
			errs[i] = errNotThere
		}
	}
	return r.s.noQuorum(errs)
}

func (r *renewal) giveUp(err error) {
	for j := range r.refs {
		if !r.decided(j) {
			r.outcomes[j].Err = &driver.Fault{Kind: driver.Unavailable, Err: err}
		}
	}
	r.open = 0
}
