//go:build unix

package redisstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/internal/relay"
	"github.com/redlatch/redlatch/lease"
)

// What a plain client has looked at is changed before it writes. Each of these holds its
// writes back, and lets somebody else come between.

func TestPlainDoesNotDeleteAnothersLock(t *testing.T) {
	server := serve(t)
	r := relay.Start(t, server.Addr())
	p, other := newPlain(t, server, r.Addr()), newStore(t, server.Addr(), Options{})
	mine, theirs := claim(30*time.Second), claim(30*time.Second)
	join(t, p.plainStore, "n", mine, lease.Held)
	left := between(t, r, "del", func() lease.Standing { return leave(t, p.plainStore, "n", mine.ID) }, func() {
		mustDo(t, server, "DEL", "lock:n") // as if its lease had ended
		join(t, other, "n", theirs, lease.Held)
	})
	if left.State != lease.Gone || left.Holder == nil || left.Holder.ID != theirs.ID {
		t.Errorf("left: %+v", left)
	}
	join(t, other, "n", theirs, lease.Held)
	leave(t, other, "n", theirs.ID)

	// Nor one of a client that touches nothing but the lock.
	mine = claim(30 * time.Second)
	join(t, p.plainStore, "n", mine, lease.Held)
	left = between(t, r, "del", func() lease.Standing { return leave(t, p.plainStore, "n", mine.ID) }, func() {
		mustDo(t, server, "SET", "lock:n", "theirs", "PX", "30000")
	})
	if v := mustDo(t, server, "GET", "lock:n"); v != "theirs" || left.State != lease.Gone {
		t.Errorf("left: %+v, and the key has %v", left, v)
	}
}

func TestPlainSeesWhatChangedBeforeItTakesALock(t *testing.T) {
	server := serve(t)
	r := relay.Start(t, server.Addr())
	p, other := newPlain(t, server, r.Addr()), newStore(t, server.Addr(), Options{})
	late := func(c lease.Claim, do func()) lease.Standing {
		t.Helper()
		c.NoWait = true
		return between(t, r, "set", func() lease.Standing {
			st, err := p.Join(t.Context(), "n", c)
			if err != nil {
				t.Errorf("join: %v", err)
			}
			return st
		}, do)
	}
	keys := other.keys.keys("n", "")

	c := claim(30 * time.Second)
	if st := late(c, func() { leave(t, other, "n", c.ID) }); st.State != lease.Left {
		t.Errorf("overtaken by its own leave: %+v", st)
	}
	seal := lease.Seal{For: 300 * time.Millisecond, Value: "v"}
	if st := late(claim(30*time.Second), func() {
		mustDo(t, server, "SET", keys[sealedKey], sealText(seal), "PX", "300")
	}); st.State != lease.Busy || st.Seal.Value != "v" {
		t.Errorf("overtaken by a seal: %+v", st)
	}
	mustDo(t, server, "DEL", keys[sealedKey])
	const ahead = 1 << 52
	if st := late(claim(30*time.Second), func() { mustDo(t, server, "SET", keys[lastKey], fmt.Sprint(ahead), "PX", "60000") }); st.Ticket != ahead+1 {
		t.Errorf("overtaken by a ticket of %d: %+v", ahead, st)
	}
}

