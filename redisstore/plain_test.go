//go:build unix

package redisstore

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/drivertest"
	"github.com/redlatch/redlatch/internal/relay"
	"github.com/redlatch/redlatch/internal/servertest"
	"github.com/redlatch/redlatch/lease"
)

// plainRights are those that the documentation of Plain names; they have no script, and
// nothing of pub/sub.
func plainRights(t *testing.T) []string { return documented(t, "plain.go", "plain") }

// newPlain is a Plain of a user who has the documented rights and those besides.
func newPlain(t *testing.T, server *servertest.RedisServer, addr string, more ...string) *Plain {
	t.Helper()
	mustDo(t, server, append(append([]string{"ACL", "SETUSER", "plain", "reset", "on", ">secret"}, plainRights(t)...), more...)...)
	return plainWith(t, &redis.Options{Addr: addr, Username: "plain", Password: "secret"})
}

func plainWith(t *testing.T, options *redis.Options) *Plain {
	t.Helper()
	p, err := NewPlain(clientOf(t, options), Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// eachMode is for what is to be seen on the server and is the same for scripts and for
// transactions.
func eachMode(t *testing.T, test func(t *testing.T, server *servertest.RedisServer, s *Store)) {
	t.Run("scripts", func(t *testing.T) {
		server := serve(t)
		test(t, server, newStore(t, server.Addr(), Options{}))
	})
	t.Run("plain", func(t *testing.T) {
		server := serve(t)
		test(t, server, newPlain(t, server, server.Addr()).plainStore)
	})
}

func TestPlainConformance(t *testing.T) {
	server := serve(t)
	drivertest.Run(t, "redisstore/plain", func(t *testing.T) func() driver.Store {
		newPlain(t, server, server.Addr())
		return func() driver.Store {
			return plainWith(t, &redis.Options{Addr: server.Addr(), Username: "plain", Password: "secret"})
		}
	})
}

// favours are the rights with which a Plain tells a Store's waiters what happens.
var favours = []string{"+zrange", "+hmget", "+hdel", "+publish", "&lock:*"}

func TestAPlainReleaseIsToldToTheQueueOfTheScripts(t *testing.T) {
	server := serve(t)
	p, s, other := newPlain(t, server, server.Addr(), favours...), newStore(t, server.Addr(), Options{}), newStore(t, server.Addr(), Options{})
	holder, first, second := claim(30*time.Second), claim(30*time.Second), claim(30*time.Second)
	join(t, p.plainStore, "n", holder, lease.Held)
	st, st2 := join(t, s, "n", first, lease.Waiting), join(t, other, "n", second, lease.Waiting)
	q, err := p.Inspect(t.Context(), "n")
	if err != nil || len(q.Holders()) != 1 || len(q.Waiters()) != 2 || q.Waiters()[0].ID != first.ID || q.Last != st2.Ticket {
		t.Errorf("inspect: %+v, %v", q, err)
	}
	leave(t, p.plainStore, "n", holder.ID)
	if got := within(t, time.Second, s, "n", first, st); got.Ticket != st.Ticket {
		t.Errorf("ticket %d, queued with %d", got.Ticket, st.Ticket)
	}
	stays(t, 50*time.Millisecond, other, "n", second, st2.Rev)

	seal := lease.Seal{For: 20 * time.Second, Value: "done"}
	leave(t, s, "n", first.ID)
	got := within(t, time.Second, other, "n", second, st2)
	last := join(t, s, "n", claim(30*time.Second), lease.Waiting)
	if _, err := p.Leave(t.Context(), "n", second.ID, 0, seal); err != nil {
		t.Fatal(err)
	}
	if last.Ticket <= got.Ticket {
		t.Errorf("ticket %d after %d", last.Ticket, got.Ticket)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	q, _ = s.Inspect(ctx, "n")
	told, err := s.Wait(ctx, "n", q.Waiters()[0].ID, last.Rev)
	if err != nil || told.Seal.Value != "done" {
		t.Errorf("told of the seal: %+v, %v", told, err)
	}
}

func TestAPlainReleaseNeedsNoRightToTell(t *testing.T) {
	server := serve(t)
	for _, without := range [][]string{nil, {"-zrange"}} {
		p, s := newPlain(t, server, server.Addr(), without...), newStore(t, server.Addr(), Options{})
		holder, c := claim(time.Second), claim(30*time.Second)
		join(t, p.plainStore, "n", holder, lease.Held)
		st := join(t, s, "n", c, lease.Waiting)
		if st := leave(t, p.plainStore, "n", holder.ID); st.State != lease.Held {
			t.Errorf("left: %+v", st)
		}
		within(t, 2*time.Second, s, "n", c, st)
		leave(t, s, "n", c.ID)
	}
}

// A waiter of the scripts has its ticket since it queued. Whoever passes it has a higher
// one, so it must not get the lock with that afterwards.
func TestWhoIsPassedByAPlainQueuesAnew(t *testing.T) {
	server := serve(t)
	p, s := newPlain(t, server, server.Addr(), favours...), newStore(t, server.Addr(), Options{})
	holder, passes, c := claim(30*time.Second), claim(30*time.Second), claim(30*time.Second)
	join(t, p.plainStore, "n", holder, lease.Held)
	st := join(t, s, "n", c, lease.Waiting)
	mustDo(t, server, "DEL", "lock:n") // nobody is told
	passed := join(t, p.plainStore, "n", passes, lease.Held)
	servertest.Eventually(t, 5*time.Second, "a new place", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		if got, err := s.Wait(ctx, "n", c.ID, st.Rev); err == nil {
			st = got
		}
		return st.Ticket > passed.Ticket
	})
	leave(t, p.plainStore, "n", passes.ID)
	if got := within(t, time.Second, s, "n", c, st); got.Ticket <= passed.Ticket {
		t.Errorf("fence %d after %d", got.Ticket, passed.Ticket)
	}
}

func TestModesAndForeignClientsExcludeEachOther(t *testing.T) {
	server := serve(t)
	p, s := newPlain(t, server, server.Addr()), newStore(t, server.Addr(), Options{})
	var last uint64
	for i := range 10 {
		in, out := p.plainStore, s
		if i%2 == 1 {
			in, out = s, p.plainStore
		}
		c, other := claim(30*time.Second), claim(30*time.Second)
		c.Room = i
		other.NoWait = true
		st := join(t, in, "n", c, lease.Held)
		if st.Ticket-uint64(st.Room) <= last || st.Prev != last && i != 5 {
			t.Errorf("fence %d with room %d and prev %d, after %d", st.Ticket, st.Room, st.Prev, last)
		}
		last = st.Ticket
		if busy := join(t, out, "n", other, lease.Busy); busy.Holder == nil || busy.Holder.ID != c.ID {
			t.Errorf("held by %+v", busy.Holder)
		}
		if v := mustDo(t, server, "SET", "lock:n", "x", "NX", "PX", "1000"); v != nil {
			t.Error("a foreign client got a lock that is held")
		}
		if got := mustDo(t, server, "GET", "lock:n"); got != (lease.Token{ID: c.ID, Ticket: st.Ticket, Owner: c.Owner}).String() {
			t.Errorf("the key has %q", got)
		}
		// A hold can go on, and end, in the other mode.
		ref := driver.Ref{Name: "n", Token: lease.Token{ID: c.ID, Ticket: st.Ticket, Owner: c.Owner}, TTL: time.Minute}
		if o := out.Renew(t.Context(), []driver.Ref{ref})[0]; o.Err != nil || o.State != lease.Held {
			t.Errorf("renewed: %+v", o)
		}
		if st := leave(t, out, "n", c.ID); st.State != lease.Held {
			t.Errorf("left: %+v", st)
		}
		if i == 4 {
			mustDo(t, server, "DEL", s.keys.keys("n", "")[lastKey])
		}
	}
	for _, foreign := range []string{"theirs", ""} {
		mustDo(t, server, "SET", "lock:n", foreign, "PX", "30000")
		c := claim(30 * time.Second)
		st := join(t, p.plainStore, "n", c, lease.Waiting)
		if foreign != "" && (st.Holder == nil || st.Holder.Foreign != foreign) {
			t.Errorf("held by %+v", st.Holder)
		}
		mustDo(t, server, "DEL", "lock:n") // they tell nobody
		within(t, time.Second, p.plainStore, "n", c, st)
		leave(t, p.plainStore, "n", c.ID)
	}
}

// Whoever waits in one process is looked after by one of them.
func TestPlainWaitersOfAProcessCostOnePoller(t *testing.T) {
	server := serve(t)
	r := relay.Start(t, server.Addr())
	holder := newPlain(t, server, server.Addr())
	p := newPlain(t, server, r.Addr())
	join(t, holder.plainStore, "n", claim(30*time.Second), lease.Held)
	ctx, cancel := context.WithCancel(t.Context())
	const waiters = 200
	done := make(chan struct{})
	for range waiters {
		c := claim(30 * time.Second)
		st := join(t, p.plainStore, "n", c, lease.Waiting)
		go func() {
			_, _ = p.Wait(ctx, "n", c.ID, st.Rev)
			done <- struct{}{}
		}()
	}
	before := r.Requests()["WATCH"]
	time.Sleep(500 * time.Millisecond) // not for a condition: this is what is measured
	polls := r.Requests()["WATCH"] - before
	cancel()
	for range waiters {
		<-done
	}
	if polls < 1 || polls > 15 {
		t.Errorf("%d waiters have looked %d times in half a second", waiters, polls)
	}
}

func TestAPlainReleaseWakesTheNextOneInTheProcess(t *testing.T) {
	server := serve(t)
	p := newPlain(t, server, server.Addr())
	const turns = 40 // each would cost 50 ms at least if it were polled for
	claims := make([]lease.Claim, turns)
	sts := make([]lease.Standing, turns)
	claims[0] = claim(30 * time.Second)
	join(t, p.plainStore, "n", claims[0], lease.Held)
	for i := 1; i < turns; i++ {
		claims[i] = claim(30 * time.Second)
		sts[i] = join(t, p.plainStore, "n", claims[i], lease.Waiting)
		if sts[i].Ahead != i || sts[i].Ticket != 0 {
			t.Errorf("%d is behind %d with ticket %d", i, sts[i].Ahead, sts[i].Ticket)
		}
	}
	began := time.Now()
	for i := 1; i < turns; i++ {
		leave(t, p.plainStore, "n", claims[i-1].ID)
		await(t, p.plainStore, "n", claims[i], sts[i], lease.Held)
	}
	if took := time.Since(began); took > (turns-1)*50*time.Millisecond {
		t.Errorf("%d hand-overs took %v", turns-1, took)
	}
}

func TestWithoutTransactionsPlainTouchesNothing(t *testing.T) {
	server := serve(t)
	for _, right := range []string{"multi", "exec", "watch"} {
		p := newPlain(t, server, server.Addr())
		c := claim(30 * time.Second)
		st := join(t, p.plainStore, right, c, lease.Held)
		key := "lock:" + right
		value := mustDo(t, server, "GET", key)
		denied := func(what string, err error) {
			t.Helper()
			var f *driver.Fault
			if !errors.As(err, &f) || f.Kind != driver.Denied || !strings.Contains(err.Error(), "+multi, +exec, +watch") {
				t.Errorf("%s without %s: %v", what, right, err)
			}
		}
		mustDo(t, server, "ACL", "SETUSER", "plain", "-"+right)
		_, err := p.Join(t.Context(), right, c)
		denied("join", err)
		_, err = p.Join(t.Context(), "free", c)
		denied("join", err)
		ref := driver.Ref{Name: right, Token: lease.Token{ID: c.ID, Ticket: st.Ticket, Owner: c.Owner}, TTL: time.Hour}
		for _, o := range p.Renew(t.Context(), []driver.Ref{ref, ref}) {
			denied("renew", o.Err)
		}
		_, err = p.Leave(t.Context(), right, c.ID, 0, lease.Seal{For: time.Minute})
		denied("leave", err)
		if right != "watch" {
			_, err = p.Inspect(t.Context(), right)
			denied("inspect", err)
		}
		if got := mustDo(t, server, "GET", key); got != value {
			t.Errorf("without %s the key has %v, had %v", right, got, value)
		}
		if left := mustDo(t, server, "PTTL", key).(int64); left > 30_000 {
			t.Errorf("without %s the lease was renewed: %d ms", right, left)
		}
		// What was begun on a connection is not left open for the next one who gets it.
		mustDo(t, server, "ACL", "SETUSER", "plain", "+"+right)
		for range 20 {
			if got, err := p.client.Get(t.Context(), key).Result(); err != nil || got != value {
				t.Errorf("the program's own GET: %q, %v", got, err)
			}
		}
		leave(t, p.plainStore, right, c.ID)
	}
}

func TestAStoreWhoseScriptsAreRefusedSaysWhatToDo(t *testing.T) {
	denied := serve(t)
	renamed := servertest.Redis(t, servertest.RedisConfig{Lines: []string{`rename-command EVALSHA ""`, `rename-command EVAL ""`}})
	for what, test := range map[string]struct {
		s    *Store
		kind driver.Kind
	}{
		"no right to EVALSHA": {as(t, denied, "a", "~*", "&*", "+@all", "-evalsha"), driver.Denied},
		"no right to EVAL":    {as(t, denied, "b", "~*", "&*", "+@all", "-eval"), driver.Denied},
		"no EVALSHA":          {newStore(t, renamed.Addr(), Options{}), driver.Refused},
	} {
		_, err := test.s.Join(t.Context(), "n", claim(time.Second))
		var f *driver.Fault
		if !errors.As(err, &f) || f.Kind != test.kind || !strings.Contains(err.Error(), "NewPlain") || !strings.Contains(err.Error(), "+eval and +evalsha") {
			t.Errorf("%s: %v", what, err)
		}
		mustDo(t, denied, "SCRIPT", "FLUSH")
	}
	// A key that may not be used is another matter.
	if _, err := as(t, denied, "c", "~other:*", "+@all").Join(t.Context(), "n", claim(time.Second)); err == nil || strings.Contains(err.Error(), "NewPlain") {
		t.Errorf("no such key: %v", err)
	}
	p := plainWith(t, &redis.Options{Addr: renamed.Addr()})
	join(t, p.plainStore, "n", claim(time.Second), lease.Held)
}

// The server takes nothing into a transaction then. That must look like no answer, and not
// like a lock that is lost or was released.
func TestPlainWhereMemoryIsFull(t *testing.T) {
	server := serve(t)
	p := newPlain(t, server, server.Addr())
	c := claim(30 * time.Second)
	st := join(t, p.plainStore, "n", c, lease.Held)
	mustDo(t, server, "CONFIG", "SET", "maxmemory", "1")
	full := func(err error) {
		t.Helper()
		var f *driver.Fault
		if !errors.As(err, &f) || f.Kind != driver.Unavailable || serverCode(err) != "OOM" {
			t.Errorf("error %v, want OOM", err)
		}
	}
	token := lease.Token{ID: c.ID, Ticket: st.Ticket, Owner: c.Owner}
	full(p.Renew(t.Context(), []driver.Ref{{Name: "n", Token: token, TTL: time.Minute}})[0].Err)
	_, err := p.Join(t.Context(), "m", claim(30*time.Second))
	full(err)
	seal := lease.Seal{For: time.Minute, Value: "v"}
	_, err = p.Leave(t.Context(), "n", c.ID, 0, seal)
	full(err)
	mustDo(t, server, "CONFIG", "SET", "maxmemory", "0")
	if st, err := p.Leave(t.Context(), "n", c.ID, 0, seal); err != nil || st.State != lease.Held {
		t.Errorf("left: %+v, %v", st, err)
	}
	if q, err := p.Inspect(t.Context(), "n"); err != nil || q.Seal().Value != "v" {
		t.Errorf("sealed: %+v, %v", q.Seal(), err)
	}
}

// The seal of a break lasts for what is left of the victim's lease, whoever breaks it and
// whatever he asks for, or until the victim answers.
func TestAPlainBreakClosesTheNameForTheLeaseThatIsLeft(t *testing.T) {
	server := serve(t)
	p, op, s := newPlain(t, server, server.Addr()), newPlain(t, server, server.Addr()), newStore(t, server.Addr(), Options{})
	for _, asked := range []time.Duration{time.Second, time.Hour} {
		victim, other := claim(30*time.Second), claim(30*time.Second)
		other.NoWait = true
		join(t, p.plainStore, "n", victim, lease.Held)
		if _, err := op.Leave(t.Context(), "n", victim.ID, 0, lease.Seal{Victim: victim.ID, By: "ops", For: asked}); err != nil {
			t.Fatal(err)
		}
		for _, s := range []*Store{s, op.plainStore} {
			if st := join(t, s, "n", other, lease.Busy); st.Seal.For <= 20*time.Second || st.Seal.For > victim.TTL || st.Seal.Victim != victim.ID {
				t.Errorf("asked for %v, sealed: %+v", asked, st.Seal)
			}
		}
		if st := leave(t, p.plainStore, "n", victim.ID); st.State != lease.Gone || st.Seal.Closed() {
			t.Errorf("the victim has answered: %+v", st)
		}
		join(t, s, "n", other, lease.Held)
		leave(t, s, "n", other.ID)
	}
}

func TestPlainGivesAnEndToALockThatLostIt(t *testing.T) {
	server := serve(t)
	p := newPlain(t, server, server.Addr())
	c := claim(30 * time.Second)
	join(t, p.plainStore, "n", c, lease.Held)
	mustDo(t, server, "PERSIST", "lock:n")
	if st := join(t, p.plainStore, "n", c, lease.Held); st.Lease != c.TTL {
		t.Errorf("joined again: %+v", st)
	}
	allExpire(t, server)
}

func TestNamesOfBothModesAreListedTogether(t *testing.T) {
	server := serve(t)
	p, s := newPlain(t, server, server.Addr()), newStore(t, server.Addr(), Options{})
	join(t, p.plainStore, "a", claim(30*time.Second), lease.Held)
	join(t, s, "b", claim(30*time.Second), lease.Held)
	for _, s := range []*Store{p.plainStore, s} {
		servertest.Eventually(t, 5*time.Second, "both names", func() bool { return slices.Equal(names(t, s, ""), []string{"a", "b"}) })
	}
}

func TestPlainFeatures(t *testing.T) {
	f := newPlain(t, serve(t), "127.0.0.1:1").Features()
	if err := f.Covers(driver.Features{Fence: true, Seal: true, Modes: []lease.Mode{lease.Exclusive}}); err != nil {
		t.Error(err)
	}
	if err := f.Covers(driver.Features{FIFO: true}); err == nil {
		t.Error("first come, first served is promised")
	}
}
