package redlatch_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/internal/elapsed"
	"github.com/redlatch/redlatch/lease"
	"github.com/redlatch/redlatch/memstore"
)

// The rules of time and of doubt, in the order of DESIGN §6 and ARCHITECTURE.md. Each
// test fails when its rule is taken out of the code.

const ttl = 3 * time.Second

func trustOf(ttl time.Duration) time.Duration { return ttl - lease.Drift(ttl) }

func TestRule1TrustEndsBeforeTheLeaseWhenTheStoreFallsSilent(t *testing.T) {
	for _, how := range []struct {
		name string
		set  func(m *meddler)
	}{
		{"the calls do not get there", func(m *meddler) { m.down = true }},
		{"the calls hang", func(m *meddler) { m.hung = true }},
	} {
		t.Run(how.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b, m := pair(t)
				held := mustLock(t, a, "x", redlatch.Options{TTL: ttl})
				start := time.Now()
				m.set(how.set)

				got := make(chan time.Duration)
				go func() {
					other := mustLock(t, b, "x", redlatch.Options{TTL: ttl})
					got <- time.Since(start)
					mustUnlock(t, other)
				}()
				loss := lostWhy(t, held)
				if ended := time.Since(start); ended != trustOf(ttl) {
					t.Errorf("the context ended after %v, want %v", ended, trustOf(ttl))
				}
				if after := <-got; after < ttl {
					t.Errorf("the other one got it after %v", after)
				}
				if loss.Why != lease.Unreachable || loss.Cause == nil {
					t.Errorf("lost because %v, want unreachable with a cause", &loss)
				}
				mustBe(t, held.Unlock(), redlatch.ErrLost)
			})
		})
	}
}

func TestRule1ARenewalWhoseReplyIsLostBuysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, m := pair(t)
		held := mustLock(t, a, "x", redlatch.Options{TTL: ttl})
		start := time.Now()
		m.set(func(m *meddler) { m.mute = true })
		lostWhy(t, held)
		if ended := time.Since(start); ended != trustOf(ttl) {
			t.Errorf("the context ended after %v, want %v: only acknowledged renewals count", ended, trustOf(ttl))
		}
		m.set(func(m *meddler) { m.mute = false })
		mustBe(t, held.Unlock(), redlatch.ErrLost)
	})
}

func TestRule1TrustCountsFromTheSendNotFromTheReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, m := pair(t)
		m.set(func(m *meddler) { m.late = 400 * time.Millisecond })
		sent := time.Now()
		held := mustLock(t, a, "x", redlatch.Options{TTL: ttl, NoRenew: true})
		if until := held.Until().Sub(sent); until != trustOf(ttl) {
			t.Errorf("trusted until %v after the send, want %v", until, trustOf(ttl))
		}
		lostWhy(t, held)
		if ended := time.Since(sent); ended != trustOf(ttl) {
			t.Errorf("the context ended %v after the send, want %v", ended, trustOf(ttl))
		}
		mustBe(t, held.Unlock(), redlatch.ErrLost)

		held = mustLock(t, a, "y", redlatch.Options{TTL: ttl})
		renewal := make(chan time.Time, 1)
		m.set(func(m *meddler) {
			m.before = func(_ context.Context, verb string) {
				if verb == "renew" {
					renewal <- time.Now()
				}
			}
		})
		before := held.Until()
		sent = <-renewal
		time.Sleep(399 * time.Millisecond)
		if until := held.Until(); until != before {
			t.Errorf("trusted for %v longer before the renewal was answered", until.Sub(before))
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		if until := held.Until().Sub(sent); until != trustOf(ttl) {
			t.Errorf("trusted until %v after the renewal was sent, want %v", until, trustOf(ttl))
		}
		mustUnlock(t, held)
	})
}

func TestRule1AnAnswerThatComesTooLateIsNoLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, m := pair(t)
		m.set(func(m *meddler) { m.late = 600 * time.Millisecond })
		_, err := a.Lock(t.Context(), "x", redlatch.Options{TTL: 500 * time.Millisecond})
		mustBe(t, err, redlatch.ErrUnavailable)
		mustNotBe(t, err, redlatch.ErrHeld)
		synctest.Wait()
		mustUnlock(t, mustLock(t, b, "x", redlatch.Options{}))
	})
}

