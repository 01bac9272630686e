package quorum

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/internal/elapsed"
	"github.com/redlatch/redlatch/internal/vote"
	"github.com/redlatch/redlatch/lease"
)

// aheadMost is how far a proposed fence may be ahead of the servers' clocks. A client whose
// own clock is years ahead would make every later client's first proposal too low.
const aheadMost = time.Minute

var errBusy = errors.New("an earlier call about this claim is still on its way there")

// round asks all members at once for the name, and ends when a majority has answered one way
// or the other. Answers that come later are seen to in the background: what was got in a
// round that is lost is given back.
type round struct {
	s     *Store
	k     *claim
	c     lease.Claim // as the members are asked
	asked lease.Instant
	done  chan struct{} // closed when it is over

	mu      sync.Mutex
	vote    *vote.Acquire
	answers []lease.Standing
	errs    []error
	over    bool
	won     bool
	fence   uint64 // of a round that was won; what comes later may settle another one, too late
	fatal   error
}

// ask makes a round for the claim, which has its turn.
func (s *Store) ask(ctx context.Context, k *claim, c lease.Claim) (*round, error) {
	c.NoWait, c.Vote, c.OnSeal, c.MaxWaiters, c.Room = true, true, lease.SealFail, 0, 0
	r := &round{
		s: s, k: k, asked: elapsed.Now(), done: make(chan struct{}),
		answers: make([]lease.Standing, len(s.members)), errs: make([]error, len(s.members)),
	}
	ask := s.asked(r.asked)
	s.mu.Lock()
	c.Fence = s.propose(k, c.Fence)
	for i := range s.members {
		if !ask[i] {
			r.errs[i] = s.members[i].heldBack(r.asked)
		}
	}
	s.mu.Unlock()
	r.c, r.vote = c, vote.NewAcquire(len(s.members), c.Fence)
	r.mu.Lock()
	for i := range s.members {
		if !ask[i] {
			r.vote.Failed(i)
		}
	}
	for i := range s.members {
		if ask[i] {
			s.work.Go(func() { r.join(i) })
		}
	}
	r.step()
	r.mu.Unlock()
	select {
	case <-r.done:
		return r, nil
	case <-ctx.Done():
		r.abandon()
		return nil, &driver.Fault{Kind: driver.Unavailable, Err: ctx.Err()}
	}
}

// propose draws a fence: above all that were heard of, and as far as the clock is. The
// clock is what makes it high enough at most servers in most rounds; nothing else depends
// on it.
func (s *Store) propose(k *claim, wanted uint64) uint64 {
	return min(max(k.known+1, wanted, uint64(s.wallClock())), lease.MaxTicket)
}

func (s *Store) wallClock() int64 {
	now := time.Now().UnixMicro()
	if s.clock.heard {
		now = min(now, s.clock.now()+aheadMost.Microseconds())
	}
	return now
}

func (r *round) join(i int) {
	var st lease.Standing
	m := r.s.members[i]
	err := errBusy
	took := r.s.take(r.k, i)
	if took {
		err = m.call(r.s.ctx, func(ctx context.Context) (err error) {
			st, err = m.Store.Join(ctx, r.k.name, r.c)
			return err
		})
	}
	r.mu.Lock()
	defer r.mu.Unlock()

	r.answers[i], r.errs[i] = st, err
	if !took {
		r.vote.Failed(i)
		r.step()
		return
	}
	r.heard(i)
	if r.over {
		r.late(i)
		return
	}
	r.step()
}

// take makes the claim's seat at member i busy, as soon as it is not; it reports false if
// that takes too long.
func (s *Store) take(k *claim, i int) bool {
	patience := time.NewTimer(s.o.NodeTimeout)
	defer patience.Stop()
	for {
		s.mu.Lock()
		busy := k.seats[i].busy
		if busy == nil {
			k.seats[i].busy = make(chan struct{})
			s.mu.Unlock()
			return true
		}
		s.mu.Unlock()
		select {
		case <-busy:
		case <-patience.C:
			return false
		case <-s.ctx.Done():
			return false
		}
	}
}

