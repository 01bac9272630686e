//go:build unix

package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/internal/servertest"
	"github.com/redlatch/redlatch/lease"
)

func TestScriptsAreSentAgainToAServerThatLostThem(t *testing.T) {
	server := serve(t)
	s := newStore(t, server.Addr(), Options{})
	flush := func() { mustDo(t, server, "SCRIPT", "FLUSH") }
	c := claim(30 * time.Second)
	var refs []driver.Ref
	for _, vote := range []bool{false, true} {
		flush()
		c.ID, c.Vote = lease.NewID(), vote
		name := fmt.Sprint("n", vote)
		st := join(t, s, name, c, lease.Held)
		if vote != (st.Node.ID != "") {
			t.Errorf("vote %v: node %+v", vote, st.Node)
		}
		refs = append(refs, driver.Ref{Name: name, Token: lease.Token{ID: c.ID, Ticket: st.Ticket, Owner: c.Owner}, TTL: c.TTL})
	}
	flush()
	for _, out := range s.Renew(t.Context(), refs) {
		if out.Err != nil || out.State != lease.Held {
			t.Errorf("renew: %+v", out)
		}
	}
	flush()
	if _, err := s.Inspect(t.Context(), "ntrue"); err != nil {
		t.Error(err)
	}
	flush()
	if st := leave(t, s, "ntrue", c.ID); st.State != lease.Held {
		t.Errorf("left: %+v", st)
	}
}

func TestACallToAStoppedServerEndsWithItsContext(t *testing.T) {
	eachMode(t, func(t *testing.T, server *servertest.RedisServer, s *Store) {
		warm := claim(30 * time.Second)
		st := join(t, s, "warm", warm, lease.Held)
		bounded := func(what string, f func(ctx context.Context) error) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			began := time.Now()
			err := f(ctx)
			if took := time.Since(began); took > 150*time.Millisecond || err == nil {
				t.Errorf("%s: %v after %v", what, err, took)
			}
		}
		c := claim(30 * time.Second)
		server.Stop()
		bounded("join", func(ctx context.Context) error { _, err := s.Join(ctx, "n", c); return err })
		bounded("renew", func(ctx context.Context) error {
			return s.Renew(ctx, []driver.Ref{{Name: "warm", Token: lease.Token{ID: warm.ID, Ticket: st.Ticket}, TTL: time.Second}})[0].Err
		})
		bounded("wait", func(ctx context.Context) error { _, err := s.Wait(ctx, "n", c.ID, 0); return err })
		bounded("inspect", func(ctx context.Context) error { _, err := s.Inspect(ctx, "n"); return err })
		bounded("node", func(ctx context.Context) error { _, err := s.Node(ctx); return err })
		bounded("names", func(ctx context.Context) error {
			for _, err := range s.Names(ctx, "") {
				return err
			}
			return nil
		})
		left := make(chan error, 1)
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			_, err := s.Leave(ctx, "n", c.ID, 0, lease.Seal{})
			left <- err
		}()
		time.Sleep(50 * time.Millisecond)
		server.Continue()
		if err := <-left; err != nil {
			t.Error(err)
		}
		time.Sleep(200 * time.Millisecond)
		if v := mustDo(t, server, "GET", "lock:n"); v != nil {
			t.Errorf("the abandoned join holds the lock: %v", v)
		}
	})
}

func TestFencesGrowWhenTheCounterIsLost(t *testing.T) {
	eachMode(t, func(t *testing.T, server *servertest.RedisServer, s *Store) {
		last := uint64(0)
		for i := range 50 {
			c := claim(30 * time.Second)
			c.Room = i % 5
			st := join(t, s, "n", c, lease.Held)
			if st.Ticket-uint64(st.Room) <= last {
				t.Fatalf("ticket %d with room for %d after %d", st.Ticket, st.Room, last)
			}
			last = st.Ticket
			leave(t, s, "n", c.ID)
			if i%10 == 9 {
				mustDo(t, server, "DEL", s.keys.keys("n", "")[3])
			}
		}
	})
}

