//go:build unix

package cases

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/relay"
	"github.com/redlatch/redlatch/internal/servertest"
	"github.com/redlatch/redlatch/lease"
)

func TestTTL01TheStoredLeaseIsTheAskedOne(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		l := p.process(t, "a")
		for _, ttl := range []time.Duration{time.Second, 1200 * time.Millisecond, 900 * time.Millisecond, 1999 * time.Millisecond} {
			for range 5 {
				before := storeTime(t, l)
				held := take(t, l, "ttl01", redlatch.Options{TTL: ttl, NoRenew: true})
				q, err := l.Inspect(t.Context(), "ttl01")
				if err != nil || len(q.Holders()) != 1 {
					t.Fatalf("inspect: %+v, %v", q, err)
				}
				// By the store's own clock: how long the calls took is not part of it. Each of the
				// readings is rounded to the millisecond.
				given := q.Holders()[0].Expires
				if given.Before(before.Add(ttl-2*time.Millisecond)) || given.After(q.Now.Add(ttl+2*time.Millisecond)) {
					t.Errorf("asked for %v between %v and %v, got it until %v", ttl, before, q.Now, given)
				}
				giveBack(t, held)
			}
		}
	})
}

func storeTime(t *testing.T, l *redlatch.Locker) time.Time {
	t.Helper()
	q, err := l.Inspect(t.Context(), "nobody")
	if err != nil {
		t.Fatal(err)
	}
	return q.Now
}

func TestTTL01NobodyElseComesBeforeTheLeaseIsOver(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		a, b := p.process(t, "a"), p.process(t, "b")
		for _, ttl := range []time.Duration{300 * time.Millisecond, 301 * time.Millisecond, 199 * time.Millisecond} {
			sent := time.Now()
			first := take(t, a, "ttl01", redlatch.Options{TTL: ttl, NoRenew: true})
			second := take(t, b, "ttl01", redlatch.Options{})
			// Redis counts in milliseconds from the beginning of the one in which the call came.
			if after := time.Since(sent); after < ttl-time.Millisecond {
				t.Errorf("a lease of %v was over after %v", ttl, after)
			}
			if first.Valid() {
				t.Error("two hold it")
			}
			_ = first.Unlock()
			giveBack(t, second)
		}
	})
}

func TestTTL02TooShortALeaseIsRefusedBeforeAnythingIsSent(t *testing.T) {
	t.Parallel()
	p := onRedis(t)
	l := p.process(t, "a")
	m := watch(t, p.server)
	held := take(t, l, "held", redlatch.Options{TTL: long})
	before := len(m.seen(`"EVAL`, "lock:held"))
	if before == 0 {
		t.Error("the monitor does not see calls: this proves nothing")
	}
	for _, ttl := range []time.Duration{500 * time.Microsecond, 999 * time.Microsecond, 1, -time.Millisecond, -1, 9 * time.Millisecond} {
		_, err := l.Lock(t.Context(), "ttl02", redlatch.Options{TTL: ttl})
		mustBe(t, err, redlatch.ErrInvalid)
		_, err = l.TryLock(t.Context(), "ttl02", redlatch.Options{TTL: ttl})
		mustBe(t, err, redlatch.ErrInvalid)
		mustBe(t, held.Renew(t.Context(), ttl), redlatch.ErrInvalid)
		_, err = l.Resume(t.Context(), "held", held.Token(), redlatch.Options{TTL: ttl})
		mustBe(t, err, redlatch.ErrInvalid)
	}
	if after := append(m.seen(`"EVAL`, "lock:held"), m.seen("ttl02")...); len(after) != before {
		t.Errorf("sent: %q", after)
	}
	if v := p.value(t, "held"); v != held.Token() {
		t.Errorf("the held one's key has %q", v)
	}
}

