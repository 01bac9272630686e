package redlatch_test

import (
	"context"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/lease"
	"github.com/redlatch/redlatch/memstore"
)

// What an attempt to break the library found, one test for each kind.

func TestASlowObserverDelaysNoOtherHoldsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		block := make(chan struct{})
		m := &meddler{Store: memstore.New()}
		l := locker(t, m, redlatch.Config{Observer: redlatch.Observer{Lost: func(redlatch.Event) { <-block }}})
		first := mustLock(t, l, "a", redlatch.Options{TTL: time.Second, NoRenew: true})
		second := mustLock(t, l, "b", redlatch.Options{TTL: ttl, NoRenew: true})
		renewed := mustLock(t, l, "c", redlatch.Options{TTL: ttl})
		start := time.Now()
		<-first.Context().Done()
		<-second.Context().Done()
		if took := time.Since(start); took > ttl {
			t.Errorf("a hold of %v ended after %v", ttl, took)
		}
		time.Sleep(10 * ttl)
		if !renewed.Valid() {
			t.Error("a hold was not renewed while an observer was slow")
		}
		close(block)
		mustUnlock(t, renewed)
	})
}

func TestAnObserverMayAskTheHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asks atomic.Pointer[redlatch.Held]
		asked := make(chan struct{}, 8)
		ask := func(redlatch.Event) {
			asks.Load().Valid()
			asks.Load().Until()
			_ = asks.Load().Unlock()
			asked <- struct{}{}
		}
		l := locker(t, memstore.New(), redlatch.Config{Observer: redlatch.Observer{Lost: ask, Released: ask}})
		held := mustLock(t, l, "x", redlatch.Options{TTL: ttl})
		asks.Store(held)
		mustUnlock(t, held)
		<-asked
		synctest.Wait()

		// Unlock itself finds the loss: the process has not run since.
		held = mustLock(t, l, "x", redlatch.Options{TTL: ttl, NoRenew: true})
		asks.Store(held)
		synctest.Wait()
		time.Sleep(trustOf(ttl))
		_ = held.Unlock() // the observer's own may have come first
		<-asked
		<-asked
	})
}

func TestReentrantInsideAHoldThatIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &meddler{Store: memstore.New()}
		a := locker(t, m, redlatch.Config{KeepOnClose: true})
		inside := redlatch.Options{Reentrant: true, MaxWait: time.Second}

		held := mustLock(t, a, "x", redlatch.Options{})
		ctx := held.Context()
		m.set(func(m *meddler) { m.mute = true })
		mustBe(t, held.Unlock(), redlatch.ErrUnavailable)
		m.set(func(m *meddler) { m.mute = false })
		if _, err := a.Lock(ctx, "x", inside); err == nil {
			t.Error("locked inside a hold whose release was tried")
		}
		cancelled, cancel := context.WithCancel(t.Context())
		outer := mustLock(t, a, "y", redlatch.Options{})
		ctx = context.WithValue(outer.Context(), struct{ k int }{}, nil)
		cancel()
		if _, err := a.Lock(cancelled, "y", inside); err == nil {
			t.Error("locked with a context that is over")
		}
		if err := a.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, err := a.Lock(context.WithoutCancel(ctx), "y", inside)
		mustBe(t, err, redlatch.ErrClosed)
	})
}

func TestReentrantAsksForNoMoreThanThereIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, _ := pair(t)
		for _, test := range []struct {
			says         string
			outer, inner redlatch.Options
			refused      error
		}{
			{"the same slots", redlatch.Options{Slots: 3, Weight: 2}, redlatch.Options{Slots: 3}, nil},
			{"more slots", redlatch.Options{Slots: 3}, redlatch.Options{Slots: 3, Weight: 3}, redlatch.ErrConflict},
			{"of another size", redlatch.Options{Slots: 3}, redlatch.Options{Slots: 7}, redlatch.ErrConflict},
			{"a writer inside a reader", redlatch.Options{Shared: true}, redlatch.Options{}, redlatch.ErrConflict},
			{"a reader inside a writer", redlatch.Options{}, redlatch.Options{Shared: true}, nil},
			{"slots inside a writer", redlatch.Options{}, redlatch.Options{Slots: 2}, redlatch.ErrConflict},
			{"held for longer", redlatch.Options{HoldAtLeast: time.Second}, redlatch.Options{HoldAtLeast: time.Minute}, redlatch.ErrInvalid},
			{"held for as long", redlatch.Options{HoldAtLeast: time.Second}, redlatch.Options{HoldAtLeast: time.Second}, nil},
			{"bounded inside an unbounded one", redlatch.Options{}, redlatch.Options{MaxHold: time.Minute}, redlatch.ErrInvalid},
			{"with a longer margin", redlatch.Options{}, redlatch.Options{StopMargin: time.Second}, redlatch.ErrInvalid},
			{"with another lease", redlatch.Options{}, redlatch.Options{TTL: time.Minute}, nil},
		} {
			held := mustLock(t, a, test.says, test.outer)
			test.inner.Reentrant = true
			inner, err := a.Lock(held.Context(), test.says, test.inner)
			if test.refused != nil {
				mustBe(t, err, test.refused)
			} else if err != nil {
				t.Errorf("%s: %v", test.says, err)
			} else {
				mustUnlock(t, inner)
			}
			mustUnlock(t, held)
		}
	})
}

