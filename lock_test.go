package redlatch_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/lease"
	"github.com/redlatch/redlatch/memstore"
)

func TestDoReleasesOnPanicAndPanicsOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, _ := pair(t)
		func() {
			defer func() {
				if got := recover(); got != "boom" {
					t.Errorf("recovered %v, want boom", got)
				}
			}()
			_ = a.Do(t.Context(), "x", redlatch.Options{}, func(context.Context, *redlatch.Held) error { panic("boom") })
		}()
		held, err := b.TryLock(t.Context(), "x", redlatch.Options{})
		if err != nil {
			t.Fatalf("held after the panic: %v", err)
		}
		mustUnlock(t, held)

		var gone sync.WaitGroup
		gone.Go(func() {
			_ = a.Do(t.Context(), "x", redlatch.Options{}, func(context.Context, *redlatch.Held) error { runtime.Goexit(); return nil })
		})
		gone.Wait()
		if held, err = b.TryLock(t.Context(), "x", redlatch.Options{}); err != nil {
			t.Fatalf("held after Goexit: %v", err)
		}
		mustUnlock(t, held)
	})
}

func TestDoReturnsTheErrorOfFn(t *testing.T) {
	a, _, _ := pair(t)
	mine := errors.New("mine")
	err := a.Do(t.Context(), "x", redlatch.Options{}, func(context.Context, *redlatch.Held) error { return mine })
	if err != mine { //nolint:errorlint // the very same, not wrapped
		t.Errorf("got %v, want fn's error as it was", err)
	}
}

func TestDoSaysThatTheHoldWasLostBesideFnsError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, m := pair(t)
		mine := errors.New("mine")
		err := a.Do(t.Context(), "x", redlatch.Options{TTL: ttl}, func(ctx context.Context, _ *redlatch.Held) error {
			m.set(func(m *meddler) { m.down = true })
			<-ctx.Done()
			m.set(func(m *meddler) { m.down = false })
			return mine
		})
		mustBe(t, err, mine, redlatch.ErrLost)
	})
}

func TestWaitersGetTheLockInOrderAndFencesGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, _ := pair(t)
		held := mustLock(t, a, "x", redlatch.Options{})
		fence := held.Fence()
		order := make(chan int, 20)
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				l := a
				if i%2 == 0 {
					l = b
				}
				if err := l.Do(t.Context(), "x", redlatch.Options{}, func(_ context.Context, held *redlatch.Held) error {
					if held.Fence() <= fence {
						t.Errorf("fence %d after %d", held.Fence(), fence)
					}
					fence = held.Fence()
					order <- i
					return nil
				}); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait() // it stands in line
		}
		mustUnlock(t, held)
		all.Wait()
		for i := range 20 {
			if got := <-order; got != i {
				t.Errorf("number %d came in place %d", got, i)
			}
		}
	})
}

func TestAWaitLongerThanTheTTLIsFine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, _ := pair(t)
		held := mustLock(t, a, "x", redlatch.Options{TTL: ttl})
		time.AfterFunc(20*ttl, func() { mustUnlock(t, held) })
		start := time.Now()
		other := mustLock(t, b, "x", redlatch.Options{TTL: ttl, MaxWait: time.Hour})
		if waited := time.Since(start); waited < 20*ttl || waited > 20*ttl+time.Second {
			t.Errorf("got it after %v, it was free after %v", waited, 20*ttl)
		}
		mustUnlock(t, other)
	})
}

func TestMaxWaitEndsTheWaitAndNamesTheHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, _ := pair(t)
		held := mustLock(t, a, "x", redlatch.Options{})
		start := time.Now()
		_, err := b.Lock(t.Context(), "x", redlatch.Options{MaxWait: 700 * time.Millisecond})
		if waited := time.Since(start); waited < 700*time.Millisecond || waited > 800*time.Millisecond {
			t.Errorf("waited %v", waited)
		}
		mustBe(t, err, redlatch.ErrHeld)
		mustNotBe(t, err, context.DeadlineExceeded, redlatch.ErrUnavailable)
		var busy *redlatch.HeldError
		if !errors.As(err, &busy) || busy.Holder == nil || busy.Holder.Owner.Name != "alice" || busy.Holder.Ticket != held.Fence() || busy.Waited == 0 {
			t.Errorf("%v (%+v) does not say who holds it", err, busy)
		}
		if got := err.Error(); !strings.Contains(got, `lock "x": held by alice (pid 1`) {
			t.Errorf("message %q", got)
		}
		mustUnlock(t, held)
	})
}

func TestADeadlineWhileWaitingIsBothHeldAndTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, _ := pair(t)
		held := mustLock(t, a, "x", redlatch.Options{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := b.Lock(ctx, "x", redlatch.Options{})
		mustBe(t, err, redlatch.ErrHeld, context.DeadlineExceeded)
		mustUnlock(t, held)
	})
}

func TestMaxAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, m := pair(t)
		held := mustLock(t, b, "x", redlatch.Options{})
		_, err := a.Lock(t.Context(), "x", redlatch.Options{MaxAttempts: 1})
		mustBe(t, err, redlatch.ErrHeld)
		mustUnlock(t, held)

		w := locker(t, m, redlatch.Config{OnUnavailable: redlatch.Wait})
		m.set(func(m *meddler) { m.down = true })
		m.joins.Store(0)
		_, err = w.Lock(t.Context(), "x", redlatch.Options{MaxAttempts: 4})
		mustBe(t, err, redlatch.ErrUnavailable)
		if n := m.joins.Load(); n != 4 {
			t.Errorf("%d joins, want 4", n)
		}
		m.set(func(m *meddler) { m.down = false })
	})
}

func TestOnUnavailableWaitSurvivesAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, m := pair(t)
		l := locker(t, m, redlatch.Config{OnUnavailable: redlatch.Wait})
		m.set(func(m *meddler) { m.down = true })
		time.AfterFunc(10*time.Second, func() { m.set(func(m *meddler) { m.down = false }) })
		start := time.Now()
		held := mustLock(t, l, "x", redlatch.Options{})
		if took := time.Since(start); took < 10*time.Second || took > 12*time.Second {
			t.Errorf("got it after %v, the store was back after 10s", took)
		}
		mustUnlock(t, held)

		m.set(func(m *meddler) { m.down = true })
		_, err := l.Lock(t.Context(), "x", redlatch.Options{MaxWait: 3 * time.Second})
		mustBe(t, err, redlatch.ErrUnavailable)
		mustNotBe(t, err, redlatch.ErrHeld)
		m.set(func(m *meddler) { m.down = false })
	})
}

func TestTryLockDoesNotPassThoseWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, _ := pair(t)
		held := mustLock(t, a, "x", redlatch.Options{Shared: true})
		done := make(chan struct{})
		go func() {
			defer close(done)
			mustUnlock(t, mustLock(t, b, "x", redlatch.Options{}))
		}()
		synctest.Wait()
		_, err := b.TryLock(t.Context(), "x", redlatch.Options{Shared: true})
		mustBe(t, err, redlatch.ErrHeld)
		mustUnlock(t, held)
		<-done
	})
}

func TestMaxWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := locker(t, memstore.New(), redlatch.Config{MaxWaiters: 1})
		held := mustLock(t, l, "x", redlatch.Options{})
		done := make(chan struct{})
		go func() {
			defer close(done)
			mustUnlock(t, mustLock(t, l, "x", redlatch.Options{}))
		}()
		synctest.Wait()
		_, err := l.Lock(t.Context(), "x", redlatch.Options{})
		mustBe(t, err, redlatch.ErrQueueFull)
		mustUnlock(t, held)
		<-done
	})
}

func TestStopMarginEndsTheContextThatMuchEarlier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, m := pair(t)
		held := mustLock(t, a, "x", redlatch.Options{TTL: ttl, StopMargin: time.Second})
		start := time.Now()
		m.set(func(m *meddler) { m.down = true })
		lostWhy(t, held)
		if ended := time.Since(start); ended != trustOf(ttl)-time.Second {
			t.Errorf("ended after %v, want %v", ended, trustOf(ttl)-time.Second)
		}
		m.set(func(m *meddler) { m.down = false })
		mustBe(t, held.Unlock(), redlatch.ErrLost)

		held = mustLock(t, a, "x", redlatch.Options{TTL: ttl, StopMargin: ttl / 2})
		time.Sleep(20 * ttl)
		if !held.Valid() {
			t.Error("renewals do not take the margin into account")
		}
		mustUnlock(t, held)
	})
}

func TestHoldAtLeastKeepsTheNameClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, _ := pair(t)
		start := time.Now()
		mustUnlock(t, mustLock(t, a, "x", redlatch.Options{HoldAtLeast: time.Minute}))
		_, err := b.TryLock(t.Context(), "x", redlatch.Options{})
		mustBe(t, err, redlatch.ErrSealed)
		mustNotBe(t, err, redlatch.ErrHeld)
		_, err = b.Lock(t.Context(), "x", redlatch.Options{OnSeal: lease.SealFail})
		mustBe(t, err, redlatch.ErrSealed)
		held := mustLock(t, b, "x", redlatch.Options{})
		if after := time.Since(start); after < time.Minute || after > time.Minute+time.Second {
			t.Errorf("the next one got it after %v", after)
		}
		mustUnlock(t, held)
		mustUnlock(t, mustLock(t, b, "x", redlatch.Options{}))
	})
}

func TestASealTellsWaitersWhoDoNotWantToWaitForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, _ := pair(t)
		held := mustLock(t, a, "x", redlatch.Options{HoldAtLeast: time.Hour})
		got := make(chan error, 1)
		go func() {
			_, err := b.Lock(t.Context(), "x", redlatch.Options{OnSeal: lease.SealFail})
			got <- err
		}()
		synctest.Wait()
		mustUnlock(t, held)
		mustBe(t, <-got, redlatch.ErrSealed)
	})
}

func TestRenewByHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, m := pair(t)
		held := mustLock(t, a, "x", redlatch.Options{TTL: ttl, NoRenew: true})
		time.Sleep(ttl / 2)
		if err := held.Renew(t.Context(), 10*ttl); err != nil {
			t.Fatal(err)
		}
		time.Sleep(9 * ttl)
		if !held.Valid() {
			t.Error("lost before the renewed lease was over")
		}
		if err := held.Renew(t.Context(), time.Nanosecond); !errors.Is(err, redlatch.ErrInvalid) {
			t.Errorf("a TTL of a nanosecond: %v", err)
		}
		mustUnlock(t, held)
		mustBe(t, held.Renew(t.Context(), 0), redlatch.ErrNotHeld)

		held = mustLock(t, b, "x", redlatch.Options{TTL: ttl})
		if err := held.Renew(t.Context(), 100*ttl); err != nil { // for good
			t.Fatal(err)
		}
		if err := held.Renew(t.Context(), time.Second); err != nil { // does not shorten
			t.Fatal(err)
		}
		if left := time.Until(held.Until()); left < 90*ttl {
			t.Errorf("a shorter renewal left %v", left)
		}
		mustUnlock(t, held)
		m.set(func(m *meddler) { m.down = true })
		m.set(func(m *meddler) { m.down = false })
	})
}