func TestTTL05TheDefaultIsForWhoSaysNothing(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		l := p.process(t, "a")
		for _, tt := range []struct{ asked, given time.Duration }{
			{0, redlatch.DefaultTTL},
			{20 * time.Minute, 20 * time.Minute},
			{redlatch.MaxTTL, redlatch.MaxTTL},
		} {
			before := storeTime(t, l)
			sent := time.Now()
			held := take(t, l, "ttl05", redlatch.Options{TTL: tt.asked})
			q, err := l.Inspect(t.Context(), "ttl05")
			if err != nil || len(q.Holders()) != 1 {
				t.Fatalf("inspect: %+v, %v", q, err)
			}
			given := q.Holders()[0].Expires
			if given.Before(before.Add(tt.given-2*time.Millisecond)) || given.After(q.Now.Add(tt.given+2*time.Millisecond)) {
				t.Errorf("asked for %v between %v and %v, got it until %v", tt.asked, before, q.Now, given)
			}
			// What the holder sees of it: less the drift, counted from the send.
			if until := held.Until(); until.After(time.Now().Add(tt.given)) || until.Before(sent.Add(tt.given-2*lease.Drift(tt.given))) {
				t.Errorf("the holder of a lease of %v is told %v", tt.given, until)
			}
			giveBack(t, held)
		}
		_, err := l.TryLock(t.Context(), "ttl05", redlatch.Options{TTL: redlatch.MaxTTL + 1}) // "never" does not exist
		mustBe(t, err, redlatch.ErrInvalid)
	})
}

func TestTTL07AHandleThatIsOverIsNeverReturned(t *testing.T) {
	t.Parallel()
	p := onRedis(t)
	r := relay.Start(t, p.server.Addr())
	l := processAt(t, r.Addr(), "a")
	giveBack(t, take(t, l, "warm", redlatch.Options{}))
	extended := take(t, l, "extended", redlatch.Options{TTL: 500 * time.Millisecond, NoRenew: true})

	r.Delay(relay.Replies, 600*time.Millisecond)
	var calls sync.WaitGroup
	calls.Go(func() {
		if err := extended.Renew(t.Context(), 0); err == nil || extended.Valid() {
			t.Errorf("renewed by an answer that came after the lease: %v, valid: %v", err, extended.Valid())
		}
	})
	for name, get := range map[string]func(context.Context, string, redlatch.Options) (*redlatch.Held, error){
		"ttl07-lock": l.Lock, "ttl07-try": l.TryLock,
	} {
		calls.Go(func() {
			held, err := get(t.Context(), name, redlatch.Options{TTL: 500 * time.Millisecond})
			mustBe(t, err, redlatch.ErrUnavailable)
			if held != nil {
				t.Errorf("a hold was returned that is valid: %v", held.Valid())
			}
			free(t, l, name)
		})
	}
	calls.Wait()
}

func TestTTL08FourKindsOfNo(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t, servertest.RedisConfig{Password: "right"})
	with := func(password string) *redlatch.Locker {
		return locker(t, redisAt(t, &redis.Options{Addr: server.Addr(), Password: password}), redlatch.Config{})
	}
	right := with("right")
	held := take(t, right, "ttl08", redlatch.Options{TTL: long})
	try := func(l *redlatch.Locker, o redlatch.Options, want error) {
		t.Helper()
		_, err := l.TryLock(t.Context(), "ttl08", o)
		mustBe(t, err, want)
		o.MaxWait = patience
		if !errors.Is(want, redlatch.ErrHeld) { // it would wait
			_, err = l.Lock(t.Context(), "ttl08", o)
			mustBe(t, err, want)
		}
	}
	try(right, redlatch.Options{}, redlatch.ErrHeld)
	try(with("wrong"), redlatch.Options{}, redlatch.ErrDenied)
	try(with(""), redlatch.Options{}, redlatch.ErrDenied)
	try(right, redlatch.Options{TTL: 1 << 62}, redlatch.ErrInvalid)
	giveBack(t, held)
	server.Kill()
	try(right, redlatch.Options{}, redlatch.ErrUnavailable)
}