// Somebody has written over the counter. It is as if it were lost, and only once.
func TestFencesGrowWhenTheCounterIsDamaged(t *testing.T) {
	eachMode(t, func(t *testing.T, server *servertest.RedisServer, s *Store) {
		other := newStore(t, server.Addr(), Options{})
		counter := s.keys.keys("n", "")[lastKey]
		var fence uint64
		for _, damage := range []string{
			"garbage", "", "-5", "nan", "inf", "1e300", "1.5", " 7", "0x10", "9007199254740990", "9007199254740991", "9007199254740992",
			"18446744073709551615", "99999999999999999999999",
		} {
			grows := func(what string, st lease.Standing) {
				t.Helper()
				if st.Ticket-uint64(st.Room) <= fence || st.Ticket > lease.MaxTicket-1<<50 {
					t.Errorf("with the counter %q: ticket %d with room for %d %s, after %d", damage, st.Ticket, st.Room, what, fence)
				}
				fence = st.Ticket
			}
			for range 2 {
				mustDo(t, server, "SET", counter, damage)
				c := claim(30 * time.Second)
				c.Room = 3
				st := join(t, s, "n", c, lease.Held)
				grows("at once", st)
				if got := mustDo(t, server, "GET", counter); got != fmt.Sprint(st.Ticket) {
					t.Errorf("the counter %q is %v after ticket %d", damage, got, st.Ticket)
				}
				mustDo(t, server, "SET", counter, damage)
				ref := driver.Ref{Name: "n", Token: lease.Token{ID: c.ID, Ticket: st.Ticket, Owner: c.Owner}, TTL: c.TTL, Fence: st.Ticket + 10}
				if out := s.Renew(t.Context(), []driver.Ref{ref})[0]; out.Err != nil || out.State != lease.Held {
					t.Errorf("with the counter %q: renewed: %+v", damage, out)
				}
				fence += 10
				if q, err := s.Inspect(t.Context(), "n"); err != nil || q.Last != fence {
					t.Errorf("with the counter %q: inspect: %d, %v, want %d", damage, q.Last, err, fence)
				}
				waits := claim(30 * time.Second)
				grows("in the queue", join(t, other, "n", waits, lease.Waiting))
				leave(t, other, "n", waits.ID)
				leave(t, s, "n", c.ID)
			}
		}
	})
}

func TestFencesGrowWhenTheServersClockIsBehindThem(t *testing.T) {
	eachMode(t, func(t *testing.T, server *servertest.RedisServer, s *Store) {
		ahead := uint64(time.Now().Add(time.Hour).UnixMicro())
		c := claim(30 * time.Second)
		c.Fence = ahead
		if st := join(t, s, "n", c, lease.Held); st.Ticket != ahead {
			t.Errorf("proposed %d, got %d", ahead, st.Ticket)
		}
		token := lease.Token{ID: c.ID, Ticket: ahead, Owner: c.Owner}
		out := s.Renew(t.Context(), []driver.Ref{{Name: "n", Token: token, TTL: c.TTL, Fence: ahead + 1000}})
		if out[0].State != lease.Held {
			t.Fatalf("renew: %+v", out[0])
		}
		leave(t, s, "n", c.ID)
		c = claim(30 * time.Second)
		c.Room = 10
		if st := join(t, s, "n", c, lease.Held); st.Ticket != ahead+1001 || st.Room != 0 || st.Prev != ahead+1000 {
			t.Errorf("after %d: %+v", ahead+1000, st)
		}
		leave(t, s, "n", c.ID)
		if st := join(t, s, "n", claim(time.Second), lease.Held); st.Ticket != ahead+1002 {
			t.Errorf("after %d: %+v", ahead+1001, st)
		}
	})
}

