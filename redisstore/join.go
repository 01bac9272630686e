package redisstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/internal/elapsed"
	"github.com/redlatch/redlatch/internal/lines"
	"github.com/redlatch/redlatch/lease"
)

// Join implements [driver.Store].
func (s *Store) Join(ctx context.Context, name string, c lease.Claim) (lease.Standing, error) {
	if err := s.refuses(c); err != nil {
		return lease.Standing{}, &driver.Fault{Kind: driver.Refused, Err: err}
	}
	k := s.enroll(name, c)
	st, err := s.ask(ctx, k, c)
	if errors.Is(err, lease.ErrQueueFull) {
		return lease.Standing{}, err
	}
	if err != nil {
		return lease.Standing{}, fault(err)
	}
	return st, nil
}

// enroll notes the claim before its join is sent.
func (s *Store) enroll(name string, c lease.Claim) *lines.Claim {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.book.Enroll(name, c)
}

// learn takes in what the join has answered.
func (s *Store) learn(k *lines.Claim, a lines.Answer) lease.Standing {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.book.Learn(k, a, elapsed.Now())
}

func (s *Store) refuses(c lease.Claim) error {
	switch {
	case c.Mode != lease.Exclusive:
		return fmt.Errorf("redisstore has no %v claims yet", c.Mode)
	case c.TTL < minTTL:
		return fmt.Errorf("a TTL of %v is below the shortest, %v", c.TTL, minTTL)
	case c.Fence >= 1<<53:
		return fmt.Errorf("a proposed fence of %d is not below 2^53", c.Fence)
	}
	return nil
}

// ask sends the join: the first one, one more to see where the claim stands, or the
// one that confirms a grant.
//
// A claim may only be queued while the process is subscribed: else the first hand-over
// finds nobody, and the place is lost. But most claims never wait, and their processes
// shall not need a second connection. So without a subscription a claim first asks
// without waiting; if the lock is taken, the process subscribes, once.
func (s *Store) ask(ctx context.Context, k *lines.Claim, c lease.Claim) (lease.Standing, error) {
	sub := s.inbox.subscription()
	if sub.id == 0 && !c.NoWait && !s.opts.Poll {
		first := c
		first.NoWait = true
		asked, r, err := s.sendJoin(ctx, k, first, sub)
		if err != nil {
			return lease.Standing{}, err
		}
		if r.state != "busy" || c.OnSeal == lease.SealFail && r.sealText != "" {
			return s.heard(ctx, k, c, asked, r, sub)
		}
		sub = s.inbox.open(ctx)
	}
	asked, r, err := s.sendJoin(ctx, k, c, sub)
	if err != nil {
		return lease.Standing{}, err
	}
	return s.heard(ctx, k, c, asked, r, sub)
}

// sendJoin returns the answer and when the call was sent that it dates from.
func (s *Store) sendJoin(ctx context.Context, k *lines.Claim, c lease.Claim, sub subscription) (lease.Instant, reply, error) {
	keys := s.keys.keys(k.Name, c.ID)
	j := joining{Claim: c, channel: s.inbox.channel, marker: sub.marker}
	for {
		asked := elapsed.Now()
		r, err := bound(ctx, func() (reply, error) { return s.moves.join(ctx, keys, j) })
		s.mu.Lock()
		k.Sent(err != nil, elapsed.Now().Sub(asked), s.once)
		s.mu.Unlock()
		if err != nil {
			return 0, reply{}, s.explain(k.Name, err)
		}
		if r.more && r.state != "held" {
			continue // more dead waiters than one call may skip
		}
		return asked, r, nil
	}
}

func (s *Store) heard(ctx context.Context, k *lines.Claim, c lease.Claim, asked lease.Instant, r reply, sub subscription) (lease.Standing, error) {
	s.waitHere(k, c, &r)
	if r.state == "full" {
		s.forget(k.Name, k.ID)
		return lease.Standing{}, lease.ErrQueueFull
	}
	st, err := r.standing(k.ID, asked)
	if err = firstError(err, r.newer()); err != nil {
		return lease.Standing{}, err
	}
	if st.State == lease.Waiting && c.NoWait {
		return lease.Standing{}, fmt.Errorf("an answer %q to a claim that does not wait", r.state)
	}
	if st.State == lease.Waiting && !r.subscribed {
		s.inbox.missed(sub)
	}
	st = s.learn(k, lines.Answer{
		Standing: st, Foreign: r.foreign(), Subscribed: r.subscribed, Push: r.push, Subscription: sub.id,
	})
	if c.Vote {
		st.Node = parseNode(r.info)
		st.Node.Clock = r.now
		st.Node.Durable = s.isDurable(ctx, st.Node.ID)
	}
	return st, nil
}

// explain makes a WRONGTYPE at the lock's key readable, and says what to do about a server
// that refuses what every move is made of.
func (s *Store) explain(name string, err error) error {
	switch {
	case serverCode(err) == "WRONGTYPE":
		return &otherFormat{key: s.keys.lock(name), err: err}
	case !s.book.Queueless && refusedCommand(err, "evalsha", "eval"):
		return &refusal{"scripts", "grant +eval and +evalsha, or use redisstore.NewPlain (in a URL: ?plain=true), which needs none", err}
	case s.book.Queueless && refusedCommand(err, transactional...):
		return &refusal{"transactions", "grant +multi, +exec, +watch and +unwatch, which plain mode cannot do without", err}
	}
	return err
}