// The release that got no answer goes on in the background: a renewal between its tries
// would keep the lock for a holder who has given it up.
func TestAReleaseThatFailedIsNotFollowedByARenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, m := pair(t)
		held := mustLock(t, a, "x", redlatch.Options{TTL: time.Minute})
		m.set(func(m *meddler) { m.down = true })
		mustBe(t, held.Unlock(), redlatch.ErrUnavailable)
		before := m.refs.Load()
		mustBe(t, held.Renew(t.Context(), 0), redlatch.ErrNotHeld)
		mustBe(t, held.Renew(t.Context(), 2*time.Minute), redlatch.ErrNotHeld)
		if after := m.refs.Load(); after != before {
			t.Errorf("%d renewals of a hold that was given back", after-before)
		}
		m.set(func(m *meddler) { m.down = false })
		mustUnlock(t, held)
	})
}

// unheard is a store whose waiting claims learn within a second that it is down.
type unheard struct{ *meddler }

func (u unheard) Wait(ctx context.Context, name, id string, rev uint64) (lease.Standing, error) {
	short, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	st, err := u.Store.Wait(short, name, id, rev)
	if lost := u.meddle(ctx, "wait", func() {}); lost != nil {
		return lease.Standing{}, lost
	}
	return st, err
}

// Who has the lock was true when it was heard; what is known since is that nothing is.
func TestWhoWaitsForASilentStoreIsToldSoAndNotWhoHadTheLock(t *testing.T) {
	for _, heard := range []bool{false, true} {
		t.Run(fmt.Sprintf("a holder was heard of: %v", heard), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New()
				m := &meddler{Store: store, down: !heard}
				a := locker(t, unheard{m}, redlatch.Config{OnUnavailable: redlatch.Wait, Observer: redlatch.Observer{
					Waiting: func(redlatch.Event) { m.set(func(m *meddler) { m.down = true }) },
				}})
				b := locker(t, store, redlatch.Config{})
				held := mustLock(t, b, "x", redlatch.Options{})
				_, err := a.Lock(t.Context(), "x", redlatch.Options{MaxWait: 10 * time.Second})
				mustBe(t, err, redlatch.ErrUnavailable, errDown)
				mustNotBe(t, err, redlatch.ErrHeld)

				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				m.set(func(m *meddler) { m.down = !heard })
				_, err = a.Lock(ctx, "x", redlatch.Options{})
				mustBe(t, err, redlatch.ErrUnavailable, errDown, context.DeadlineExceeded)
				m.set(func(m *meddler) { m.down = false })
				mustUnlock(t, held)
			})
		})
	}
}

func TestUnlockTwiceFromAnotherGoroutineAndAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		l := locker(t, store, redlatch.Config{})
		held := mustLock(t, l, "x", redlatch.Options{})
		errs := make(chan error, 8)
		for range cap(errs) {
			go func() { errs <- held.Unlock() }()
		}
		done := 0
		for range cap(errs) {
			if err := <-errs; err == nil {
				done++
			} else {
				mustBe(t, err, redlatch.ErrNotHeld)
			}
		}
		if done != 1 {
			t.Errorf("%d of 8 unlocks succeeded", done)
		}

		held = mustLock(t, l, "x", redlatch.Options{})
		if err := l.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		mustBe(t, held.Unlock(), redlatch.ErrNotHeld)
		_, err := l.Lock(t.Context(), "x", redlatch.Options{})
		mustBe(t, err, redlatch.ErrClosed)
		mustBe(t, held.Renew(t.Context(), 0), redlatch.ErrNotHeld)
	})
}

func TestReentrancyThroughTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, _ := pair(t)
		re := redlatch.Options{Reentrant: true}
		outer := mustLock(t, a, "x", redlatch.Options{})

		_, err := a.Lock(outer.Context(), "x", redlatch.Options{})
		mustBe(t, err, redlatch.ErrHeld) // at once: it would wait for itself
		inner, err := a.Lock(outer.Context(), "x", re)
		if err != nil {
			t.Fatal(err)
		}
		if inner.Fence() != outer.Fence() || inner.Token() != outer.Token() {
			t.Errorf("fence %d inside %d", inner.Fence(), outer.Fence())
		}
		inmost, err := a.TryLock(inner.Context(), "x", re)
		if err != nil {
			t.Fatal(err)
		}
		other, err := a.TryLock(outer.Context(), "y", re) // another name is another lock
		if err != nil {
			t.Fatal(err)
		}
		mustUnlock(t, other)

		_, err = a.TryLock(t.Context(), "x", re) // not under the hold's context
		mustBe(t, err, redlatch.ErrHeld)
		_, err = b.TryLock(outer.Context(), "x", re) // not this Locker's
		mustBe(t, err, redlatch.ErrHeld)

		mustUnlock(t, outer) // the count decides, not the order
		mustUnlock(t, inner)
		mustBe(t, inner.Unlock(), redlatch.ErrNotHeld)
		if !inmost.Valid() {
			t.Error("the last hold ended with the others")
		}
		_, err = b.TryLock(t.Context(), "x", re)
		mustBe(t, err, redlatch.ErrHeld)
		mustUnlock(t, inmost)
		mustUnlock(t, mustLock(t, b, "x", re))
	})
}

func TestReentrancyEndsWithALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, m := pair(t)
		outer := mustLock(t, a, "x", redlatch.Options{TTL: ttl})
		m.set(func(m *meddler) { m.down = true })
		lostWhy(t, outer)
		m.set(func(m *meddler) { m.down = false })
		_, err := a.Lock(outer.Context(), "x", redlatch.Options{Reentrant: true})
		mustBe(t, err, redlatch.ErrLost)
		mustBe(t, outer.Unlock(), redlatch.ErrLost)
	})
}

func TestLockAllTakesAllOrNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, _ := pair(t)
		all, err := a.LockAll(t.Context(), []string{"c", "a", "b", "a"}, redlatch.Options{TTL: ttl})
		if err != nil {
			t.Fatal(err)
		}
		if n := len(all.Each()); n != 3 || !all.Valid() {
			t.Errorf("%d locks, valid %v", n, all.Valid())
		}
		_, err = b.TryLock(t.Context(), "b", redlatch.Options{})
		mustBe(t, err, redlatch.ErrHeld)
		mustUnlock(t, all)
		if all.Valid() || all.Context().Err() == nil {
			t.Error("valid after the release")
		}

		held := mustLock(t, b, "b", redlatch.Options{})
		start := time.Now()
		_, err = a.LockAll(t.Context(), []string{"a", "b", "c"}, redlatch.Options{MaxWait: time.Second})
		mustBe(t, err, redlatch.ErrHeld)
		if took := time.Since(start); took > 1100*time.Millisecond {
			t.Errorf("MaxWait is for all together, took %v", took)
		}
		for _, name := range []string{"a", "c"} {
			free, err := b.TryLock(t.Context(), name, redlatch.Options{})
			if err != nil {
				t.Errorf("%s was kept: %v", name, err)
				continue
			}
			mustUnlock(t, free)
		}
		mustUnlock(t, held)
	})
}

func TestLockAllIsReentrantInEachOfItsNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, _ := pair(t)
		all, err := a.LockAll(t.Context(), []string{"x", "y"}, redlatch.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, held := range all.Each() {
			if _, err := a.Lock(all.Context(), held.Name(), redlatch.Options{}); err == nil || !strings.Contains(err.Error(), "Reentrant") {
				t.Errorf("waits for itself: %v", err)
			}
			again, err := a.Lock(all.Context(), held.Name(), redlatch.Options{Reentrant: true})
			if err != nil {
				t.Fatal(err)
			}
			if again.Fence() != held.Fence() {
				t.Errorf("fence %d inside the hold with %d", again.Fence(), held.Fence())
			}
			mustUnlock(t, again)
		}
		mustUnlock(t, all)
	})
}

func TestLockAllCannotDeadlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, _ := pair(t)
		var wg sync.WaitGroup
		for i, names := range [][]string{{"x", "y", "z"}, {"z", "y", "x"}, {"y", "x"}, {"z", "x"}} {
			for range 20 {
				l := a
				if i%2 == 0 {
					l = b
				}
				wg.Go(func() {
					all, err := l.LockAll(t.Context(), names, redlatch.Options{})
					if err != nil {
						t.Error(err)
						return
					}
					time.Sleep(time.Millisecond)
					mustUnlock(t, all)
				})
			}
		}
		wg.Wait()
	})
}

func TestLockAllEndsWhenOneIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, m := pair(t)
		all, err := a.LockAll(t.Context(), []string{"a", "b"}, redlatch.Options{TTL: ttl})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.Store.Leave(t.Context(), "b", tokenOf(t, all.Each()[1]).ID, 0, lease.Seal{}); err != nil {
			t.Fatal(err)
		}
		<-all.Context().Done()
		mustBe(t, context.Cause(all.Context()), redlatch.ErrLost)
		mustBe(t, all.Unlock(), redlatch.ErrLost)
	})
}

func TestResumeTakesAHoldUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		first := locker(t, store, redlatch.Config{KeepOnClose: true})
		held := mustLock(t, first, "x", redlatch.Options{TTL: time.Minute})
		token, fence := held.Token(), held.Fence()
		if err := first.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if held.Valid() {
			t.Error("valid after Close")
		}
		mustBe(t, held.Unlock(), redlatch.ErrClosed)

		second := locker(t, store, redlatch.Config{})
		_, err := second.TryLock(t.Context(), "x", redlatch.Options{})
		mustBe(t, err, redlatch.ErrHeld)
		again, err := second.Resume(t.Context(), "x", token, redlatch.Options{TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		if again.Fence() != fence {
			t.Errorf("fence %d, was %d", again.Fence(), fence)
		}
		time.Sleep(10 * time.Minute)
		if !again.Valid() {
			t.Error("a resumed hold is not renewed")
		}
		mustUnlock(t, again)
		_, err = second.Resume(t.Context(), "x", token, redlatch.Options{})
		mustBe(t, err, redlatch.ErrLost)
		_, err = second.Resume(t.Context(), "x", "gibberish", redlatch.Options{})
		mustBe(t, err, redlatch.ErrInvalid)
	})
}

func TestReleaseByToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, _ := pair(t)
		held := mustLock(t, a, "x", redlatch.Options{TTL: time.Minute})
		token := held.Token()
		mustBe(t, b.Release(t.Context(), "x", "gibberish"), redlatch.ErrInvalid)
		if err := b.Release(t.Context(), "x", token); err != nil {
			t.Fatal(err)
		}
		mustBe(t, b.Release(t.Context(), "x", token), redlatch.ErrNotHeld)
		mustBe(t, held.Unlock(), redlatch.ErrLost) // its own process is told
		other := mustLock(t, b, "x", redlatch.Options{TTL: time.Minute})
		mustBe(t, b.Release(t.Context(), "x", token), redlatch.ErrHeld)
		if !other.Valid() || other.Renew(t.Context(), 0) != nil {
			t.Error("an old token released another hold")
		}
		if _, err := a.Break(t.Context(), "x", redlatch.BreakOptions{By: "ops", Reason: "r"}); err != nil {
			t.Fatal(err)
		}
		_, err := a.TryLock(t.Context(), "x", redlatch.Options{})
		mustBe(t, err, redlatch.ErrSealed)
		mustBe(t, a.Release(t.Context(), "x", other.Token()), redlatch.ErrNotHeld) // that was the answer
		mustBe(t, other.Unlock(), redlatch.ErrLost)
		mustUnlock(t, mustLock(t, a, "x", redlatch.Options{}))
	})
}

func TestBreakKeepsTheNameClosedUntilTheHolderStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, m := pair(t)
		held := mustLock(t, a, "x", redlatch.Options{TTL: time.Minute})
		_, err := b.Break(t.Context(), "x", redlatch.BreakOptions{Fence: held.Fence() + 1})
		mustBe(t, err, redlatch.ErrHeld) // compare-and-break: another hold was meant
		if !held.Valid() {
			t.Error("a break of another hold hit this one")
		}
		start := time.Now()
		if _, err := b.Break(t.Context(), "x", redlatch.BreakOptions{Fence: held.Fence(), Reason: "r"}); err != nil {
			t.Fatal(err)
		}
		_, err = b.TryLock(t.Context(), "x", redlatch.Options{})
		mustBe(t, err, redlatch.ErrSealed)

		lostWhy(t, held)
		mustBe(t, held.Unlock(), redlatch.ErrLost) // the answer: the name opens
		other, err := b.TryLock(t.Context(), "x", redlatch.Options{})
		if err != nil {
			t.Fatalf("closed though the victim has answered: %v", err)
		}
		if took := time.Since(start); took > 30*time.Second {
			t.Errorf("the holder was told after %v", took)
		}
		mustUnlock(t, other)

		held = mustLock(t, a, "x", redlatch.Options{TTL: time.Minute})
		m.set(func(m *meddler) { m.down = true }) // the victim hears nothing
		start = time.Now()
		if _, err := b.Break(t.Context(), "x", redlatch.BreakOptions{}); err != nil {
			t.Fatal(err)
		}
		other = mustLock(t, b, "x", redlatch.Options{})
		if held.Valid() {
			t.Errorf("two hold it %v after the break", time.Since(start))
		}
		mustUnlock(t, other)
		m.set(func(m *meddler) { m.down = false })
		_, err = b.Break(t.Context(), "x", redlatch.BreakOptions{})
		mustBe(t, err, redlatch.ErrNotHeld)
	})
}

// Nothing but the message ends these holds: no renewal is due, and the second one is
// never renewed at all, also not by the question whether it is still there.
func TestABrokenHoldEndsAtOnceAndKnowsWhy(t *testing.T) {
	for _, o := range []redlatch.BreakOptions{{}, {Now: true}, {Take: time.Minute}} {
		for _, noRenew := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				a, b, _ := pair(t)
				held := mustLock(t, a, "x", redlatch.Options{TTL: time.Hour, NoRenew: noRenew})
				o.By, o.Reason = "carol", "deploy stuck"
				start := time.Now()
				if _, err := b.Break(t.Context(), "x", o); err != nil {
					t.Fatal(err)
				}
				loss := lostWhy(t, held)
				if loss.Why != lease.Broken || loss.By != "carol" || loss.Reason != "deploy stuck" {
					t.Errorf("now %v: lost because %v, want broken by carol", o.Now, &loss)
				}
				if took := time.Since(start); took != 0 {
					t.Errorf("now %v: told after %v", o.Now, took)
				}
				other, err := b.TryLock(t.Context(), "x", redlatch.Options{})
				if got := err == nil; got != o.Now {
					t.Errorf("now %v: the name is free before the holder has answered: %v", o.Now, err)
				} else if got {
					mustUnlock(t, other)
				}
				_ = held.Unlock() // the answer
			})
		}
	}
}

// A notice may be wrong, or about a hold that was got anew: the store has the say.
func TestANoticeIsNoProof(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var store memstore.Store
		l := locker(t, &store, redlatch.Config{})
		held := mustLock(t, l, "x", redlatch.Options{TTL: time.Minute, NoRenew: true})
		expires := func() time.Time {
			q, err := store.Inspect(t.Context(), "x")
			if err != nil || len(q.Claims) != 1 {
				t.Fatalf("%d claims, error %v", len(q.Claims), err)
			}
			return q.Claims[0].Expires
		}
		before := expires()
		time.Sleep(time.Second)
		store.Tell(driver.Notice{Name: "x", ID: tokenOf(t, held).ID})
		synctest.Wait()
		if !held.Valid() {
			t.Error("a hold ended because of a message")
		}
		if after := expires(); !after.Equal(before) {
			t.Errorf("a hold that is not to be renewed was, by %v", after.Sub(before))
		}
		mustUnlock(t, held)
	})
}