func TestARenewalNeverShortensAndNeverRevives(t *testing.T) {
	eachMode(t, func(t *testing.T, server *servertest.RedisServer, s *Store) {
		c := claim(time.Minute)
		st := join(t, s, "n", c, lease.Held)
		ref := driver.Ref{Name: "n", Token: lease.Token{ID: c.ID, Ticket: st.Ticket, Owner: c.Owner}, TTL: time.Second}
		if out := s.Renew(t.Context(), []driver.Ref{ref}); out[0].Lease < 59*time.Second {
			t.Errorf("shortened: %+v", out[0])
		}
		short := c
		short.TTL = time.Second
		if st := join(t, s, "n", short, lease.Held); st.Lease < 59*time.Second {
			t.Errorf("shortened by a join: %+v", st)
		}
		// What belongs to the name lives an hour longer than the lock, and is pushed with it.
		outlives := func(lock time.Duration) {
			t.Helper()
			if ms := mustDo(t, server, "PTTL", s.keys.keys("n", "")[lastKey]).(int64); ms < (time.Hour + lock - 5*time.Second).Milliseconds() {
				t.Errorf("the lock lives for %v, its highest ticket for %d ms", lock, ms)
			}
		}
		outlives(time.Minute)
		longer := ref
		longer.TTL = 10 * time.Minute
		s.Renew(t.Context(), []driver.Ref{longer})
		outlives(longer.TTL)
		stale := ref
		stale.Token.Ticket--
		if out := s.Renew(t.Context(), []driver.Ref{stale}); out[0].State != lease.Gone {
			t.Errorf("another ticket: %+v", out[0])
		}
		mustDo(t, server, "DEL", "lock:n")
		if out := s.Renew(t.Context(), []driver.Ref{ref}); out[0].State != lease.Gone {
			t.Errorf("revived: %+v", out[0])
		}
		if v := mustDo(t, server, "GET", "lock:n"); v != nil {
			t.Errorf("revived: %v", v)
		}
	})
}

func TestForeignHolders(t *testing.T) {
	server := serve(t)
	s := newStore(t, server.Addr(), Options{})
	mustDo(t, server, "SET", "lock:endless", "\x00theirs")
	c := claim(30 * time.Second)
	st := join(t, s, "endless", c, lease.Waiting)
	if st.Holder == nil || st.Holder.Foreign != "\x00theirs" || st.Left != 0 {
		t.Errorf("holder %+v, left %v", st.Holder, st.Left)
	}
	mine := claim(time.Minute)
	join(t, s, "mine", mine, lease.Held)
	if q, err := s.Inspect(t.Context(), "mine"); err != nil || q.Claims[0].TTL != 0 || q.Claims[0].Expires.Sub(q.Now) <= 50*time.Second {
		t.Errorf("how long the lease is was not kept: %+v, %v", q, err)
	}
	q, err := s.Inspect(t.Context(), "endless")
	if err != nil || len(q.Claims) != 2 || q.Claims[0].Foreign != "\x00theirs" || !q.Claims[0].Held() || !q.Claims[0].Expires.IsZero() {
		t.Errorf("inspect: %+v, %v", q, err)
	}
	if st := leave(t, s, "endless", lease.NewID()); st.Holder == nil {
		t.Errorf("left: %+v", st)
	}
	go func() {
		time.Sleep(100 * time.Millisecond)
		_, _ = server.Do("DEL", "lock:endless") // they tell nobody
	}()
	within(t, time.Second, s, "endless", c, st)
	if v, _ := server.Do("SET", "lock:endless", "x", "NX"); v != nil {
		t.Errorf("a foreign client got a lock that is held: %v", v)
	}
}