// heard takes an answer in.
func (r *round) heard(i int) {
	st, err := r.answers[i], r.errs[i]
	if err != nil {
		r.s.free(r.k, i, 0)
		r.vote.Failed(i)
		return
	}
	longest := r.s.o.LongestTTL
	counts := st.Node.Durable || st.Node.Uptime >= longest
	if !counts {
		r.errs[i] = &tooYoung{st.Node.Uptime, longest}
	}
	if twin := r.s.learn(r.k, i, st); twin >= 0 && !r.over {
		r.fatal = sameServer(r.s.members[min(i, twin)].Name, r.s.members[max(i, twin)].Name)
	}
	if st.State != lease.Held { // else it is busy until the round is over
		r.s.free(r.k, i, 0)
	}
	r.vote.Answered(i, st, counts)
}

// learn remembers fences, the servers' time, and who member i is. It returns the member that
// is the same server, or -1.
func (s *Store) learn(k *claim, i int, st lease.Standing) (twin int) {
	s.mu.Lock()
	defer s.mu.Unlock()

	twin = -1
	s.ids[i] = st.Node.ID
	for j, id := range s.ids {
		if j != i && id != "" && id == st.Node.ID {
			twin = j
		}
	}
	k.known = max(k.known, st.Ticket, st.Prev)
	if st.Holder != nil {
		k.known = max(k.known, st.Holder.Ticket)
	}
	if st.Node.Clock.IsZero() {
		return twin
	}
	now, servers := elapsed.Now(), st.Node.Clock.UnixMicro()
	if !s.clock.heard || servers > s.clock.now() || now.Sub(s.clock.at) > time.Minute {
		s.clock = serverClock{true, now, servers}
	}
	return twin
}

// free says what came of the call to member i.
func (s *Store) free(k *claim, i int, ticket uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()

	close(k.seats[i].busy)
	k.seats[i] = seat{ticket: ticket}
}

// step is called after every answer, with r.mu held.
func (r *round) step() {
	if r.over {
		return
	}
	if servers, fence := r.vote.Raise(); len(servers) > 0 && r.fatal == nil {
		for _, i := range servers {
			r.s.work.Go(func() { r.raise(i, r.answers[i].Ticket, fence) })
		}
	}
	switch state := r.vote.State(); {
	case r.fatal != nil, state == vote.Lost:
		r.end(false)
	case state == vote.Won:
		r.end(true)
	}
}

// raise is the second round, at one member.
func (r *round) raise(i int, ticket, fence uint64) {
	m, held := r.s.members[i], false
	ref := driver.Ref{
		Name: r.k.name, Token: lease.Token{ID: r.k.id, Ticket: ticket, Owner: r.c.Owner}, TTL: r.c.TTL, Fence: fence,
	}
	err := m.call(r.s.ctx, func(ctx context.Context) error {
		o := m.Store.Renew(ctx, []driver.Ref{ref})[0]
		held = o.Err == nil && o.State == lease.Held
		return o.Err
	})
	r.mu.Lock()
	defer r.mu.Unlock()

	if err != nil {
		r.errs[i] = err
	}
	r.vote.Raised(i, fence, held)
	r.step()
}

// abandon is for whoever does not wait any longer.
func (r *round) abandon() {
	r.mu.Lock()
	defer r.mu.Unlock()

	if !r.over {
		r.end(false)
	}
}

// end closes the round, with r.mu held.
func (r *round) end(won bool) {
	r.over, r.won = true, won
	if won {
		r.fence = r.vote.Fence()
		r.keep()
	}
	for i := range r.answers {
		r.late(i)
	}
	close(r.done)
}