func TestAPlainRenewalKeepsWhatAnotherHasBought(t *testing.T) {
	server := serve(t)
	r := relay.Start(t, server.Addr())
	p, other := newPlain(t, server, r.Addr()), newStore(t, server.Addr(), Options{})
	c, bystander := claim(30*time.Second), claim(30*time.Second)
	ref := func(name string, c lease.Claim, ttl time.Duration) driver.Ref {
		st := join(t, p.plainStore, name, c, lease.Held)
		return driver.Ref{Name: name, Token: lease.Token{ID: c.ID, Ticket: st.Ticket, Owner: c.Owner}, TTL: ttl}
	}
	refs := []driver.Ref{ref("b", bystander, time.Minute), ref("n", c, 40*time.Second)}
	long := refs[1]
	long.TTL = 10 * time.Minute
	out := between(t, r, "pexpire", func() []driver.Outcome { return p.Renew(t.Context(), refs) }, func() {
		other.Renew(t.Context(), []driver.Ref{long})
	})
	for i, o := range out {
		if o.Err != nil || o.State != lease.Held {
			t.Errorf("renewal %d: %+v", i, o)
		}
	}
	if left := mustDo(t, server, "PTTL", "lock:n").(int64); left < 9*60_000 || out[1].Lease < 9*time.Minute {
		t.Errorf("a lease of 10 minutes has %d ms left, and the renewal says %v", left, out[1].Lease)
	}
	if left := mustDo(t, server, "PTTL", "lock:b").(int64); left < 50_000 {
		t.Errorf("the other one of the batch has %d ms", left)
	}
	// Also where nothing but the lock, or nothing but the highest ticket, was changed.
	between(t, r, "pexpire", func() []driver.Outcome { return p.Renew(t.Context(), refs) }, func() {
		mustDo(t, server, "PEXPIRE", "lock:n", "1200000")
	})
	if left := mustDo(t, server, "PTTL", "lock:n").(int64); left < 19*60_000 {
		t.Errorf("a lease of 20 minutes has %d ms left", left)
	}
	raised, high := refs[0], refs[0].Token.Ticket+1_000_000
	raised.Fence = high - 10
	between(t, r, "pexpire", func() []driver.Outcome { return p.Renew(t.Context(), []driver.Ref{raised}) }, func() {
		mustDo(t, server, "SET", other.keys.keys("b", "")[lastKey], fmt.Sprint(high), "PX", "60000")
	})
	if q, err := p.Inspect(t.Context(), "b"); err != nil || q.Last != high {
		t.Errorf("the highest ticket was %d and is %d, %v", high, q.Last, err)
	}
	// And one of another hold: the next ticket of the same ID.
	out = between(t, r, "pexpire", func() []driver.Outcome { return p.Renew(t.Context(), []driver.Ref{long}) }, func() {
		mustDo(t, server, "DEL", "lock:n")
		c.TTL = time.Minute
		join(t, other, "n", c, lease.Held)
	})
	if left := mustDo(t, server, "PTTL", "lock:n").(int64); out[0].State != lease.Gone || left > 60_000 {
		t.Errorf("renewed is %+v; the next hold of the claim has %d ms", out[0], left)
	}
}

func TestPlainRenewsOneLockTwiceInABatch(t *testing.T) {
	server := serve(t)
	p := newPlain(t, server, server.Addr())
	c := claim(time.Second)
	st := join(t, p.plainStore, "n", c, lease.Held)
	ref := driver.Ref{Name: "n", Token: lease.Token{ID: c.ID, Ticket: st.Ticket, Owner: c.Owner}, TTL: time.Minute, Fence: st.Ticket + 10}
	short := ref
	short.TTL, short.Fence = time.Second, st.Ticket+5
	for _, refs := range [][]driver.Ref{{ref, short}, {short, ref}} {
		for i, o := range p.Renew(t.Context(), refs) {
			if o.Err != nil || o.State != lease.Held || o.Lease < refs[i].TTL {
				t.Errorf("renewal %d: %+v", i, o)
			}
		}
		if left := mustDo(t, server, "PTTL", "lock:n").(int64); left < 50_000 {
			t.Errorf("a lease of a minute has %d ms left", left)
		}
		if q, err := p.Inspect(t.Context(), "n"); err != nil || q.Last != ref.Fence {
			t.Errorf("the last ticket is %d, %v, want %d", q.Last, err, ref.Fence)
		}
	}
}

// between lets f send that command, has do done before it arrives, and returns f's answer.
func between[T any](t *testing.T, r *relay.Relay, command string, f func() T, do func()) T {
	t.Helper()
	trap := r.Hold(relay.Command(command))
	answer := make(chan T, 1)
	go func() { answer <- f() }()
	select {
	case <-trap.Caught():
		do()
	case <-time.After(10 * time.Second):
		t.Errorf("%s was not sent", command)
	}
	trap.Release()
	return <-answer
}