// After Unlock nothing is sent, also not the question that a notice led to.
func TestUnlockWaitsForTheQuestionOfANotice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var store memstore.Store
		m := &meddler{Store: &store}
		l := locker(t, m, redlatch.Config{})
		held := mustLock(t, l, "x", redlatch.Options{TTL: time.Minute})
		asked := make(chan struct{})
		var late atomic.Bool
		m.set(func(m *meddler) {
			m.before = func(_ context.Context, verb string) {
				if verb == "renew" {
					close(asked)
					time.Sleep(100 * time.Millisecond)
					late.Store(true)
				}
			}
		})
		store.Tell(driver.Notice{Name: "x", ID: tokenOf(t, held).ID})
		<-asked
		mustUnlock(t, held)
		if !late.Load() {
			t.Error("unlocked while a renewal was on its way")
		}
	})
}

func TestBreakAndTakeKeepsTheNameForWhoBreaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, _ := pair(t)
		held := mustLock(t, a, "x", redlatch.Options{TTL: time.Minute})
		_, err := b.Break(t.Context(), "x", redlatch.BreakOptions{Take: time.Hour, Now: true})
		mustBe(t, err, redlatch.ErrInvalid)
		mustBe(t, b.Reopen(t.Context(), "x", "ops"), redlatch.ErrNotHeld)
		waits := make(chan *redlatch.Held)
		go func() {
			got, err := b.Lock(t.Context(), "x", redlatch.Options{})
			if err != nil {
				t.Error(err)
			}
			waits <- got
		}()
		synctest.Wait()
		start := time.Now()
		broken, err := b.Break(t.Context(), "x", redlatch.BreakOptions{By: "ops", Reason: "r", Take: time.Hour})
		if err != nil || broken.Ticket != held.Fence() || broken.Left <= 0 || broken.Left > time.Minute {
			t.Fatalf("broken %+v, %v", broken, err)
		}
		mustBe(t, b.Reopen(t.Context(), "x", "ops"), redlatch.ErrSealed) // its holder may still be at work
		if loss := lostWhy(t, held); loss.Why != lease.Broken || loss.By != "ops" || loss.Reason != "r" {
			t.Errorf("the holder is told %+v", loss)
		}
		mustBe(t, held.Unlock(), redlatch.ErrLost)
		time.Sleep(2 * time.Minute)
		_, err = a.TryLock(t.Context(), "x", redlatch.Options{})
		mustBe(t, err, redlatch.ErrSealed)
		mustBe(t, b.Reopen(t.Context(), "x", "somebody else"), redlatch.ErrSealed)
		select {
		case <-waits:
			t.Fatalf("somebody who waited got it %v after it was taken", time.Since(start))
		default:
		}
		if err := b.Reopen(t.Context(), "x", "ops"); err != nil {
			t.Fatal(err)
		}
		mustUnlock(t, <-waits)
		if took := time.Since(start); took > 3*time.Minute {
			t.Errorf("it took %v", took)
		}

		held = mustLock(t, a, "x", redlatch.Options{TTL: time.Minute})
		if _, err := b.Break(t.Context(), "x", redlatch.BreakOptions{Take: time.Second}); err != nil {
			t.Fatal(err)
		}
		lostWhy(t, held)
		start = time.Now()
		mustUnlock(t, mustLock(t, b, "x", redlatch.Options{}))
		if !held.Until().Before(time.Now()) {
			t.Errorf("it opens %v after the break, while its holder's lease runs", time.Since(start))
		}
	})
}

func TestCloseEndsWaitersAndReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		l := locker(t, store, redlatch.Config{})
		other := locker(t, store, redlatch.Config{})
		blocker := mustLock(t, other, "busy", redlatch.Options{})
		var holds []*redlatch.Held
		for _, name := range []string{"a", "b", "c"} {
			holds = append(holds, mustLock(t, l, name, redlatch.Options{}))
		}
		waits := make(chan error, 1)
		go func() {
			_, err := l.Lock(t.Context(), "busy", redlatch.Options{})
			waits <- err
		}()
		synctest.Wait()
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
		mustBe(t, <-waits, redlatch.ErrClosed)
		for _, held := range holds {
			if held.Context().Err() == nil {
				t.Errorf("%s lives on", held.Name())
			}
			free, err := other.TryLock(t.Context(), held.Name(), redlatch.Options{})
			if err != nil {
				t.Errorf("%s was not released: %v", held.Name(), err)
				continue
			}
			mustUnlock(t, free)
		}
		q, err := other.Inspect(t.Context(), "busy")
		if err != nil || len(q.Waiters()) != 0 {
			t.Errorf("%d waiters left (%v)", len(q.Waiters()), err)
		}
		mustUnlock(t, blocker)
		if err := l.Close(t.Context()); err != nil {
			t.Errorf("closed twice: %v", err)
		}
	})
}

func TestCloseIsBoundedByItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &meddler{Store: memstore.New()}
		l, err := redlatch.New(m, redlatch.Config{})
		if err != nil {
			t.Fatal(err)
		}
		mustLock(t, l, "x", redlatch.Options{TTL: time.Minute})
		m.set(func(m *meddler) { m.hung = true })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		mustBe(t, l.Close(ctx), context.DeadlineExceeded)
		if took := time.Since(start); took > 1100*time.Millisecond {
			t.Errorf("took %v", took)
		}
		m.set(func(m *meddler) { m.hung = false })
		_ = l.Close(t.Context())
	})
}

func TestTenThousandHoldsCostOneGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 10_000
		m := &meddler{Store: memstore.New()}
		l := locker(t, m, redlatch.Config{})
		base := runtime.NumGoroutine()
		holds := make([]*redlatch.Held, n)
		for i := range holds {
			holds[i] = mustLock(t, l, "n"+string(rune('a'+i%26))+"/"+time.Duration(i).String(), redlatch.Options{})
		}
		if now := runtime.NumGoroutine(); now > base+2 {
			t.Errorf("%d goroutines for %d holds", now-base, n)
		}
		time.Sleep(10 * time.Minute)
		for _, held := range holds {
			if !held.Valid() {
				t.Fatalf("%s was lost: %v", held.Name(), context.Cause(held.Context()))
			}
		}
		// 10 s between renewals: 60 rounds of 20 batches of 500.
		if calls, refs := m.renews.Load(), m.refs.Load(); refs < 50*n || calls > 70*n/500+100 {
			t.Errorf("%d renewals in %d calls", refs, calls)
		}
		if err := l.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		endsWith(t, base)
	})
}

func TestAnIdleLockerRunsNoGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, _ := pair(t)
		base := runtime.NumGoroutine()
		mustUnlock(t, mustLock(t, a, "x", redlatch.Options{}))
		endsWith(t, base)
	})
}

// endsWith sees to it that no more than that many goroutines are left. One that has told
// others that it is done counts until the scheduler has buried it.
func endsWith(t *testing.T, goroutines int) {
	t.Helper()
	left := 0
	for range 1000 {
		synctest.Wait()
		if left = runtime.NumGoroutine() - goroutines; left <= 0 {
			return
		}
		runtime.Gosched()
	}
	stacks := make([]byte, 1<<20)
	t.Errorf("%d goroutines are left:\n%s", left, stacks[:runtime.Stack(stacks, true)])
}

func TestTheObserverIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told, later []string // later: in a goroutine of their own
		var mu sync.Mutex
		note := func(what string, check func(e redlatch.Event) bool) func(redlatch.Event) {
			return func(e redlatch.Event) {
				mu.Lock()
				defer mu.Unlock()
				if e.Name != "x" || !check(e) {
					t.Errorf("%s: %+v", what, e)
				}
				all := &told
				if what == "lost" || what == "released" {
					all = &later
				}
				if len(*all) == 0 || (*all)[len(*all)-1] != what {
					*all = append(*all, what)
				}
			}
		}
		m := &meddler{Store: memstore.New()}
		l := locker(t, m, redlatch.Config{Observer: redlatch.Observer{
			Waiting:  note("waiting", func(e redlatch.Event) bool { return e.Holder != nil && e.Ahead == 1 }),
			Waited:   note("waited", func(e redlatch.Event) bool { return e.Waited == time.Second/2 && e.Err == nil }),
			Acquired: note("acquired", func(e redlatch.Event) bool { return e.Fence > 0 }),
			Renewed:  note("renewed", func(e redlatch.Event) bool { return e.Slack > ttl/2 && e.Slack < ttl }),
			Lost:     note("lost", func(e redlatch.Event) bool { return errors.Is(e.Err, redlatch.ErrLost) && e.Held > ttl }),
			Released: note("released", func(e redlatch.Event) bool { return e.Held >= time.Second/2 }),
		}})
		held := mustLock(t, l, "x", redlatch.Options{TTL: ttl})
		time.AfterFunc(time.Second/2, func() { mustUnlock(t, held) })
		held2 := mustLock(t, l, "x", redlatch.Options{TTL: ttl})
		time.Sleep(2 * ttl)
		m.set(func(m *meddler) { m.down = true })
		lostWhy(t, held2)
		m.set(func(m *meddler) { m.down = false })
		mustBe(t, held2.Unlock(), redlatch.ErrLost)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if got := strings.Join(told, " "); got != "acquired waiting waited acquired renewed" {
			t.Errorf("told: %s", got)
		}
		if got := strings.Join(later, " "); got != "released lost released" {
			t.Errorf("told later: %s", got)
		}
	})
}

func TestTheObserverIsToldOnceThatRenewalsAreLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var late []redlatch.Event
		renewed := make(chan struct{}, 1)
		m := &meddler{Store: memstore.New()}
		l := locker(t, m, redlatch.Config{Observer: redlatch.Observer{
			Late: func(e redlatch.Event) { late = append(late, e) },
			Renewed: func(redlatch.Event) {
				select {
				case renewed <- struct{}{}:
				default:
				}
			},
		}})
		for what, o := range map[string]redlatch.Options{"without a margin": {TTL: ttl}, "with one": {TTL: ttl, StopMargin: ttl / 2}} {
			trust := ttl - o.StopMargin
			held := mustLock(t, l, "x", o)
			failFor := func(d time.Duration) {
				synctest.Wait()
				select {
				case <-renewed:
				default:
				}
				<-renewed
				m.set(func(m *meddler) { m.down = true })
				time.Sleep(d)
				m.set(func(m *meddler) { m.down = false })
			}
			failFor(trust / 2)
			<-renewed
			synctest.Wait()
			if len(late) != 0 {
				t.Errorf("%s: told though half was left: %+v", what, late)
			}
			failFor(trust * 3 / 4)
			<-renewed
			time.Sleep(2 * ttl)
			synctest.Wait()
			if len(late) != 1 || late[0].Name != "x" || late[0].Fence != held.Fence() || late[0].Slack < o.StopMargin || late[0].Slack > o.StopMargin+trust/3 {
				t.Errorf("%s: told of a renewal that was late, and of those after it: %+v", what, late)
			}
			late = nil
			synctest.Wait()
			m.set(func(m *meddler) { m.down = true })
			<-held.Context().Done()
			synctest.Wait()
			if len(late) != 1 || !errors.Is(late[0].Err, errDown) {
				t.Errorf("%s: told of renewals that fail: %+v", what, late)
			}
			late = nil
			synctest.Wait()
			m.set(func(m *meddler) { m.down = false })
			mustBe(t, held.Unlock(), redlatch.ErrLost)
		}
	})
}