// SET lock:n "" is another program's lock as much as any.
func TestAnEmptyValueIsAHolder(t *testing.T) {
	eachMode(t, func(t *testing.T, server *servertest.RedisServer, s *Store) {
		other := func(what string, h *lease.Holder, left time.Duration) {
			t.Helper()
			if h == nil || h.ID != "" || h.Foreign != `""` || left <= 25*time.Second || left > 30*time.Second {
				t.Errorf("%s: held by %+v for %v", what, h, left)
			}
		}
		mine := claim(30 * time.Second)
		held := join(t, s, "n", mine, lease.Held)
		mustDo(t, server, "SET", "lock:n", "", "PX", "30000")
		ref := driver.Ref{Name: "n", Token: lease.Token{ID: mine.ID, Ticket: held.Ticket, Owner: mine.Owner}, TTL: time.Minute}
		out := s.Renew(t.Context(), []driver.Ref{ref})[0]
		if out.Err != nil || out.State != lease.Gone {
			t.Errorf("renewed: %+v", out)
		}
		other("renew", out.Holder, out.Left)
		st := leave(t, s, "n", mine.ID)
		other("leave", st.Holder, st.Left)
		try := claim(30 * time.Second)
		try.NoWait = true
		st = join(t, s, "n", try, lease.Busy)
		other("busy", st.Holder, st.Left)
		waits := claim(30 * time.Second)
		st = join(t, s, "n", waits, lease.Waiting)
		other("waiting", st.Holder, st.Left)
		if st.Ahead != 1 {
			t.Errorf("%d are ahead", st.Ahead)
		}
		q, err := s.Inspect(t.Context(), "n")
		if err != nil || len(q.Holders()) != 1 {
			t.Fatalf("inspect: %+v, %v", q, err)
		}
		other("inspect", q.Holders()[0].Holder(), q.Holders()[0].Expires.Sub(q.Now))
		mustDo(t, server, "DEL", "lock:n") // they tell nobody
		within(t, time.Second, s, "n", waits, st)
		leave(t, s, "n", waits.ID)
		if q, err := s.Inspect(t.Context(), "n"); err != nil || len(q.Claims) != 0 {
			t.Errorf("inspect of a free name: %+v, %v", q, err)
		}
	})
}

// A hold that a newer release has overwritten is gone, and its holder is told at once: the
// lock is somebody's whom this release cannot read, and not out of reach.
func TestAHoldThatANewerReleaseTookIsGone(t *testing.T) {
	eachMode(t, func(t *testing.T, server *servertest.RedisServer, s *Store) {
		c := claim(30 * time.Second)
		held := join(t, s, "n", c, lease.Held)
		newer := lease.NewID() + ".2.what.ever"
		mustDo(t, server, "SET", "lock:n", newer, "PX", "30000")
		gone := func(what string, st lease.Standing, err error) {
			t.Helper()
			if err != nil || st.State != lease.Gone || st.Holder == nil || st.Holder.ID != "" || st.Holder.Foreign != newer ||
				!strings.Contains(st.Holder.Owner.Name, "newer redlatch") {
				t.Errorf("%s: %+v by %+v, %v", what, st, st.Holder, err)
			}
		}
		ref := driver.Ref{Name: "n", Token: lease.Token{ID: c.ID, Ticket: held.Ticket, Owner: c.Owner}, TTL: time.Minute}
		out := s.Renew(t.Context(), []driver.Ref{ref})[0]
		gone("renewed", out.Standing, out.Err)
		st, err := s.Leave(t.Context(), "n", c.ID, 0, lease.Seal{})
		gone("left", st, err)
		if _, err := s.Join(t.Context(), "n", claim(30*time.Second)); !errors.Is(err, lease.ErrNewer) {
			t.Errorf("joined: %v", err)
		}
		if _, err := s.Inspect(t.Context(), "n"); !errors.Is(err, lease.ErrNewer) {
			t.Errorf("inspect: %v", err)
		}
		if v := mustDo(t, server, "GET", "lock:n"); v != newer {
			t.Errorf("the key has %v", v)
		}
	})
}

