package redisstore

import (
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/elapsed"
	"github.com/redlatch/redlatch/internal/relay"
	"github.com/redlatch/redlatch/internal/servertest"
	"github.com/redlatch/redlatch/lease"
)

// A holds, B polls and is stopped, C is told of releases. A releases: the name is kept
// for B, whom nobody can tell, but no longer than a lease of B's would last, and C must
// learn that it has to look, long before A's lease would have ended.
func TestAPollerThatStopsCostsNoMoreThanItsLease(t *testing.T) {
	server := serve(t)
	a, b, c := newStore(t, server.Addr(), Options{}), newStore(t, server.Addr(), Options{Poll: true}), newStore(t, server.Addr(), Options{})
	holder, next := claim(30*time.Second), claim(30*time.Second)
	join(t, a, "n", holder, lease.Held)
	for range 3 { // one turn a process, not one a claim
		join(t, b, "n", claim(500*time.Millisecond), lease.Waiting)
	}
	st := join(t, c, "n", next, lease.Waiting)
	leave(t, a, "n", holder.ID)
	within(t, 1400*time.Millisecond, c, "n", next, st)
}

// The same with a process that is alive and polls for another claim: that does not
// reserve the name for one that it has forgotten.
func TestAForgottenClaimOfAPollerIsNotReservedByAnother(t *testing.T) {
	server := serve(t)
	a, b, c := newStore(t, server.Addr(), Options{}), newStore(t, server.Addr(), Options{Poll: true}), newStore(t, server.Addr(), Options{})
	holder, alive, next := claim(30*time.Second), claim(30*time.Second), claim(30*time.Second)
	join(t, a, "n", holder, lease.Held)
	join(t, b, "n", claim(500*time.Millisecond), lease.Waiting) // nobody waits for it
	polling := join(t, b, "n", alive, lease.Waiting)
	st := join(t, c, "n", next, lease.Waiting)
	done := make(chan struct{})
	go func() {
		defer close(done)
		await(t, b, "n", alive, polling, lease.Held)
		leave(t, b, "n", alive.ID)
	}()
	leave(t, a, "n", holder.ID)
	within(t, 3*time.Second, c, "n", next, st)
	leave(t, c, "n", next.ID)
	<-done
}

// A claim was queued while its process could not be told anything, and now it can. It
// is told, also if the process does not know that the server takes it for a poller.
func TestAPollerWhoseProcessIsSubscribedByNowIsHandedTheLock(t *testing.T) {
	server := serve(t)
	r := relay.Start(t, server.Addr())
	a, b := newStore(t, server.Addr(), Options{}), newStore(t, r.Addr(), Options{})
	holder, c := claim(30*time.Second), claim(30*time.Second)
	join(t, a, "n", holder, lease.Held)
	subscribe := r.Hold(relay.Command("subscribe"))
	join(t, b, "n", c, lease.Waiting)
	subscribe.Release()
	servertest.Eventually(t, 5*time.Second, "the subscription", func() bool { return b.inbox.subscription().id != 0 })
	leave(t, a, "n", holder.ID)
	if v, _ := mustDo(t, server, "GET", "lock:n").(string); !strings.HasPrefix(v, c.ID) {
		t.Errorf("after the release the key has %q, want the claim that waits", v)
	}
}

// All claims are asked to look while a call of one of them is on its way: its answer is
// from before, and must not put the look off.
func TestAnAnswerDoesNotPutOffALookThatWasAskedForMeanwhile(t *testing.T) {
	server := serve(t)
	a, b := newStore(t, server.Addr(), Options{}), newStore(t, server.Addr(), Options{})
	holder, c := claim(30*time.Second), claim(30*time.Second)
	join(t, a, "n", holder, lease.Held)
	join(t, b, "n", c, lease.Waiting)
	k, sub := b.book.Claim("n", c.ID), b.inbox.subscription()
	asked, r, err := b.sendJoin(t.Context(), k, c, sub)
	if err != nil {
		t.Fatal(err)
	}
	b.lookEverywhere()
	if _, err := b.heard(t.Context(), k, c, asked, r, sub); err != nil {
		t.Fatal(err)
	}
	if _, due, _ := b.check(k); due.Sub(elapsed.Now()) > 3*time.Second {
		t.Errorf("it looks in %v", due.Sub(elapsed.Now()))
	}
}

// B's turn has begun, but somebody who knows no queue takes the free lock. B goes on
// polling. When the lock is free again it is B's turn as if for the first time.
func TestATurnThatAForeignClientTookBeginsAnew(t *testing.T) {
	server := serve(t)
	a, b, c := newStore(t, server.Addr(), Options{}), newStore(t, server.Addr(), Options{Poll: true}), newStore(t, server.Addr(), Options{})
	holder, polling := claim(30*time.Second), claim(500*time.Millisecond)
	join(t, a, "n", holder, lease.Held)
	st := join(t, b, "n", polling, lease.Waiting)
	leave(t, a, "n", holder.ID)
	mustDo(t, server, "SET", "lock:n", "theirs", "NX", "PX", "30000")
	stays(t, 700*time.Millisecond, b, "n", polling, st.Rev)
	mustDo(t, server, "DEL", "lock:n")
	join(t, c, "n", claim(30*time.Second), lease.Waiting)
	if got := join(t, b, "n", polling, lease.Held); got.Ticket != st.Ticket {
		t.Errorf("it lost its place: ticket %d, was %d", got.Ticket, st.Ticket)
	}
}
