package quorum

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/lease"
)

// tries is how many rounds a claim makes at once while nobody else has a majority either:
// several that began in the same moment each got a few servers.
const tries = 4

// Join implements [driver.Store].
func (s *Store) Join(ctx context.Context, name string, c lease.Claim) (lease.Standing, error) {
	if err := s.refuses(c.TTL); err != nil {
		return lease.Standing{}, err
	}
	if c.Mode != lease.Exclusive {
		return lease.Standing{}, &driver.Fault{Kind: driver.Refused, Err: fmt.Errorf(
			"a quorum has no %v claims: its servers would give more than there is", c.Mode)}
	}
	if err := ended(ctx); err != nil {
		return lease.Standing{}, err
	}
	k := s.enroll(name, c.ID)
	st, err := s.try(ctx, k, c)
	if err != nil || st.State != lease.Busy {
		s.unless(k, st.State == lease.Held)
		if c.Vote && err == nil {
			st.Node, err = s.Node(ctx)
		}
		return st, err
	}
	return s.wait(k, c, st)
}

func (s *Store) refuses(ttl time.Duration) error {
	switch {
	case ttl < s.features.MinTTL:
		return &driver.Fault{Kind: driver.Refused, Err: fmt.Errorf("a TTL of %v is below the shortest, %v", ttl, s.features.MinTTL)}
	case ttl > s.o.LongestTTL:
		return &driver.Fault{Kind: driver.Refused, Err: fmt.Errorf(
			"a TTL of %v is longer than the longest of this quorum, %v: give a shorter one, or have all clients of these servers allow more", ttl, s.o.LongestTTL)}
	}
	return nil
}

func ended(ctx context.Context) error {
	if ctx.Err() != nil {
		return &driver.Fault{Kind: driver.Unavailable, Err: ctx.Err()}
	}
	return nil
}

// try gets the name, or says who has it. A claim that holds already is renewed.
func (s *Store) try(ctx context.Context, k *claim, c lease.Claim) (lease.Standing, error) {
	select {
	case k.turn <- struct{}{}:
		defer func() { <-k.turn }()
	case <-ctx.Done():
		return lease.Standing{}, &driver.Fault{Kind: driver.Unavailable, Err: ctx.Err()}
	}
	for n := 1; ; n++ {
		if st, err, held := s.again(ctx, k, c); held {
			return st, err
		}
		r, err := s.ask(ctx, k, c)
		if err != nil {
			return lease.Standing{}, err
		}
		st, split, err := r.standing()
		if err != nil || !split || n == tries {
			return st, err
		}
		// Each of several needs another pause, or they meet again.
		if !sleep(ctx, time.Duration(n)*(2*time.Millisecond+rand.N(10*time.Millisecond))) {
			return lease.Standing{}, &driver.Fault{Kind: driver.Unavailable, Err: ctx.Err()}
		}
	}
}

// again answers for a claim that holds already.
func (s *Store) again(ctx context.Context, k *claim, c lease.Claim) (lease.Standing, error, bool) {
	s.mu.Lock()
	held, fence := k.held, k.fence
	s.mu.Unlock()
	if !held {
		return lease.Standing{}, nil, false
	}
	out := s.Renew(ctx, []driver.Ref{{Name: k.name, Token: lease.Token{ID: k.id, Ticket: fence, Owner: c.Owner}, TTL: c.TTL}})[0]
	if out.Err == nil && out.State == lease.Gone {
		return lease.Standing{}, nil, false // it was lost; it draws a new ticket
	}
	return out.Standing, out.Err, true
}

// unless forgets a claim that is not here, but for one that waits: it goes on asking.
func (s *Store) unless(k *claim, held bool) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if !held && !k.held && (k.w == nil || k.w.queued == 0) {
		s.strike(k)
	}
}

// wait gives a claim that may wait its place in the line of this process.
func (s *Store) wait(k *claim, c lease.Claim, st lease.Standing) (lease.Standing, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	queued := k.w != nil && k.w.queued != 0
	l := s.lines[k.name]
	switch {
	case c.NoWait, c.OnSeal == lease.SealFail && st.Seal.Closed():
		if !queued {
			s.strike(k)
		}
		return st, nil
	case k.gone:
		return st, nil
	case !queued && c.MaxWaiters > 0 && l != nil && len(l.waiting) >= c.MaxWaiters:
		s.strike(k)
		return lease.Standing{}, lease.ErrQueueFull
	}
	if k.w == nil {
		k.w = &waiting{changed: make(chan struct{})}
	}
	k.w.claim = c
	if !queued {
		s.queue(k)
	}
	s.waits(k, st)
	return k.w.last, nil
}

// waits takes in that the claim has to wait.
func (s *Store) waits(k *claim, st lease.Standing) {
	st.State, st.Ticket, st.Ahead = lease.Waiting, 0, 0
	for _, o := range s.lines[k.name].waiting {
		if o == k {
			break
		}
		st.Ahead++
	}
	if st.Holder != nil {
		st.Ahead++
	}
	k.w.update(st)
	// One has found a seal for all who wait here.
	for _, o := range s.lines[k.name].waiting {
		if o != k && o.w.last.Rev != 0 && !sameSeal(o.w.last.Seal, st.Seal) {
			other := o.w.last
			other.Seal = st.Seal
			o.w.update(other)
		}
	}
}

// pollTime is the pause of those who are told nothing.
func pollTime() time.Duration { return 50*time.Millisecond + rand.N(100*time.Millisecond) }
