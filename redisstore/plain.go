package redisstore

import (
	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/internal/elapsed"
	"github.com/redlatch/redlatch/internal/lines"
	"github.com/redlatch/redlatch/lease"
)

// Plain is a [driver.Store] for a server that refuses scripts, by its rights or because a
// proxy stands before it. It uses SET, and WATCH, MULTI and EXEC, on the same keys and
// with the same values as a [Store], so that the two exclude each other and clients of
// other libraries, fences grow from one to the other, and each respects the other's seals.
//
// What it has not is the queue on the server. Whoever waits looks again every 50 to 150 ms,
// one for each process and name, and who comes first is chance; within one process it is
// the order of coming, and a release wakes the next one here at once. [lease.Claim].MaxWaiters
// counts those of this Store: what a bound is for, the pile that waits, is nowhere else.
// A Store's waiters on the same name are told of a release, where publishing is allowed,
// but not waited for: a Plain can pass them, and then they queue anew, for their tickets
// must not be below its fence.
//
// Where the server's memory is full it refuses transactions, whatever they are about: then
// nothing can be renewed or released either, and locks free themselves when their leases
// are over. A [Store] goes on renewing and releasing.
//
// The least that an ACL user needs, for the default prefix:
//
//	ACL SETUSER plain reset on >PASSWORD ~lock:*
//	    +multi +exec +watch +unwatch +get +set +del +exists +pexpire +pttl +time
//	    +ping +hello +info
//	    +zrange +hgetall
//	    +sadd +srem +sscan +zadd +zrangebyscore +zremrangebyscore
//
// The last line is for Names only, and the one before it for Inspect. To tell a Store's
// waiters of releases it takes +zrange +hmget +hdel +publish &lock:*.
type Plain struct {
	*plainStore
}

// plainStore hides what a Plain is made of: it has all that a Store has, but makes its
// moves in another way.
type plainStore = Store

var _ driver.Store = (*Plain)(nil)

// NewPlain returns a Plain on the server of that client. What is said of [New] goes for it
// too. Of the Options, Poll and Foreign mean nothing: it polls always, and leaves gaps
// always.
//
// No [Store] becomes a Plain by itself where scripts turn out to be refused: a program
// that was promised first come, first served would not get it, and nobody would say so.
func NewPlain(client redis.UniversalClient, o Options) (*Plain, error) {
	o.Poll = true
	s, err := New(client, o)
	if err != nil {
		return nil, err
	}
	s.moves, s.book.Queueless = transactions{client}, true
	return &Plain{s}, nil
}

// Features implements [driver.Store].
func (p *Plain) Features() driver.Features {
	f := p.plainStore.Features()
	f.FIFO, f.Push = false, false
	return f
}

// waitHere gives a claim that may wait a place in the line of this process, where the
// server has no queue: r says busy then, and now waiting; or full.
func (s *Store) waitHere(k *lines.Claim, c lease.Claim, r *reply) {
	if !s.book.Queueless || r.state != "busy" || c.NoWait {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()

	if k.Gone || !k.Stands() && c.OnSeal == lease.SealFail && r.sealText != "" {
		return
	}
	ahead, full := s.book.Arrive(k, c)
	if full {
		r.state = "full"
		return
	}
	r.state = "waiting"
	if r.ahead = ahead; r.taken {
		r.ahead++
	}
}

// leftHere makes the answer to a leave say what only this process knows: that the claim
// waited. And whoever waits here can have the lock that was released.
func (s *Store) leftHere(name string, waited bool, st *lease.Standing) {
	if !s.book.Queueless {
		return
	}
	if waited && st.State == lease.Gone {
		st.State = lease.Waiting
	}
	if st.State == lease.Held {
		s.mu.Lock()
		defer s.mu.Unlock()

		s.book.Released(name, elapsed.Now())
	}
}