func TestASealTellsEverybodyAndClosesTheName(t *testing.T) {
	server := serve(t)
	a, b := newStore(t, server.Addr(), Options{}), newStore(t, server.Addr(), Options{})
	holder, c := claim(30*time.Second), claim(30*time.Second)
	join(t, a, "n", holder, lease.Held)
	st := join(t, b, "n", c, lease.Waiting)
	seal := lease.Seal{For: 700 * time.Millisecond, Value: "done\n\x00%"}
	if _, err := a.Leave(t.Context(), "n", holder.ID, 0, seal); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	told, err := b.Wait(t.Context(), "n", c.ID, st.Rev)
	if err != nil || told.State != lease.Waiting || told.Seal.Value != seal.Value || time.Since(began) > 500*time.Millisecond {
		t.Errorf("told after %v: %+v, %v", time.Since(began), told, err)
	}
	late := claim(time.Second)
	late.OnSeal = lease.SealFail
	if st := join(t, a, "n", late, lease.Busy); st.Seal.Value != seal.Value {
		t.Errorf("sealed: %+v", st)
	}
	within(t, 1500*time.Millisecond, b, "n", c, told)
	if took := time.Since(began); took < 600*time.Millisecond {
		t.Errorf("granted after %v, sealed for %v", took, seal.For)
	}
}

func TestABreakKeepsTheNameClosedUntilTheVictimAnswers(t *testing.T) {
	server := serve(t)
	a, b, op := newStore(t, server.Addr(), Options{}), newStore(t, server.Addr(), Options{}), newStore(t, server.Addr(), Options{})
	victim, c := claim(30*time.Second), claim(30*time.Second)
	held := join(t, a, "n", victim, lease.Held)
	st := join(t, b, "n", c, lease.Waiting)
	seal := lease.Seal{For: time.Second, Victim: victim.ID, By: "ops@desk", Reason: "stuck"}
	if st, err := op.Leave(t.Context(), "n", victim.ID, 0, seal); err != nil || st.State != lease.Held {
		t.Fatalf("break: %+v, %v", st, err)
	}
	stays(t, 200*time.Millisecond, b, "n", c, st.Rev)
	out := a.Renew(t.Context(), []driver.Ref{{Name: "n", Token: lease.Token{ID: victim.ID, Ticket: held.Ticket, Owner: victim.Owner}, TTL: time.Minute}})
	if o := out[0]; o.Err != nil || o.State != lease.Gone || o.Seal.Victim != victim.ID || o.Seal.By != seal.By || o.Seal.Reason != seal.Reason ||
		o.Seal.For < 25*time.Second || o.Seal.For > 30*time.Second {
		t.Errorf("the victim renews: %+v", o)
	}
	// The same break again is no answer of the victim.
	if _, err := op.Leave(t.Context(), "n", victim.ID, 0, seal); err != nil {
		t.Fatal(err)
	}
	stays(t, 200*time.Millisecond, b, "n", c, st.Rev)
	leave(t, a, "n", victim.ID)
	within(t, time.Second, b, "n", c, st)
}

func TestAWaiterThatIsBrokenLearnsItAtOnce(t *testing.T) {
	server := serve(t)
	a, b, op := newStore(t, server.Addr(), Options{}), newStore(t, server.Addr(), Options{}), newStore(t, server.Addr(), Options{})
	join(t, a, "n", claim(time.Minute), lease.Held)
	c := claim(time.Minute)
	st := join(t, b, "n", c, lease.Waiting)
	done := make(chan error, 1)
	go func() {
		got, err := b.Wait(t.Context(), "n", c.ID, st.Rev)
		if err == nil && got.State != lease.Gone {
			err = fmt.Errorf("the broken claim is %v", got.State)
		}
		done <- err
	}()
	if _, err := op.Leave(t.Context(), "n", c.ID, 0, lease.Seal{Victim: c.ID, By: "ops"}); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(5 * time.Second):
		t.Error("it waits on")
	}
}