// keep makes the claim a holder.
func (r *round) keep() {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()

	k := r.k
	if k.gone {
		return // it has left meanwhile, everywhere
	}
	k.held, k.fence, k.until = true, r.fence, r.asked.Add(r.c.TTL)
	r.s.stats.Acquired++
	if r.vote.SecondRound() && k.fence != r.c.Fence {
		r.s.stats.SecondRounds++
	}
}

// late settles member i after the end: what it gave is a part of the hold, or is given back.
func (r *round) late(i int) {
	if r.answers[i].State != lease.Held {
		return
	}
	ticket := r.answers[i].Ticket
	r.s.mu.Lock()
	keeps := r.won && !r.k.gone
	r.s.mu.Unlock()
	if keeps {
		r.s.free(r.k, i, ticket)
		return
	}
	l := leaving{
		name: r.k.name, id: r.k.id, ticket: ticket, until: elapsed.Now().Add(r.c.TTL + lease.Drift(r.c.TTL)),
		done: func() { r.s.free(r.k, i, 0) },
	}
	m := r.s.members[i]
	r.s.work.Go(func() {
		err := m.call(r.s.ctx, func(ctx context.Context) error {
			_, err := m.Store.Leave(ctx, l.name, l.id, l.ticket, l.seal)
			return err
		})
		if err != nil {
			m.undo(l)
			return
		}
		l.done()
	})
}

// standing is the outcome of a round: Held, Left, or Busy; or the error that too few gave
// an answer that counts. split says that nobody has a majority, as far as can be seen.
func (r *round) standing() (st lease.Standing, split bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.s.mu.Lock()
	defer r.s.mu.Unlock()

	n := len(r.s.members)
	yes, no := r.vote.Answers()
	switch {
	case r.fatal != nil:
		return st, false, r.fatal
	case r.won && !r.k.held:
		return lease.Standing{State: lease.Left, Asked: r.asked}, false, nil // its leave has overtaken it
	case r.won:
		st = lease.Standing{State: lease.Held, Ticket: r.fence, Prev: r.vote.Prev(), Asked: r.asked, Lease: shortest(r.answers)}
		return st, false, nil
	case r.vote.Left():
		return lease.Standing{State: lease.Left, Asked: r.asked}, false, nil
	case no == 0 || yes+no < vote.Majority(n) && no <= n-vote.Majority(n):
		return st, false, r.s.noQuorum(r.errs)
	}
	st = lease.Standing{State: lease.Busy, Asked: r.asked}
	most := r.inTheWay(&st)
	return st, most < vote.Majority(n) && no < n, nil
}

// shortest is the lease that all who gave the lock keep.
func shortest(answers []lease.Standing) time.Duration {
	least := time.Duration(math.MaxInt64)
	for _, a := range answers {
		if a.State == lease.Held {
			least = min(least, a.Lease)
		}
	}
	return least
}

// inTheWay names who has the lock at most members, or the seal, and returns at how many.
func (r *round) inTheWay(st *lease.Standing) int {
	at := make(map[string][]uint64) // tickets, by holder
	most := 0
	for i, a := range r.answers {
		if a.State != lease.Busy || r.errs[i] != nil {
			continue
		}
		if a.Seal.Closed() && a.Seal.For > st.Seal.For {
			st.Seal = a.Seal
		}
		key, ticket := "sealed", uint64(0)
		if a.Holder != nil {
			key, ticket = a.Holder.ID+"\n"+a.Holder.Foreign, a.Holder.Ticket
		}
		if at[key] = append(at[key], ticket); len(at[key]) > most {
			most = len(at[key])
			st.Holder, st.Left = a.Holder, a.Left
		}
		st.Ahead = max(st.Ahead, a.Ahead)
	}
	if st.Holder != nil {
		holder := *st.Holder
		holder.Ticket, _ = commonest(at[holder.ID+"\n"+holder.Foreign])
		st.Holder = &holder
	}
	return most
}
