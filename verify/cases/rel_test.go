//go:build unix

package cases

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/lease"
)

// forged is a token of nobody's.
func forged() string {
	return lease.Token{ID: lease.NewID(), Ticket: 7, Owner: lease.Owner{Name: "nobody"}}.String()
}

func TestREL01ALateReleaseChangesNothing(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		a, b, c := p.process(t, "a"), p.process(t, "b"), p.process(t, "c")
		first := take(t, a, "rel01", redlatch.Options{TTL: 300 * time.Millisecond, NoRenew: true})
		second := take(t, b, "rel01", redlatch.Options{TTL: long})
		mustBe(t, first.Unlock(), redlatch.ErrLost)
		mustBe(t, first.Unlock(), redlatch.ErrNotHeld)
		if err := a.Release(t.Context(), "rel01", first.Token()); !errors.Is(err, redlatch.ErrHeld) {
			t.Errorf("released by its token once more: %v", err)
		}
		if _, err := c.TryLock(t.Context(), "rel01", redlatch.Options{}); !errors.Is(err, redlatch.ErrHeld) {
			t.Errorf("a third one gets %v", err)
		}
		if !second.Valid() {
			t.Error("the next holder has lost it")
		}
		if p.server != nil && p.value(t, "rel01") != second.Token() {
			t.Errorf("the key has %q", p.value(t, "rel01"))
		}
		giveBack(t, second)
	})
}

func TestREL02WhatWasNeverHeldIsNotHeld(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		l := p.process(t, "a")
		for range 2 {
			mustBe(t, l.Release(t.Context(), "rel02", forged()), redlatch.ErrNotHeld)
		}
		held := take(t, l, "rel02", redlatch.Options{})
		giveBack(t, held)
		mustBe(t, held.Unlock(), redlatch.ErrNotHeld)
		mustBe(t, l.Release(t.Context(), "rel02", held.Token()), redlatch.ErrNotHeld)
		free(t, l, "rel02")
	})
}

func TestREL04AHoldBelongsToNoGoroutine(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		l := p.process(t, "a")
		for range 20 {
			held := take(t, l, "rel04", redlatch.Options{TTL: long})
			results := make(chan error, 10)
			for i := range cap(results) {
				go func() {
					if i%3 == 0 {
						if err := held.Renew(t.Context(), 0); err != nil {
							mustBe(t, err, redlatch.ErrNotHeld)
						}
					}
					results <- unlock(held)
				}()
			}
			done := 0
			for range cap(results) {
				if err := <-results; err == nil {
					done++
				} else {
					mustBe(t, err, redlatch.ErrNotHeld)
				}
			}
			if done != 1 {
				t.Errorf("%d of 10 releases did it", done)
			}
			free(t, l, "rel04")
		}
	})
}

func TestREL05NotYoursIsNotFree(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		a, b := p.process(t, "a"), p.process(t, "b")
		mustBe(t, b.Release(t.Context(), "rel05", forged()), redlatch.ErrNotHeld)
		held := take(t, a, "rel05", redlatch.Options{TTL: long})
		token := forged()
		err := b.Release(t.Context(), "rel05", token)
		mustBe(t, err, redlatch.ErrHeld)
		by, ok := errors.AsType[*redlatch.HeldError](err)
		if !ok || by.Holder == nil || by.Holder.Owner.Name != "a" {
			t.Errorf("it does not say whose it is: %v", err)
		}
		_, err = b.Resume(t.Context(), "rel05", token, redlatch.Options{})
		mustBe(t, err, redlatch.ErrLost)
		if err := held.Renew(t.Context(), 0); err != nil {
			t.Errorf("the holder: %v", err)
		}
		giveBack(t, held)
	})
}