// A process that holds something for a while listens, and hears that it was broken; who
// holds for a moment needs no second connection.
func TestAHolderListensForABreak(t *testing.T) {
	server := serve(t)
	a, op := newStore(t, server.Addr(), Options{}), newStore(t, server.Addr(), Options{})
	told := make(chan driver.Notice, 1)
	defer a.Notify(func(n driver.Notice) { told <- n })()
	short := claim(time.Minute)
	join(t, a, "short", short, lease.Held)
	leave(t, a, "short", short.ID)
	time.Sleep(indexPause + 100*time.Millisecond) // for as long, nothing happens
	if a.inbox.subscription().id != 0 {
		t.Error("a hold of a moment has made the process subscribe")
	}
	c := claim(time.Minute)
	join(t, a, "n", c, lease.Held)
	servertest.Eventually(t, 5*time.Second, "the holder listens", func() bool { return a.inbox.subscription().id != 0 })
	if _, err := op.Leave(t.Context(), "n", c.ID, 0, lease.Seal{Victim: c.ID, By: "ops", Reason: "why"}); err != nil {
		t.Fatal(err)
	}
	select {
	case n := <-told:
		if n.Name != "n" || n.ID != c.ID || n.Seal.By != "ops" || n.Seal.Reason != "why" {
			t.Errorf("told %+v", n)
		}
	case <-time.After(5 * time.Second):
		t.Error("told nothing")
	}
}

func TestNamesListsWhatIsHeldAndAwaited(t *testing.T) {
	server := serve(t)
	a, b := newStore(t, server.Addr(), Options{}), newStore(t, server.Addr(), Options{})
	held := []string{"a/1", "a/2", "b/1"}
	ids := make(map[string]string)
	for _, name := range held {
		c := claim(30 * time.Second)
		ids[name] = c.ID
		join(t, a, name, c, lease.Held)
	}
	join(t, b, "a/1", claim(30*time.Second), lease.Waiting)
	until := func(prefix string, want ...string) {
		t.Helper()
		servertest.Eventually(t, 2*time.Second, fmt.Sprintf("the names %q", want), func() bool { return slices.Equal(names(t, b, prefix), want) })
	}
	until("", held...)
	until("a/", "a/1", "a/2")
	leave(t, a, "a/2", ids["a/2"])
	until("", "a/1", "b/1")
	mustDo(t, server, "FLUSHALL")
	until("")
}

func names(t *testing.T, s *Store, prefix string) (all []string) {
	t.Helper()
	for name, err := range s.Names(t.Context(), prefix) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, name)
	}
	return all
}

func TestTwoDatabasesDoNotMix(t *testing.T) {
	server := serve(t)
	one := storeWith(t, &redis.Options{Addr: server.Addr(), DB: 1}, Options{})
	two := storeWith(t, &redis.Options{Addr: server.Addr(), DB: 2}, Options{})
	wait1, wait2 := claim(30*time.Second), claim(30*time.Second)
	holder := claim(30 * time.Second)
	join(t, one, "n", holder, lease.Held)
	join(t, two, "n", claim(30*time.Second), lease.Held)
	st1, st2 := join(t, one, "n", wait1, lease.Waiting), join(t, two, "n", wait2, lease.Waiting)
	leave(t, one, "n", holder.ID)
	within(t, time.Second, one, "n", wait1, st1)
	stays(t, 200*time.Millisecond, two, "n", wait2, st2.Rev)
}

func TestTheTokenIsTheKeysValue(t *testing.T) {
	server := serve(t)
	s := newStore(t, server.Addr(), Options{NoPrefix: true})
	c := claim(30 * time.Second)
	c.Owner.Note = "spaces, %, \n and é"
	st := join(t, s, "n", c, lease.Held)
	want := lease.Token{ID: c.ID, Ticket: st.Ticket, Owner: c.Owner}.String()
	if v := mustDo(t, server, "GET", "n"); v != want || strings.ContainsAny(want, " \n") {
		t.Errorf("%q, want %q", v, want)
	}
}

func TestANodeIsOneRunOfAServer(t *testing.T) {
	server := serve(t, "--appendonly", "yes", "--appendfsync", "always")
	s := newStore(t, server.Addr(), Options{})
	first, err := s.Node(t.Context())
	if err != nil || first.ID == "" || !first.Durable || time.Since(first.Clock).Abs() > time.Second || first.Uptime > time.Minute {
		t.Fatalf("%+v, %v", first, err)
	}
	server.Restart("--appendfsync", "everysec")
	second, err := s.Node(t.Context())
	if err != nil || second.ID == first.ID || second.Durable {
		t.Errorf("%+v after %+v, %v", second, first, err)
	}
}