// The goroutine that finds a loss may not run between finding it and ending the context,
// and an observer may be slow: whoever asks must not be told that all is well meanwhile.
func TestRule1NoLossIsSeenLateBecauseAnotherIsBeingTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		block := make(chan struct{})
		l := locker(t, memstore.New(), redlatch.Config{Observer: redlatch.Observer{
			Lost: func(redlatch.Event) { <-block },
		}})
		x := mustLock(t, l, "x", redlatch.Options{TTL: ttl, NoRenew: true})
		y := mustLock(t, l, "y", redlatch.Options{TTL: ttl, NoRenew: true})
		time.Sleep(ttl)
		synctest.Wait()
		for _, held := range []*redlatch.Held{x, y} {
			select {
			case <-held.Context().Done():
			default:
				t.Errorf("the context of %s has not ended", held.Name())
			}
			if held.Valid() {
				t.Errorf("%s is valid after its lease", held.Name())
			}
		}
		close(block)
		mustBe(t, x.Unlock(), redlatch.ErrLost)
		mustBe(t, y.Unlock(), redlatch.ErrLost)
	})
}

func TestRule2TheHoldEndsAcrossASuspend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, _ := pair(t)
		held := mustLock(t, a, "x", redlatch.Options{TTL: time.Hour})
		quiet := mustLock(t, a, "y", redlatch.Options{TTL: time.Hour})
		synctest.Wait()              // all timers are set
		elapsed.Sleep(2 * time.Hour) // and none has moved
		if held.Valid() {
			t.Error("still valid after the machine slept through the lease")
		}
		if held.Context().Err() == nil {
			t.Error("Err is nil after the machine slept through the lease")
		}
		woke := time.Now()
		if loss := lostWhy(t, quiet); loss.Why != lease.Expired { // nobody asks this one
			t.Errorf("lost because %v, want expired", &loss)
		}
		if took := time.Since(woke); took > time.Second {
			t.Errorf("told %v after the machine woke, want a second at most", took)
		}
	})
}

func TestRule2ASuspendInsideTheAcquireCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, m := pair(t)
		m.set(func(m *meddler) {
			m.before = func(_ context.Context, verb string) {
				if verb == "join" {
					elapsed.Sleep(time.Hour)
				}
			}
		})
		m.Store = slowJoin{m.Store}
		_, err := a.TryLock(t.Context(), "x", redlatch.Options{TTL: time.Minute})
		mustBe(t, err, redlatch.ErrUnavailable)
	})
}

// slowJoin sleeps through every join with the whole machine, after it was sent.
type slowJoin struct{ driver.Store }

func (s slowJoin) Join(ctx context.Context, name string, c lease.Claim) (lease.Standing, error) {
	st, err := s.Store.Join(ctx, name, c)
	elapsed.Sleep(time.Hour)
	return st, err
}

func TestRule3TheAcquireContextBoundsTheWaitOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, _ := pair(t)
		type key struct{}
		ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), key{}, "v"), time.Second)
		held, err := a.Lock(ctx, "x", redlatch.Options{TTL: ttl})
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		time.Sleep(10 * ttl)
		if !held.Valid() {
			t.Error("the hold ended with the context of the acquire")
		}
		if held.Context().Value(key{}) != "v" {
			t.Error("the hold's context lost the caller's values")
		}
		_, err = b.TryLock(t.Context(), "x", redlatch.Options{})
		mustBe(t, err, redlatch.ErrHeld)
		mustUnlock(t, held)
		if held.Context().Err() == nil {
			t.Error("the hold's context lives on after its release")
		}
	})
}

func TestRule3DoEndsWithWhicheverIsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, m := pair(t)
		stop := errors.New("stop")
		ctx, cancel := context.WithCancelCause(t.Context())
		err := a.Do(ctx, "x", redlatch.Options{TTL: ttl}, func(inner context.Context, held *redlatch.Held) error {
			cancel(stop)
			<-inner.Done()
			if !held.Valid() {
				t.Error("the caller's end ended the hold too")
			}
			return context.Cause(inner)
		})
		mustBe(t, err, stop)
		mustNotBe(t, err, redlatch.ErrLost)

		err = a.Do(t.Context(), "x", redlatch.Options{TTL: ttl}, func(inner context.Context, _ *redlatch.Held) error {
			m.set(func(m *meddler) { m.down = true })
			<-inner.Done()
			m.set(func(m *meddler) { m.down = false })
			return nil // as if nothing had happened
		})
		mustBe(t, err, redlatch.ErrLost)

		deadline, cancel2 := context.WithTimeout(t.Context(), time.Second)
		defer cancel2()
		err = a.Do(deadline, "x", redlatch.Options{TTL: ttl}, func(inner context.Context, _ *redlatch.Held) error {
			if _, ok := inner.Deadline(); !ok {
				t.Error("the caller's deadline is not visible to fn")
			}
			<-inner.Done()
			return inner.Err()
		})
		mustBe(t, err, context.DeadlineExceeded)
	})
}

func TestRule4ReleaseRunsOnItsOwnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, _ := pair(t)
		ctx, cancel := context.WithCancel(t.Context())
		err := a.Do(ctx, "x", redlatch.Options{}, func(context.Context, *redlatch.Held) error {
			cancel()
			return nil
		})
		if err != nil {
			t.Errorf("a release after the caller's end: %v", err)
		}
		held, err := b.TryLock(t.Context(), "x", redlatch.Options{})
		if err != nil {
			t.Fatalf("the lock was left behind: %v", err)
		}
		mustUnlock(t, held)
	})
}

func TestRule4AReleaseThatFailsIsSeenAndCanBeRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, m := pair(t)
		held := mustLock(t, a, "x", redlatch.Options{TTL: time.Minute})
		m.set(func(m *meddler) { m.down = true })
		start := time.Now()
		err := held.Unlock()
		mustBe(t, err, redlatch.ErrUnavailable)
		mustNotBe(t, err, redlatch.ErrLost)
		if took := time.Since(start); took > 6*time.Second {
			t.Errorf("the release took %v", took)
		}
		if held.Valid() {
			t.Error("valid after a release that may have been carried out")
		}
		m.set(func(m *meddler) { m.down = false })
		if err := held.Unlock(); err != nil {
			t.Errorf("repeated: %v", err)
		}
		mustBe(t, held.Unlock(), redlatch.ErrNotHeld)
		mustUnlock(t, mustLock(t, b, "x", redlatch.Options{MaxWait: time.Second}))
	})
}

func TestRule4TheReleaseOfALostHoldTakesNoTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, m := pair(t)
		held := mustLock(t, a, "x", redlatch.Options{TTL: ttl})
		m.set(func(m *meddler) { m.down = true })
		lostWhy(t, held)
		start := time.Now()
		mustBe(t, held.Unlock(), redlatch.ErrLost)
		if took := time.Since(start); took > time.Second {
			t.Errorf("took %v", took)
		}
	})
}

func TestRule4AFailedReleaseGoesOnInTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, m := pair(t)
		held := mustLock(t, a, "x", redlatch.Options{TTL: time.Minute})
		m.set(func(m *meddler) { m.down = true })
		mustBe(t, held.Unlock(), redlatch.ErrUnavailable)
		time.Sleep(20 * time.Second) // as long as that it is not given up
		m.set(func(m *meddler) { m.down = false })
		mustUnlock(t, mustLock(t, b, "x", redlatch.Options{MaxWait: 200 * time.Millisecond}))
	})
}

func TestRule5AFailedAcquireLeavesNothingBehind(t *testing.T) {
	for _, how := range []struct {
		name string
		set  func(m *meddler)
	}{
		{"the join's reply is lost", func(m *meddler) { m.mute = true }},
		{"the join hangs until the caller gives up", func(m *meddler) { m.late = 10 * time.Second }},
		{"after the join nothing gets there any more", func(m *meddler) {
			m.mute = true
			m.before = func(_ context.Context, verb string) {
				if verb == "leave" {
					m.set(func(m *meddler) { m.down = true })
				}
			}
		}},
	} {
		t.Run(how.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b, m := pair(t)
				m.set(how.set)
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				start := time.Now()
				_, err := a.Lock(ctx, "x", redlatch.Options{TTL: time.Minute})
				mustBe(t, err, redlatch.ErrUnavailable)
				mustNotBe(t, err, redlatch.ErrHeld)
				if took := time.Since(start); took > 150*time.Millisecond {
					t.Errorf("a call with 100ms took %v", took)
				}
				if m.before != nil {
					time.Sleep(20 * time.Second)
				}
				m.set(func(m *meddler) { m.mute, m.late, m.down, m.before = false, 0, false, nil })
				healed := time.Now()
				mustUnlock(t, mustLock(t, b, "x", redlatch.Options{}))
				if took := time.Since(healed); took > 200*time.Millisecond {
					t.Errorf("the claim was left for %v after the store answered again", took)
				}
			})
		})
	}
}