func TestREL07ALossOfOneGoroutineIsInNobodysWay(t *testing.T) {
	t.Parallel()
	p := onRedis(t)
	l := p.process(t, "a")
	first := take(t, l, "rel07", redlatch.Options{TTL: long, NoRenew: true})
	p.do(t, "DEL", "lock:rel07")
	second := take(t, l, "rel07", redlatch.Options{TTL: long})
	mustBe(t, first.Unlock(), redlatch.ErrLost)
	p.server.Kill()
	mustBe(t, second.Unlock(), redlatch.ErrUnavailable)
	p.server.Restart() // empty
	third := take(t, l, "rel07", redlatch.Options{TTL: long})
	if err := second.Unlock(); err != nil && !errors.Is(err, redlatch.ErrNotHeld) {
		t.Errorf("a release that failed, made again: %v", err)
	}
	if !third.Valid() || p.value(t, "rel07") != third.Token() {
		t.Errorf("valid: %v; the key has %q", third.Valid(), p.value(t, "rel07"))
	}
	giveBack(t, third)
}

func TestREL08GoroutinesOfOneLockerExcludeEachOther(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		l := p.process(t, "a")
		var inside int // the race detector is the second judge
		rounds := 10
		if p.dir != "" {
			rounds = 3
		}
		var work sync.WaitGroup
		for range 4 {
			work.Go(func() {
				for range rounds {
					held := take(t, l, "rel08", redlatch.Options{TTL: long, Reentrant: true})
					inside++
					if inside != 1 {
						t.Errorf("%d hold it", inside)
					}
					inside--
					giveBack(t, held)
				}
			})
		}
		work.Wait()

		held := take(t, l, "rel08", redlatch.Options{TTL: long})
		_, err := l.TryLock(t.Context(), "rel08", redlatch.Options{Reentrant: true})
		mustBe(t, err, redlatch.ErrHeld) // the same client and goroutine, but not under the hold
		_, err = l.Lock(held.Context(), "rel08", redlatch.Options{})
		mustBe(t, err, redlatch.ErrHeld) // under it, but not asked for
		inner, err := l.Lock(held.Context(), "rel08", redlatch.Options{Reentrant: true})
		if err != nil {
			t.Fatalf("under the hold: %v", err)
		}
		giveBack(t, inner)
		giveBack(t, held)
	})
}

func TestREL09ThreeTimesTakenIsThreeTimesReleased(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		l, b := p.process(t, "a"), p.process(t, "b")
		held := func() bool {
			q, err := b.Inspect(t.Context(), "rel09")
			if err != nil {
				t.Fatal(err)
			}
			return len(q.Holders()) == 1
		}
		ends := func() time.Time {
			q, err := b.Inspect(t.Context(), "rel09")
			if err != nil || len(q.Holders()) != 1 {
				t.Fatalf("inspect: %+v, %v", q, err)
			}
			return q.Holders()[0].Expires
		}
		outer := take(t, l, "rel09", redlatch.Options{TTL: time.Hour})
		until := ends()
		var inner []*redlatch.Held
		for range 2 {
			h, err := l.Lock(outer.Context(), "rel09", redlatch.Options{TTL: time.Second, Reentrant: true})
			if err != nil {
				t.Fatal(err)
			}
			inner = append(inner, h)
		}
		// Redis tells an end by how long is left: rounded, each time anew.
		if now := ends(); now.Before(until.Add(-2 * time.Millisecond)) {
			t.Errorf("the inner lease has shortened the outer one from %v to %v", until, now)
		}
		released := make(chan error)
		for i, h := range []*redlatch.Held{outer, inner[0]} {
			go func() { released <- unlock(h) }()
			if err := <-released; err != nil {
				t.Errorf("release %d: %v", i+1, err)
			}
			mustBe(t, h.Unlock(), redlatch.ErrNotHeld)
			if !held() || !inner[1].Valid() {
				t.Fatalf("gone after release %d of 3", i+1)
			}
		}
		giveBack(t, inner[1])
		if held() {
			t.Error("still there after the third release")
		}
		for _, h := range append(inner, outer) {
			mustBe(t, h.Unlock(), redlatch.ErrNotHeld)
		}
	})
}