func TestHoldAtLeastCountsFromTheStartAlsoIfTheReleaseIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, m := pair(t)
		for _, outage := range []time.Duration{2 * time.Second, 8 * time.Second} {
			start := time.Now()
			held := mustLock(t, a, "x", redlatch.Options{TTL: time.Minute, HoldAtLeast: 10 * time.Second})
			m.set(func(m *meddler) { m.down = true })
			time.AfterFunc(outage, func() { m.set(func(m *meddler) { m.down = false }) })
			_ = held.Unlock()
			other := mustLock(t, b, "x", redlatch.Options{})
			if took := time.Since(start); took < 10*time.Second || took > 10*time.Second+200*time.Millisecond {
				t.Errorf("released %v late, it was closed for %v, want 10s from the start", outage, took)
			}
			mustUnlock(t, other)
		}
	})
}

func TestAMaxHoldThatCannotBeCountedIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, _ := pair(t)
		held := mustLock(t, a, "x", redlatch.Options{MaxHold: math.MaxInt64})
		time.Sleep(time.Hour)
		if !held.Valid() {
			t.Errorf("ended: %v", context.Cause(held.Context()))
		}
		mustUnlock(t, held)
		_, err := a.Lock(t.Context(), "x", redlatch.Options{HoldAtLeast: math.MaxInt64})
		mustBe(t, err, redlatch.ErrInvalid)
	})
}

// A renewal by hand has all the time that its caller gives it, and a server that hangs
// takes it. Who unlocks beside it waits for neither.
func TestUnlockDoesNotWaitForARenewalByHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, m := pair(t)
		held := mustLock(t, a, "x", redlatch.Options{TTL: time.Minute})
		m.set(func(m *meddler) { m.hung = true })
		renewed := make(chan error, 1)
		go func() { renewed <- held.Renew(t.Context(), 0) }()
		synctest.Wait()
		start := time.Now()
		mustBe(t, held.Unlock(), redlatch.ErrUnavailable)
		if took := time.Since(start); took > 5*time.Second+100*time.Millisecond {
			t.Errorf("Unlock took %v", took)
		}
		mustBe(t, <-renewed, redlatch.ErrNotHeld)
		m.set(func(m *meddler) { m.hung = false })
	})
}

func TestCloseReleasesWhatMaxHoldHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		l := locker(t, store, redlatch.Config{})
		held := mustLock(t, l, "x", redlatch.Options{TTL: time.Minute, MaxHold: time.Second})
		if loss := lostWhy(t, held); loss.Why != lease.HeldTooLong {
			t.Errorf("lost because %v", &loss)
		}
		if err := l.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if q, err := store.Inspect(t.Context(), "x"); err != nil || len(q.Claims) != 0 {
			t.Errorf("%d claims are left, error %v", len(q.Claims), err)
		}
	})
}

// However short MaxWait is, there is one try, and it gets an answer.
func TestAShortMaxWaitIsOneTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, m := pair(t)
		m.set(func(m *meddler) { m.late = 50 * time.Millisecond })
		for _, wait := range []time.Duration{1, time.Millisecond} {
			held, err := a.Lock(t.Context(), "free", redlatch.Options{MaxWait: wait})
			if err != nil {
				t.Errorf("a free lock, %v: %v", wait, err)
				continue
			}
			_, err = a.Lock(t.Context(), "free", redlatch.Options{MaxWait: wait})
			mustBe(t, err, redlatch.ErrHeld)
			mustNotBe(t, err, redlatch.ErrUnavailable)
			mustUnlock(t, held)
		}
		m.set(func(m *meddler) { m.hung = true })
		start := time.Now()
		_, err := a.Lock(t.Context(), "free", redlatch.Options{MaxWait: time.Millisecond})
		mustBe(t, err, redlatch.ErrUnavailable)
		if took := time.Since(start); took > 1100*time.Millisecond {
			t.Errorf("a store that hangs was waited for %v", took)
		}
		m.set(func(m *meddler) { m.hung = false })
		mustUnlock(t, mustLock(t, b, "free", redlatch.Options{}))
	})
}

func TestALeaseOfWhichNothingIsLeftIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &meddler{Store: memstore.New()}
		l := locker(t, m, redlatch.Config{Drift: time.Second})
		_, err := l.Lock(t.Context(), "x", redlatch.Options{TTL: time.Second})
		mustBe(t, err, redlatch.ErrInvalid)
		if m.joins.Load() != 0 {
			t.Error("it was sent")
		}
	})
}

func TestBreakNowOpensWhatABreakHasClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, _ := pair(t)
		held := mustLock(t, a, "x", redlatch.Options{TTL: time.Hour})
		if _, err := b.Break(t.Context(), "x", redlatch.BreakOptions{}); err != nil {
			t.Fatal(err)
		}
		_, err := b.TryLock(t.Context(), "x", redlatch.Options{})
		mustBe(t, err, redlatch.ErrSealed)
		broken, err := b.Break(t.Context(), "x", redlatch.BreakOptions{Now: true})
		if err != nil || broken.ID != tokenOf(t, held).ID || broken.Left < 59*time.Minute {
			t.Errorf("%+v, %v", broken, err)
		}
		mustUnlock(t, mustLock(t, b, "x", redlatch.Options{MaxWait: time.Second}))
		mustBe(t, held.Unlock(), redlatch.ErrLost)
	})
}