func TestRule5ACancelledWaitLeavesNoClaimInTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, _ := pair(t)
		held := mustLock(t, b, "x", redlatch.Options{})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		_, err := a.Lock(ctx, "x", redlatch.Options{})
		mustBe(t, err, context.Canceled, redlatch.ErrHeld)
		q, err := b.Inspect(t.Context(), "x")
		if err != nil || len(q.Waiters()) != 0 {
			t.Errorf("%d waiters after the only one gave up (%v)", len(q.Waiters()), err)
		}
		mustUnlock(t, held)
	})
}

func TestRule5AReplayedReleaseIsSuccessWhileTrustLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, m := pair(t)
		held := mustLock(t, a, "x", redlatch.Options{TTL: time.Minute})
		m.set(func(m *meddler) { m.mute = true })
		time.AfterFunc(500*time.Millisecond, func() { m.set(func(m *meddler) { m.mute = false }) })
		if err := held.Unlock(); err != nil {
			t.Errorf("the first reply was lost, the second one said not there: %v", err)
		}
	})
}

func TestRule5AReleaseThatFindsSomebodyElseIsALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, m := pair(t)
		held := mustLock(t, a, "x", redlatch.Options{TTL: time.Minute})
		if _, err := m.Store.Leave(t.Context(), "x", tokenOf(t, held).ID, 0, lease.Seal{}); err != nil {
			t.Fatal(err)
		}
		other := mustLock(t, b, "x", redlatch.Options{})
		err := held.Unlock()
		mustBe(t, err, redlatch.ErrLost)
		if !strings.Contains(err.Error(), "bob") {
			t.Errorf("%q does not say who has it", err)
		}
		if !other.Valid() {
			t.Error("the release of a lost lock took the next one's")
		}
		mustUnlock(t, other)
	})
}

// Somebody has deleted the key, and who took the lock meanwhile has gone again.
func TestRule5AReleaseThatFindsNothingAtFirstSightIsALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, m := pair(t)
		held := mustLock(t, a, "x", redlatch.Options{TTL: time.Minute})
		if _, err := m.Store.Leave(t.Context(), "x", tokenOf(t, held).ID, 0, lease.Seal{}); err != nil {
			t.Fatal(err)
		}
		mustUnlock(t, mustLock(t, b, "x", redlatch.Options{}))
		mustBe(t, held.Unlock(), redlatch.ErrLost)
		mustBe(t, held.Unlock(), redlatch.ErrNotHeld)

		err := a.Do(t.Context(), "x", redlatch.Options{}, func(_ context.Context, held *redlatch.Held) error {
			_, err := m.Store.Leave(t.Context(), "x", tokenOf(t, held).ID, 0, lease.Seal{})
			return err
		})
		mustBe(t, err, redlatch.ErrLost)
	})
}

func tokenOf(t *testing.T, held *redlatch.Held) lease.Token {
	t.Helper()
	token, err := lease.ParseToken(held.Token())
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func TestRule6NoAnswerIsNotHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, m := pair(t)
		m.set(func(m *meddler) { m.down = true })
		for _, call := range map[string]func() error{
			"lock":    func() error { _, err := a.Lock(t.Context(), "x", redlatch.Options{}); return err },
			"try":     func() error { _, err := a.TryLock(t.Context(), "x", redlatch.Options{}); return err },
			"do":      func() error { return a.Do(t.Context(), "x", redlatch.Options{}, nil) },
			"lockall": func() error { _, err := a.LockAll(t.Context(), []string{"x", "y"}, redlatch.Options{}); return err },
		} {
			err := call()
			mustBe(t, err, redlatch.ErrUnavailable, errDown)
			mustNotBe(t, err, redlatch.ErrHeld, redlatch.ErrLost, redlatch.ErrDenied)
		}
	})
}

func TestRule6DeniedIsNotUnavailable(t *testing.T) {
	l := locker(t, failing{memstore.New(), &driver.Fault{Kind: driver.Denied, Err: errors.New("NOPERM")}}, redlatch.Config{})
	_, err := l.TryLock(t.Context(), "x", redlatch.Options{})
	mustBe(t, err, redlatch.ErrDenied)
	mustNotBe(t, err, redlatch.ErrUnavailable, redlatch.ErrHeld)
}

// failing answers every join with the same error.
type failing struct {
	driver.Store

	err error
}