func TestNewComparesWhatTheProgramNeeds(t *testing.T) {
	_, err := redlatch.New(weak{memstore.New()}, redlatch.Config{Require: driver.Features{Fence: true, FIFO: true}})
	mustBe(t, err, redlatch.ErrUnsupported)
	if !strings.Contains(err.Error(), "fencing tokens, first come, first served") {
		t.Errorf("message: %v", err)
	}
	l := locker(t, weak{memstore.New()}, redlatch.Config{})
	_, err = l.Lock(t.Context(), "x", redlatch.Options{Shared: true})
	mustBe(t, err, redlatch.ErrUnsupported)
	_, err = l.Lock(t.Context(), "x", redlatch.Options{HoldAtLeast: time.Second})
	mustBe(t, err, redlatch.ErrUnsupported)
}

type weak struct{ driver.Store }

func (weak) Features() driver.Features { return driver.Features{Modes: []lease.Mode{lease.Exclusive}} }

func TestThePrefixStandsBeforeEveryName(t *testing.T) {
	store := memstore.New()
	a := locker(t, store, redlatch.Config{Prefix: "prod/"})
	b := locker(t, store, redlatch.Config{})
	held := mustLock(t, a, "x", redlatch.Options{})
	_, err := b.TryLock(t.Context(), "prod/x", redlatch.Options{})
	mustBe(t, err, redlatch.ErrHeld)
	for name, err := range a.Names(t.Context(), "") {
		if name != "x" || err != nil {
			t.Errorf("listed %q, %v", name, err)
		}
	}
	if held.Name() != "x" {
		t.Errorf("name %q", held.Name())
	}
	mustUnlock(t, held)
}

// handsOver dates grants as a store does that grants without being asked again: from
// the claim's last join, and for no longer than grant.
type handsOver struct {
	driver.Store

	grant time.Duration
	asked sync.Map
}

func (h *handsOver) Join(ctx context.Context, name string, c lease.Claim) (lease.Standing, error) {
	st, err := h.Store.Join(ctx, name, c)
	h.asked.Store(c.ID, st.Asked)
	return st, err
}

func (h *handsOver) Wait(ctx context.Context, name, id string, rev uint64) (lease.Standing, error) {
	st, err := h.Store.Wait(ctx, name, id, rev)
	if st.State == lease.Held {
		asked, _ := h.asked.Load(id)
		st.Asked, st.Lease = asked.(lease.Instant), min(st.Lease, h.grant)
	}
	return st, err
}

func TestAGrantThatIsOldIsConfirmedByAJoin(t *testing.T) {
	for _, tt := range []struct {
		name    string
		waits   time.Duration
		o       redlatch.Options
		joins   int64
		trusted time.Duration // from when the lock was got
	}{
		{"a fresh grant is taken as it is", time.Second, redlatch.Options{TTL: time.Minute}, 1, 5*time.Second - lease.Drift(5*time.Second) - time.Second},
		{"one of which less than half is left is not", 3 * time.Second, redlatch.Options{TTL: time.Minute}, 2, trustOf(time.Minute)},
		{"one that is over is not", time.Hour, redlatch.Options{TTL: time.Minute}, 2, trustOf(time.Minute)},
		{"one that is over, as long as the TTL", time.Hour, redlatch.Options{TTL: 5 * time.Second}, 2, trustOf(5 * time.Second)},
		{"no renewal would follow", time.Second, redlatch.Options{TTL: time.Minute, NoRenew: true}, 2, trustOf(time.Minute)},
		{"a margin longer than the grant", time.Second, redlatch.Options{TTL: time.Minute, StopMargin: 6 * time.Second}, 2, trustOf(time.Minute)},
		{"confirmation is asked for", time.Second, redlatch.Options{TTL: time.Minute, Confirm: true}, 2, trustOf(time.Minute)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New()
				m := &meddler{Store: store}
				a := locker(t, &handsOver{Store: m, grant: 5 * time.Second}, redlatch.Config{})
				b := locker(t, store, redlatch.Config{})
				held := mustLock(t, b, "x", redlatch.Options{})
				time.AfterFunc(tt.waits, func() { mustUnlock(t, held) })
				got := mustLock(t, a, "x", tt.o)
				if n := m.joins.Load(); n != tt.joins {
					t.Errorf("%d joins, want %d", n, tt.joins)
				}
				if left := time.Until(got.Until()); left != tt.trusted {
					t.Errorf("trusted for %v, want %v", left, tt.trusted)
				}
				mustUnlock(t, got)
			})
		})
	}
}

// Another library's value releases that library's lock: no message may carry it whole.
func TestAForeignTokenIsNotInAnyMessage(t *testing.T) {
	const token = "3f2504e0-4f89-11d3-9a0c-0305e82c3301"
	held := &redlatch.HeldError{Holder: &lease.Holder{Foreign: token}}
	l := locker(t, foreignHolder{memstore.New(), token}, redlatch.Config{})
	_, err := l.Break(t.Context(), "x", redlatch.BreakOptions{})
	for _, err := range []error{held, err} {
		if text := err.Error(); strings.Contains(text, token) || !strings.Contains(text, token[:8]) {
			t.Errorf("message %q", text)
		}
	}
}

type foreignHolder struct {
	driver.Store

	token string
}

func (f foreignHolder) Inspect(context.Context, string) (lease.Queue, error) {
	return lease.Queue{Claims: []lease.Entry{{Foreign: f.token, Granted: time.Now()}}}, nil
}
