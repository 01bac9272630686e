//go:build unix

package cases

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/relay"
	"github.com/redlatch/redlatch/internal/servertest"
)

func TestCX01AReleaseDoesNotNeedTheCallersContext(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		l := p.process(t, "a")
		ctx, cancel := context.WithCancel(t.Context())
		held, err := l.Lock(ctx, "cx01", redlatch.Options{TTL: long})
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		if !held.Valid() {
			t.Errorf("the caller's end has ended the hold: %v", context.Cause(held.Context()))
		}
		giveBack(t, held)
		free(t, l, "cx01")

		ctx, cancel = context.WithCancel(t.Context())
		defer cancel()
		err = l.Do(ctx, "cx01", redlatch.Options{TTL: long}, func(ctx context.Context, _ *redlatch.Held) error {
			cancel()
			<-ctx.Done()
			return ctx.Err()
		})
		if !errors.Is(err, context.Canceled) || errors.Is(err, redlatch.ErrLost) {
			t.Errorf("a body that ends with its caller: %v", err)
		}
		free(t, l, "cx01")
	})
}

func TestCX02AReleaseWithoutAnAnswerIsRepeatable(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(*relay.Relay, relay.Match) *relay.Trap{
		"the reply is lost": (*relay.Relay).DropReply, "the connection ends instead": (*relay.Relay).CutReply,
		"the request is late": (*relay.Relay).Hold,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := onRedis(t)
			r := relay.Start(t, p.server.Addr())
			l, b := processAt(t, r.Addr(), "a"), p.process(t, "b")
			held := take(t, l, "cx02", redlatch.Options{TTL: long})
			release := set(r, calls("cx02"))
			unlocked := make(chan error, 1)
			go func() { unlocked <- held.Unlock() }()
			caught(t, release)
			ends(t, patience, "the release", unlocked) // it asks again, and knows its own release
			next := take(t, b, "cx02", redlatch.Options{TTL: long, NoRenew: true})
			mustBe(t, held.Unlock(), redlatch.ErrNotHeld)

			m := watch(t, p.server)
			release.Release()
			if name == "the request is late" {
				servertest.Eventually(t, patience, "the late release", func() bool { return len(m.seen(`"EVAL`, claimID(held))) > 0 })
			}
			if v := p.value(t, "cx02"); v != next.Token() {
				t.Errorf("the next holder's key has %q", v)
			}
			giveBack(t, next)
		})
	}
}

func TestCX03AReleaseThatFailedCanBeMadeAgain(t *testing.T) {
	t.Parallel()
	p := onRedis(t)
	l := p.process(t, "a")
	held := take(t, l, "cx03", redlatch.Options{TTL: long})
	replayed := take(t, l, "cx03-replayed", redlatch.Options{TTL: long})
	p.server.Stop()
	var releases sync.WaitGroup
	for _, h := range []*redlatch.Held{held, replayed} {
		releases.Go(func() { mustBe(t, h.Unlock(), redlatch.ErrUnavailable) })
	}
	releases.Wait()
	if held.Valid() {
		t.Error("valid after a release that may have been carried out")
	}
	p.server.Continue()
	// The lock has been given back: no renewal may keep it, whatever came of that.
	mustBe(t, held.Renew(t.Context(), 0), redlatch.ErrNotHeld)
	giveBack(t, held)
	mustBe(t, held.Unlock(), redlatch.ErrNotHeld)
	// Also by itself, in the background; that is then no loss.
	free(t, l, "cx03-replayed")
	giveBack(t, replayed)
	if n := p.do(t, "EXISTS", "lock:cx03", "lock:cx03-replayed"); n != int64(0) {
		t.Errorf("%d keys are left", n)
	}
}

func TestCX04NobodyIsInItsOwnWay(t *testing.T) {
	t.Parallel()
	p := onRedis(t)
	r := relay.Start(t, p.server.Addr())
	l, b := processAt(t, r.Addr(), "a"), p.process(t, "b")
	giveBack(t, take(t, l, "warm", redlatch.Options{}))
	for try, get := range map[string]func(context.Context, string, redlatch.Options) (*redlatch.Held, error){"lock": l.Lock, "try": l.TryLock} {
		// The join is carried out, its reply is cut off, and the client library sends it again.
		name := "cx04-cut-" + try
		join := r.CutReply(calls(name))
		held, err := get(t.Context(), name, redlatch.Options{TTL: long})
		if err != nil {
			t.Fatalf("%s: %v", try, err)
		}
		caught(t, join)
		if v := p.value(t, name); v != held.Token() {
			t.Errorf("the key has %q, the holder %q", v, held.Token())
		}
		giveBack(t, held)

		// It is carried out and nobody hears of it; or it comes after it was given up.
		for how, set := range map[string]func(*relay.Relay, relay.Match) *relay.Trap{"lost": (*relay.Relay).DropReply, "late": (*relay.Relay).Hold} {
			name := "cx04-" + how + "-" + try
			join, m := set(r, calls(name)), watch(t, p.server)
			arrived := func(n int) {
				t.Helper()
				servertest.Eventually(t, patience, fmt.Sprint("call ", n, " about ", name), func() bool {
					return len(m.seen(`"EVAL`, `"lock:`+name+`"`)) >= n
				})
			}
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			_, err := get(ctx, name, redlatch.Options{TTL: long})
			cancel()
			mustBe(t, err, redlatch.ErrUnavailable)
			caught(t, join)
			if how == "late" {
				arrived(1) // its leave, which has overtaken it
				join.Release()
				arrived(2)
			} else {
				free(t, b, name)
			}
			if v := p.value(t, name); v != "" {
				t.Errorf("%s: an acquire that failed left %q", name, v)
			}
			held, err := l.TryLock(t.Context(), name, redlatch.Options{TTL: long})
			if err != nil {
				t.Fatalf("the next try: %v", err)
			}
			giveBack(t, held)
		}
	}
}