func TestREL11AnOperatorBreaksALock(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		s := tallied(p.store(t))
		holder, operator := locker(t, s, patient("holder")), p.process(t, "operator")

		_, err := operator.Break(t.Context(), "rel11", redlatch.BreakOptions{Now: true})
		mustBe(t, err, redlatch.ErrNotHeld) // a free one

		live := take(t, holder, "rel11", redlatch.Options{TTL: 3 * time.Second})
		was, err := operator.Break(t.Context(), "rel11", redlatch.BreakOptions{Now: true, By: "ops", Reason: "hangs"})
		if err != nil || was.ID != claimID(live) || was.Owner.Name != "holder" {
			t.Fatalf("broke %+v, %v", was, err)
		}
		if loss := lostWhy(t, live); loss.Why == lease.Expired || loss.Why == lease.Unreachable {
			t.Errorf("the holder of a broken lock is told: %v", &loss)
		}
		clock := take(t, holder, "clock", redlatch.Options{TTL: 3 * time.Second})
		s.renewed(t, clock, 2)
		giveBack(t, clock)
		free(t, operator, "rel11") // it does not bring it back
		mustBe(t, live.Unlock(), redlatch.ErrLost)
	})
}

func TestREL11ADeadHoldersLockIsBroken(t *testing.T) {
	t.Parallel()
	p := onRedis(t)
	c := start(t, part{Do: "hold", Redis: p.server.Addr(), Name: "rel11", TTL: time.Hour})
	token := c.says("held")
	c.signal(syscall.SIGKILL)
	operator := p.process(t, "operator")
	was, err := operator.Break(t.Context(), "rel11", redlatch.BreakOptions{Now: true})
	if err != nil || was.Owner.PID != c.cmd.Process.Pid {
		t.Errorf("broke %+v of %q, %v", was, token, err)
	}
	giveBack(t, take(t, operator, "rel11", redlatch.Options{}))
}

func TestREL14AHoldersLabelIsReadAsItWasWritten(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		odd := "\x00\x1b[31m\xff\xfe ü \u202e\r\n'\"&=%+.{}"
		owner := redlatch.Owner{Name: odd, Host: odd, PID: 1, Command: odd}
		tokens := make(map[string]bool)
		b := p.process(t, "b")
		for range 10 {
			l := locker(t, p.store(t), redlatch.Config{Owner: owner, OnUnavailable: redlatch.Wait})
			held := take(t, l, "rel14", redlatch.Options{TTL: long, Note: odd, Labels: map[string]string{"app": odd, odd: "x"}})
			q, err := b.Inspect(t.Context(), "rel14")
			if err != nil || len(q.Holders()) != 1 {
				t.Fatalf("inspect: %+v, %v", q, err)
			}
			got := q.Holders()[0].Owner
			if got.Name != odd || got.Host != odd || got.PID != 1 || got.Command != odd || got.Note != odd ||
				got.Labels["app"] != odd || got.Labels[odd] != "x" {
				t.Errorf("written %q, read %+q", odd, got)
			}
			for _, c := range []byte(held.Token()) {
				if c <= ' ' || c > '~' {
					t.Fatalf("the token %q is not printable ASCII", held.Token())
				}
			}
			if tokens[claimID(held)] {
				t.Error("an ID was drawn twice")
			}
			tokens[claimID(held)] = true
			_, err = b.TryLock(t.Context(), "rel14", redlatch.Options{})
			mustBe(t, err, redlatch.ErrHeld)
			for _, c := range err.Error() {
				if c < ' ' || c == 0x7f || c == '\u202e' {
					t.Errorf("the message has %q in it: %q", c, err)
				}
			}
			giveBack(t, held)
		}
	})
}

func TestREL17TheWrapperDoesNotRunWithoutTheLock(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		var mu sync.Mutex
		ran, skipped := 0, 0
		var others, all sync.WaitGroup
		others.Add(3)
		for i := range 4 {
			l := p.process(t, fmt.Sprint(i))
			all.Go(func() {
				err := l.Do(t.Context(), "rel17", redlatch.Options{TTL: long, MaxAttempts: 1}, func(context.Context, *redlatch.Held) error {
					mu.Lock()
					ran++
					mu.Unlock()
					others.Wait()
					return nil
				})
				if err != nil {
					mustBe(t, err, redlatch.ErrHeld)
					mu.Lock()
					skipped++
					mu.Unlock()
					others.Done()
				}
			})
		}
		all.Wait()
		if ran != 1 || skipped != 3 {
			t.Errorf("%d ran and %d were skipped", ran, skipped)
		}
		free(t, p.process(t, "x"), "rel17")
	})
}