func TestTheSameJoinAgainIsTheSameClaim(t *testing.T) {
	server := serve(t)
	a, b := newStore(t, server.Addr(), Options{}), newStore(t, server.Addr(), Options{})
	c, d := claim(30*time.Second), claim(30*time.Second)
	c.Room, d.Room = 7, 8
	st := join(t, a, "n", c, lease.Held)
	if again := join(t, a, "n", c, lease.Held); again.Ticket != st.Ticket || again.Room != 7 {
		t.Errorf("held %+v, again %+v", st, again)
	}
	waiting := join(t, b, "n", d, lease.Waiting)
	if again := join(t, b, "n", d, lease.Waiting); again.Ticket != waiting.Ticket || again.Room != 8 || again.Ahead != 1 {
		t.Errorf("waiting %+v, again %+v", waiting, again)
	}
	leave(t, a, "n", c.ID)
	if got := within(t, time.Second, b, "n", d, waiting); got.Room != 8 {
		t.Errorf("granted with room for %d", got.Room)
	}
	if again := join(t, b, "n", d, lease.Held); again.Lease != d.TTL || again.Ticket != waiting.Ticket {
		t.Errorf("confirmed: %+v", again)
	}
}

func TestWhoIsInTheWayIsNamedWhileAPollerIsOnItsWay(t *testing.T) {
	server := serve(t)
	a, b := newStore(t, server.Addr(), Options{}), newStore(t, server.Addr(), Options{Poll: true})
	c, d, e := claim(30*time.Second), claim(30*time.Second), claim(30*time.Second)
	e.NoWait = true
	join(t, a, "n", c, lease.Held)
	join(t, b, "n", d, lease.Waiting)
	leave(t, a, "n", c.ID)
	if st := join(t, a, "n", e, lease.Busy); st.Holder == nil || st.Holder.ID != d.ID {
		t.Errorf("in the way: %+v", st.Holder)
	}
}

func TestMoreWaitersThanAllowed(t *testing.T) {
	server := serve(t)
	s := newStore(t, server.Addr(), Options{})
	join(t, s, "n", claim(30*time.Second), lease.Held)
	for i := range 3 {
		c := claim(30 * time.Second)
		c.MaxWaiters = 2
		_, err := s.Join(t.Context(), "n", c)
		var f *driver.Fault
		if full := errors.Is(err, lease.ErrQueueFull) && !errors.As(err, &f); full != (i == 2) {
			t.Errorf("waiter %d: %v", i, err)
		}
	}
}

func TestAHoldThatGoesOnHereIsListed(t *testing.T) {
	server := serve(t)
	a, b := newStore(t, server.Addr(), Options{}), newStore(t, server.Addr(), Options{})
	c := claim(30 * time.Second)
	st := join(t, a, "n", c, lease.Held)
	a.Close()
	b.Renew(t.Context(), []driver.Ref{{Name: "n", Token: lease.Token{ID: c.ID, Ticket: st.Ticket, Owner: c.Owner}, TTL: time.Minute}})
	mustDo(t, server, "DEL", a.keys.record(a.process))
	servertest.Eventually(t, 2*time.Second, "its name", func() bool { return slices.Equal(names(t, a, ""), []string{"n"}) })
}

func TestAForeignHolderWithALeaseIsLookedAfterToo(t *testing.T) {
	server := serve(t)
	s := newStore(t, server.Addr(), Options{})
	mustDo(t, server, "SET", "lock:n", "theirs", "PX", "30000")
	c := claim(30 * time.Second)
	st := join(t, s, "n", c, lease.Waiting)
	mustDo(t, server, "DEL", "lock:n") // they tell nobody
	within(t, time.Second, s, "n", c, st)
}