func (f failing) Join(context.Context, string, lease.Claim) (lease.Standing, error) {
	return lease.Standing{}, f.err
}

func TestRule6ACallReturnsAtItsDeadlineWhenTheStoreHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, m := pair(t)
		m.set(func(m *meddler) { m.hung = true })
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		start := time.Now()
		_, err := a.Lock(ctx, "x", redlatch.Options{})
		mustBe(t, err, redlatch.ErrUnavailable, context.DeadlineExceeded)
		if took := time.Since(start); took > 150*time.Millisecond {
			t.Errorf("a call with a deadline of 100ms took %v", took)
		}
		m.set(func(m *meddler) { m.hung = false })
	})
}

func TestRule7WhatCannotBeIsRefusedBeforeAnythingIsSent(t *testing.T) {
	m := &meddler{Store: memstore.New()}
	l := locker(t, m, redlatch.Config{})
	for _, tt := range []struct {
		name string
		lock string
		o    redlatch.Options
	}{
		{"a negative TTL", "x", redlatch.Options{TTL: -time.Second}},
		{"a TTL of a nanosecond", "x", redlatch.Options{TTL: 1}},
		{"a TTL under the store's smallest", "x", redlatch.Options{TTL: 5 * time.Millisecond}},
		{"a TTL of centuries", "x", redlatch.Options{TTL: 1 << 62}},
		{"a margin of most of the TTL", "x", redlatch.Options{TTL: time.Second, StopMargin: 600 * time.Millisecond}},
		{"a negative wait", "x", redlatch.Options{MaxWait: -1}},
		{"at least longer than at most", "x", redlatch.Options{HoldAtLeast: 10 * time.Minute, MaxHold: 5 * time.Minute}},
		{"more weight than slots", "x", redlatch.Options{Slots: 2, Weight: 3}},
		{"weight without slots", "x", redlatch.Options{Weight: 1}},
		{"a reader's semaphore", "x", redlatch.Options{Shared: true, Slots: 2}},
		{"no name", "", redlatch.Options{}},
		{"a control character", "a\nb", redlatch.Options{}},
		{"a direction mark", "a\u202eb", redlatch.Options{}},
		{"broken UTF-8", "a\xff", redlatch.Options{}},
		{"an endless name", strings.Repeat("n", 201), redlatch.Options{}},
		{"an endless note", "x", redlatch.Options{Note: strings.Repeat("n", 2000)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for op, try := range map[string]func() error{
				"lock": func() error { _, err := l.Lock(t.Context(), tt.lock, tt.o); return err },
				"try":  func() error { _, err := l.TryLock(t.Context(), tt.lock, tt.o); return err },
				"all":  func() error { _, err := l.LockAll(t.Context(), []string{tt.lock}, tt.o); return err },
			} {
				err := try()
				if !errors.Is(err, redlatch.ErrInvalid) {
					t.Errorf("%s: %v, want ErrInvalid", op, err)
				}
			}
		})
	}
	if n := m.joins.Load(); n != 0 {
		t.Errorf("%d joins were sent", n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Lock(ctx, "x", redlatch.Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("with a ctx that has ended: %v", err)
	}
	if n := m.joins.Load(); n != 0 {
		t.Errorf("%d joins were sent for a ctx that had ended", n)
	}
}

func TestRule7PartsOfAMillisecondCountAsAWholeOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, _ := pair(t)
		held := mustLock(t, a, "x", redlatch.Options{TTL: 100*time.Millisecond + time.Nanosecond})
		q, err := a.Inspect(t.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		if left := q.Holders()[0].Expires.Sub(q.Now); left != 101*time.Millisecond {
			t.Errorf("the stored lease is %v", left)
		}
		mustUnlock(t, held)
	})
}

func TestRule8RenewalGoesOnThroughErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, m := pair(t)
		held := mustLock(t, a, "x", redlatch.Options{TTL: ttl})
		for range 10 {
			m.set(func(m *meddler) { m.down = true })
			time.Sleep(ttl * 6 / 10)
			m.set(func(m *meddler) { m.down = false })
			time.Sleep(ttl * 4 / 10)
		}
		if !held.Valid() {
			t.Errorf("lost though the store came back in time each time: %v", context.Cause(held.Context()))
		}
		mustUnlock(t, held)
	})
}