func TestPlainCallsWhoseReplyIsLostAreRepeated(t *testing.T) {
	server := serve(t)
	r := relay.Start(t, server.Addr())
	newPlain(t, server, r.Addr())
	p := plainWith(t, &redis.Options{Addr: r.Addr(), Username: "plain", Password: "secret", ReadTimeout: 300 * time.Millisecond})
	second := func() relay.Match { // the first one is the trial
		n := 0
		return func(args []string) bool {
			if relay.Command("exec")(args) {
				n++
			}
			return n == 2
		}
	}
	c := claim(30 * time.Second)
	r.CutReply(second())
	if _, err := p.Join(t.Context(), "n", c); err == nil {
		t.Fatal("join: no error, though its reply is lost")
	}
	q, err := p.Inspect(t.Context(), "n")
	if err != nil || len(q.Holders()) != 1 {
		t.Fatalf("after the join: %+v, %v", q, err)
	}
	if st := join(t, p.plainStore, "n", c, lease.Held); st.Ticket != q.Holders()[0].Ticket {
		t.Errorf("joined again: ticket %d, had %d", st.Ticket, q.Holders()[0].Ticket)
	}
	trap := r.CutReply(second())
	if _, err := p.Leave(t.Context(), "n", c.ID, 0, lease.Seal{}); err == nil {
		t.Fatal("leave: no error, though its reply is lost")
	}
	trap.Release()
	next := claim(30 * time.Second)
	join(t, p.plainStore, "n", next, lease.Held)
	if st := leave(t, p.plainStore, "n", c.ID); st.State != lease.Gone || st.Holder == nil || st.Holder.ID != next.ID {
		t.Errorf("left again: %+v", st)
	}
	// The stone is there: a copy of the first join that comes now takes nothing.
	leave(t, p.plainStore, "n", next.ID)
	join(t, newPlain(t, server, server.Addr()).plainStore, "n", c, lease.Left)
}

// Scripts, transactions and clients that know neither, on a network that breaks. Nobody
// holds the lock together with somebody else, fences grow from one to the next whatever
// its kind, and every key has an expiry at every moment.
func TestModesExcludeEachOtherWhileEverythingBreaks(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 0))
	server := serve(t)
	r := relay.Start(t, server.Addr())
	newPlain(t, server, r.Addr())
	options := redis.Options{Addr: r.Addr(), PoolSize: 20, ReadTimeout: 300 * time.Millisecond, DialTimeout: 300 * time.Millisecond}
	asPlain := options
	asPlain.Username, asPlain.Password = "plain", "secret"

	var inside atomic.Int32
	var lastFence atomic.Uint64
	got := map[string]*atomic.Int32{"scripts": new(atomic.Int32), "plain": new(atomic.Int32), "foreign": new(atomic.Int32)}
	enter := func(kind string, fence uint64, stay time.Duration) {
		if n := inside.Add(1); n != 1 {
			t.Errorf("seed %d: %d hold the lock, one of them %s", seed, n, kind)
		}
		if fence != 0 {
			if last := lastFence.Swap(fence); last >= fence {
				t.Errorf("seed %d: fence %d (%s) after %d", seed, fence, kind, last)
			}
		}
		time.Sleep(stay)
		inside.Add(-1)
		got[kind].Add(1)
	}
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
	defer stop()
	var work sync.WaitGroup
	locker := func(kind string, s *Store) {
		for range 4 {
			mine := rand.New(rand.NewPCG(random.Uint64(), 0))
			work.Go(func() {
				for ctx.Err() == nil {
					c := claim(time.Duration(300+mine.IntN(700)) * time.Millisecond)
					visit(ctx, s, c, time.Duration(mine.IntN(1500))*time.Millisecond, func(fence uint64) {
						enter(kind, fence, time.Duration(mine.IntN(3))*time.Millisecond)
					})
					time.Sleep(time.Duration(mine.IntN(5)) * time.Millisecond)
				}
			})
		}
	}
	for range 2 {
		plain, scripted := asPlain, options
		locker("plain", plainWith(t, &plain).plainStore)
		locker("scripts", storeWith(t, &scripted, Options{Foreign: true}))
	}
	work.Go(func() {
		for ctx.Err() == nil {
			time.Sleep(3 * time.Millisecond)
			if ok, _ := server.Do("SET", "lock:n", "theirs", "NX", "PX", "400"); ok != "OK" {
				continue
			}
			enter("foreign", 0, 2*time.Millisecond)
			_, _ = server.Do("DEL", "lock:n") // its 400 ms cannot be over yet: it would fail above
		}
	})
	for ctx.Err() == nil {
		time.Sleep(time.Duration(random.IntN(150)) * time.Millisecond)
		command := relay.Command([]string{"exec", "evalsha", "set", "del"}[random.IntN(4)])
		switch random.IntN(4) {
		case 0:
			r.Cut()
		case 1:
			r.CutReply(command)
		default:
			trap := r.Hold(command)
			time.AfterFunc(time.Duration(random.IntN(500))*time.Millisecond, trap.Release)
		}
		allExpire(t, server)
	}
	work.Wait()
	for kind, n := range got {
		t.Logf("%s: %d", kind, n.Load())
		if n.Load() < 5 {
			t.Errorf("seed %d: only %d acquisitions by %s", seed, n.Load(), kind)
		}
	}
}