func TestTTL09AWaitMayBeLongerThanTheLease(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		s := tallied(p.store(t))
		a, b := locker(t, s, patient("a")), p.process(t, "b")
		const ttl = 1500 * time.Millisecond
		first := take(t, a, "ttl09", redlatch.Options{TTL: ttl})
		got := make(chan *redlatch.Held, 1)
		began := time.Now()
		go func() {
			defer close(got)
			held, err := b.Lock(t.Context(), "ttl09", redlatch.Options{TTL: ttl, MaxWait: time.Minute})
			if err != nil {
				t.Errorf("the waiter: %v", err)
				return
			}
			got <- held
		}()
		queued(t, b, "ttl09", 1)
		s.renewed(t, first, 7)
		select {
		case held := <-got:
			t.Fatalf("two hold it: %v", held)
		default:
		}
		if waited := time.Since(began); waited < 2*ttl {
			t.Errorf("waited for %v only: this proves nothing", waited)
		}
		giveBack(t, first)
		if held := <-got; held != nil {
			giveBack(t, held)
		}
	})
}

func TestTTL11NoTimeToWaitIsOneTry(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		a, b := p.process(t, "a"), p.process(t, "b")
		held, err := a.TryLock(t.Context(), "ttl11", redlatch.Options{TTL: long})
		if err != nil {
			t.Fatalf("a free lock: %v", err)
		}
		began := time.Now()
		for _, try := range []func(context.Context, string, redlatch.Options) (*redlatch.Held, error){b.TryLock, b.Lock} {
			_, err = try(t.Context(), "ttl11", redlatch.Options{MaxAttempts: 1})
			mustBe(t, err, redlatch.ErrHeld)
		}
		if took := time.Since(began); took > patience {
			t.Errorf("two tries took %v", took)
		}
		giveBack(t, held)

		over, cancel := context.WithCancel(t.Context())
		cancel()
		late, cancel2 := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
		defer cancel2()
		for _, ctx := range []context.Context{over, late} {
			for _, try := range []func(context.Context, string, redlatch.Options) (*redlatch.Held, error){b.TryLock, b.Lock} {
				if held, err := try(ctx, "ttl11", redlatch.Options{}); !errors.Is(err, ctx.Err()) || held != nil {
					t.Errorf("with a ctx that is over: %v, %v", held, err)
				}
			}
		}
		// A nanosecond is less than a call takes: it is enough, or it leaves nothing.
		for range 20 {
			held, err := b.Lock(t.Context(), "ttl11", redlatch.Options{TTL: long, MaxWait: 1})
			if err == nil {
				giveBack(t, held)
			} else {
				mustBe(t, err, redlatch.ErrUnavailable)
			}
		}
		free(t, a, "ttl11")
		if p.server != nil {
			if n := p.do(t, "EXISTS", "lock:ttl11"); n != int64(0) {
				t.Error("the key is left")
			}
		}
	})
}

func TestTTL11AnEndedContextSendsNothing(t *testing.T) {
	t.Parallel()
	p := onRedis(t)
	l := p.process(t, "a")
	m := watch(t, p.server)
	giveBack(t, take(t, l, "warm", redlatch.Options{}))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, try := range []func(context.Context, string, redlatch.Options) (*redlatch.Held, error){l.TryLock, l.Lock} {
		if _, err := try(ctx, "ttl11", redlatch.Options{}); !errors.Is(err, context.Canceled) {
			t.Errorf("with a ctx that is over: %v", err)
		}
	}
	if sent := m.seen("ttl11"); len(sent) > 0 {
		t.Errorf("sent: %q", sent)
	}
	if len(m.seen("warm")) == 0 {
		t.Error("the monitor does not see calls: this proves nothing")
	}
}

// churn takes and releases names until it is killed.
func churn(locks *redlatch.Locker, p part) error {
	fmt.Println("began")
	var work sync.WaitGroup
	for i := range 6 {
		work.Go(func() {
			for {
				name := fmt.Sprint(p.Name, i%2)
				o := redlatch.Options{TTL: p.TTL, MaxWait: time.Duration(1+rand.N(20)) * time.Millisecond}
				if i%3 == 0 {
					o.HoldAtLeast = time.Millisecond
				}
				if held, err := locks.Lock(context.Background(), name, o); err == nil {
					_ = held.Unlock()
				}
			}
		})
	}
	work.Wait()
	return nil
}