func TestCX06ARenewalThatHangsDoesNotKeepTheLock(t *testing.T) {
	t.Parallel()
	p := onRedis(t)
	r := relay.Start(t, p.server.Addr())
	l, b := processAt(t, r.Addr(), "a"), p.process(t, "b")
	ctx, cancel := context.WithCancel(t.Context())
	var token string
	var renewal *relay.Trap
	err := l.Do(ctx, "cx06", redlatch.Options{TTL: 15 * time.Second}, func(_ context.Context, held *redlatch.Held) error {
		token = held.Token()
		renewal = r.Hold(calls("cx06"))
		caught(t, renewal)
		cancel()
		return nil
	})
	if err != nil && !errors.Is(err, redlatch.ErrUnavailable) {
		t.Errorf("released while a renewal hung: %v", err)
	}
	free(t, b, "cx06")
	next := take(t, b, "cx06", redlatch.Options{TTL: long, NoRenew: true})
	m, expires := watch(t, p.server), p.expires(t, "cx06")
	renewal.Release()
	servertest.Eventually(t, patience, "the late renewal", func() bool {
		id, _, _ := strings.Cut(token, ".")
		return len(m.seen(`"EVAL`, id)) > 0
	})
	if v, end := p.value(t, "cx06"), p.expires(t, "cx06"); v != next.Token() || end != expires {
		t.Errorf("the late renewal has changed the next holder's key: %q until %d, was until %d", v, end, expires)
	}
	giveBack(t, next)
}

func TestCX07TheBodysErrorAndTheReleasesAreBothSeen(t *testing.T) {
	t.Parallel()
	own := errors.New("the body's own")
	p := onRedis(t)
	l := p.process(t, "a")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var bodies, both sync.WaitGroup
	bodies.Add(3)
	down := make(chan struct{})
	for name, body := range map[string]func(ctx context.Context) error{
		"cx07-own":  func(context.Context) error { return own },
		"cx07-nil":  func(context.Context) error { return nil },
		"cx07-ends": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	} {
		both.Go(func() {
			err := l.Do(ctx, name, redlatch.Options{TTL: long}, func(ctx context.Context, _ *redlatch.Held) error {
				bodies.Done()
				<-down
				return body(ctx)
			})
			if !errors.Is(err, redlatch.ErrUnavailable) || errors.Is(err, redlatch.ErrLost) {
				t.Errorf("%s: the release failed and Do returned %v", name, err)
			}
			switch {
			case name == "cx07-own" && (!errors.Is(err, own) || !strings.HasPrefix(err.Error(), own.Error())):
				t.Errorf("%s: %v does not begin with the body's error", name, err)
			case name == "cx07-ends" && !errors.Is(err, context.Canceled):
				t.Errorf("%s: %v is not the end of the caller's ctx", name, err)
			case name == "cx07-nil" && (errors.Is(err, own) || errors.Is(err, context.Canceled)):
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	bodies.Wait()
	p.server.Kill()
	cancel()
	close(down)
	both.Wait()
}

func TestCX09WhoIsSkippedLearnsOfWhom(t *testing.T) {
	t.Parallel()
	p := onRedis(t)
	c := start(t, part{Do: "hold", Redis: p.server.Addr(), Name: "cx09", TTL: 3 * time.Hour, NoRenew: true})
	c.says("held")
	c.signal(syscall.SIGKILL)
	l := p.process(t, "b")
	for range 2 {
		err := l.Do(t.Context(), "cx09", redlatch.Options{MaxAttempts: 1}, func(context.Context, *redlatch.Held) error {
			t.Error("two run at once")
			return nil
		})
		mustBe(t, err, redlatch.ErrHeld)
		by, ok := errors.AsType[*redlatch.HeldError](err)
		if !ok || by.Holder == nil || by.Holder.Owner.Name != "child" || by.Holder.Owner.PID != c.cmd.Process.Pid {
			t.Fatalf("the error does not name the holder: %v", err)
		}
		if by.Left < 2*time.Hour || by.Left > 3*time.Hour {
			t.Errorf("the lease of the dead holder is said to last %v", by.Left)
		}
		if text := err.Error(); !strings.Contains(text, "child") || !strings.Contains(text, "2h59m") {
			t.Errorf("the message does not say who and how long: %s", text)
		}
	}
}

func TestCX10ACancelInTheInstantOfTheGrantLeavesNoOrphan(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		a, b := p.process(t, "a"), p.process(t, "b")
		rounds := 25
		if p.dir != "" {
			rounds = 8
		}
		var work sync.WaitGroup
		for lane := range 8 {
			work.Go(func() {
				name := fmt.Sprint("cx10-", lane)
				for range rounds {
					first := take(t, a, name, redlatch.Options{TTL: long})
					ctx, cancel := context.WithCancel(t.Context())
					got := make(chan *redlatch.Held, 1)
					go func() {
						held, _ := b.Lock(ctx, name, redlatch.Options{TTL: long})
						got <- held
					}()
					queued(t, a, name, 1)
					var both sync.WaitGroup
					both.Go(func() { time.Sleep(rand.N(time.Millisecond)); cancel() }) // where it hits is what is tried out
					giveBack(t, first)
					both.Wait()
					held := <-got
					if held == nil {
						free(t, a, name)
						continue
					}
					if !held.Valid() {
						t.Errorf("a hold was returned that is over: %v", context.Cause(held.Context()))
					}
					if p.server != nil && p.value(t, name) != held.Token() {
						t.Errorf("the key has %q, the holder %q", p.value(t, name), held.Token())
					}
					giveBack(t, held)
				}
			})
		}
		work.Wait()
	})
}