func TestRule8ARenewalNeverBringsBackALostHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, m := pair(t)
		held := mustLock(t, a, "x", redlatch.Options{TTL: ttl})
		if _, err := m.Store.Leave(t.Context(), "x", tokenOf(t, held).ID, 0, lease.Seal{}); err != nil { // as an eviction does
			t.Fatal(err)
		}
		if loss := lostWhy(t, held); loss.Why != lease.Vanished {
			t.Errorf("lost because %v, want vanished", &loss)
		}
		mustUnlock(t, mustLock(t, b, "x", redlatch.Options{MaxWait: time.Millisecond}))
		mustBe(t, held.Renew(t.Context(), 0), redlatch.ErrLost)
		mustBe(t, held.Unlock(), redlatch.ErrLost)
	})
}

func TestRule8OneLocksTroubleIsNotTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &stuckName{Store: memstore.New(), name: "stuck"}
		l := locker(t, store, redlatch.Config{})
		stuck := mustLock(t, l, "stuck", redlatch.Options{TTL: ttl})
		var others []*redlatch.Held
		for i := range 50 {
			others = append(others, mustLock(t, l, fmt.Sprint("n", i), redlatch.Options{TTL: ttl + time.Duration(i)*time.Millisecond*40}))
		}
		time.Sleep(10 * ttl)
		if stuck.Valid() {
			t.Error("the stuck one is still valid")
		}
		for _, held := range others {
			if !held.Valid() {
				t.Fatalf("%s was lost: %v", held.Name(), context.Cause(held.Context()))
			}
			mustUnlock(t, held)
		}
	})
}

// stuckName hangs every renewal batch that has name in it, as long as it is the only
// one there, and answers for it with an error otherwise: like one slot of a cluster.
type stuckName struct {
	driver.Store

	name string
}

func (s *stuckName) Renew(ctx context.Context, refs []driver.Ref) []driver.Outcome {
	outs := s.Store.Renew(ctx, refs)
	for i, ref := range refs {
		if ref.Name == s.name {
			outs[i] = driver.Outcome{Err: errDown}
			if len(refs) == 1 {
				<-ctx.Done()
			}
		}
	}
	return outs
}

func TestRule8NoRenewalAfterUnlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, m := pair(t)
		m.set(func(m *meddler) { m.late = 20 * time.Millisecond })
		for i := range 200 {
			held := mustLock(t, a, "x", redlatch.Options{TTL: 300 * time.Millisecond})
			time.Sleep(time.Duration(i) * time.Millisecond)
			mustUnlock(t, held)
			before := m.refs.Load()
			time.Sleep(300 * time.Millisecond)
			if after := m.refs.Load(); after != before {
				t.Fatalf("round %d: %d renewals after the release", i, after-before)
			}
		}
	})
}

func TestRule10WhoeverIsToldLostIsToldWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, m := pair(t)
		held := mustLock(t, a, "taken", redlatch.Options{TTL: ttl})
		if _, err := m.Store.Leave(t.Context(), "taken", tokenOf(t, held).ID, 0, lease.Seal{}); err != nil {
			t.Fatal(err)
		}
		other := mustLock(t, b, "taken", redlatch.Options{})
		if loss := lostWhy(t, held); loss.Why != lease.Taken || !strings.Contains(loss.By, "bob") {
			t.Errorf("lost because %v, want taken by bob", &loss)
		}
		mustUnlock(t, other)

		held = mustLock(t, locker(t, &meddler{Store: m.Store, deaf: true}, redlatch.Config{}), "broken", redlatch.Options{TTL: ttl})
		if _, err := b.Break(t.Context(), "broken", redlatch.BreakOptions{Reason: "deploy stuck", By: "carol"}); err != nil {
			t.Fatal(err)
		}
		if loss := lostWhy(t, held); loss.Why != lease.Broken || loss.By != "carol" || loss.Reason != "deploy stuck" {
			t.Errorf("lost because %v, want broken by carol", &loss)
		}

		held = mustLock(t, a, "expired", redlatch.Options{TTL: ttl, NoRenew: true})
		if loss := lostWhy(t, held); loss.Why != lease.Expired {
			t.Errorf("lost because %v, want expired", &loss)
		}

		held = mustLock(t, a, "long", redlatch.Options{TTL: ttl, MaxHold: time.Minute})
		start := time.Now()
		if loss := lostWhy(t, held); loss.Why != lease.HeldTooLong || time.Since(start) != time.Minute {
			t.Errorf("lost because %v after %v, want held too long after a minute", &loss, time.Since(start))
		}
	})
}