func TestTTL12NoKeyIsEverWithoutAnExpiry(t *testing.T) {
	t.Parallel()
	p := onRedis(t)
	r := relay.Start(t, p.server.Addr())
	began := int64(0)
	for round := range 12 {
		c := start(t, part{Do: "churn", Redis: r.Addr(), Name: "ttl12-", TTL: long})
		c.says("began")
		// Half of them lose their connections in the middle of a call, all of them their lives.
		for range 1 + rand.N(4) {
			servertest.Eventually(t, patience, "more calls", func() bool { return calledSince(r, &began, 20+rand.Int64N(40)) })
			if bad := p.endless(t); len(bad) > 0 {
				t.Fatalf("round %d: without an expiry: %q", round, bad)
			}
			if round%2 == 0 {
				r.Cut()
			}
		}
		_ = c.cmd.Process.Kill()
		r.Cut()
		if bad := p.endless(t); len(bad) > 0 {
			t.Fatalf("round %d: without an expiry after a kill: %q", round, bad)
		}
	}
	if n := p.do(t, "DBSIZE"); n == int64(0) {
		t.Error("no key at all: this proves nothing")
	}
}

// calledSince reports whether that many calls went through since it last said so.
func calledSince(r *relay.Relay, last *int64, n int64) bool {
	now := int64(r.Requests()["EVALSHA"])
	if now-*last < n {
		return false
	}
	*last = now
	return true
}

func TestTTL14OncePerPeriodIsNeverTwiceAndNeverNone(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		const period = 300 * time.Millisecond
		o := redlatch.Options{HoldAtLeast: period, MaxHold: period}
		_, err := p.process(t, "x").Lock(t.Context(), "ttl14", redlatch.Options{HoldAtLeast: 10 * time.Minute, MaxHold: 5 * time.Minute})
		mustBe(t, err, redlatch.ErrInvalid)

		type run struct{ sent, got time.Time }
		var mu sync.Mutex
		var runs []run
		var crons sync.WaitGroup
		for i := range 2 {
			l := p.process(t, fmt.Sprint("cron", i))
			crons.Go(func() {
				tick := time.NewTicker(period)
				defer tick.Stop()
				for range 8 {
					<-tick.C
					sent := time.Now()
					held, err := l.TryLock(t.Context(), "ttl14", o)
					if errors.Is(err, redlatch.ErrHeld) || errors.Is(err, redlatch.ErrSealed) {
						continue
					}
					if err != nil {
						t.Errorf("try: %v", err)
						return
					}
					mu.Lock()
					runs = append(runs, run{sent, time.Now()})
					mu.Unlock()
					giveBack(t, held)
				}
			})
		}
		crons.Wait()
		if len(runs) < 3 {
			t.Errorf("%d runs in 8 periods", len(runs))
		}
		for i := 1; i < len(runs); i++ {
			// The seal counts from when the lock was asked for, which is before it was got.
			if apart := runs[i].got.Sub(runs[i-1].sent); apart < period-time.Millisecond {
				t.Errorf("two runs within %v", apart)
			}
		}
	})
}

func TestTTL15APlainLockDoesNotMakeOneRunPerTick(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		for _, tt := range []struct {
			name string
			o    redlatch.Options
			runs int
		}{
			{"plain", redlatch.Options{}, 3},
			{"at-least", redlatch.Options{HoldAtLeast: long}, 1},
		} {
			runs := 0
			for i := range 3 { // the timers of three machines, a little apart
				held, err := p.process(t, fmt.Sprint(i)).TryLock(t.Context(), tt.name, tt.o)
				if err != nil {
					mustBe(t, err, redlatch.ErrSealed)
					continue
				}
				runs++
				giveBack(t, held)
			}
			if runs != tt.runs {
				t.Errorf("%s: %d runs in one tick, want %d", tt.name, runs, tt.runs)
			}
		}
	})
}
