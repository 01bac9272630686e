//go:build unix

package cases

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/relay"
	"github.com/redlatch/redlatch/internal/servertest"
)

// lined starts an acquire and returns when it is in line behind the others. The hold is
// given back at once, and the channel says how it went.
func lined(t *testing.T, l *redlatch.Locker, name string, place int, o redlatch.Options, held func()) <-chan error {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		h, err := l.Lock(t.Context(), name, o)
		if err == nil {
			if held != nil {
				held()
			}
			err = unlock(h)
		}
		done <- err
	}()
	queued(t, l, name, place)
	return done
}

func ends(t *testing.T, within time.Duration, what string, done <-chan error) {
	t.Helper()
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	case <-time.After(within):
		t.Fatalf("%s: still waiting after %v", what, within)
	}
}

func TestWK01AReleaseBeforeTheSubscriptionIsNotMissed(t *testing.T) {
	t.Parallel()
	p := onRedis(t)
	a := p.process(t, "a")
	for round := range 10 {
		name := fmt.Sprint("wk01-", round)
		r := relay.Start(t, p.server.Addr())
		b := processAt(t, r.Addr(), "b")
		first := take(t, a, name, redlatch.Options{TTL: long})
		subscribe := r.Hold(relay.Command("SUBSCRIBE"))
		got := make(chan error, 1)
		go func() {
			held, err := b.Lock(t.Context(), name, redlatch.Options{TTL: long})
			if err == nil {
				err = unlock(held)
			}
			got <- err
		}()
		caught(t, subscribe)
		if round%2 == 0 {
			giveBack(t, first)
			subscribe.Release()
		} else { // both at the same time
			go subscribe.Release()
			giveBack(t, first)
		}
		ends(t, patience, "the waiter", got)
	}
}

func TestWK01HundredsOfNamesAtOnce(t *testing.T) {
	t.Parallel()
	p := onRedis(t)
	a, b := p.process(t, "a"), p.process(t, "b")
	const names, atOnce = 200, 25 // more at once than the client's pool has connections
	var work sync.WaitGroup
	turns := make(chan struct{}, atOnce)
	for i := range names {
		turns <- struct{}{}
		work.Go(func() {
			defer func() { <-turns }()
			name := fmt.Sprint("wk01-many-", i)
			first := take(t, a, name, redlatch.Options{TTL: long})
			got := make(chan error, 1)
			go func() {
				held, err := b.Lock(t.Context(), name, redlatch.Options{TTL: long, MaxWait: long / 2})
				if err == nil {
					err = unlock(held)
				}
				got <- err
			}()
			giveBack(t, first)
			if err := <-got; err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	work.Wait()
}

func TestWK02WhoLeavesTakesNobodyElsesWakeUp(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		l := p.process(t, "a")
		waiters := 50
		if p.dir != "" {
			waiters = 10 // each of them takes its turn at a file
		}
		first := take(t, p.process(t, "b"), "wk02", redlatch.Options{TTL: long})
		var inside atomic.Int32
		var work sync.WaitGroup
		for range waiters {
			work.Go(func() {
				held, err := l.Lock(t.Context(), "wk02", redlatch.Options{TTL: long, MaxWait: long / 2})
				if err != nil {
					t.Errorf("lock: %v", err)
					return
				}
				if inside.Add(1) != 1 {
					t.Error("two hold it")
				}
				inside.Add(-1)
				giveBack(t, held)
			})
		}
		giveBack(t, first) // while some join and some wait
		work.Wait()
	})
}

func TestWK03WaitsThatEndLeaveTheSubscriptionUsable(t *testing.T) {
	t.Parallel()
	p := onRedis(t)
	store := redisAt(t, &redis.Options{Addr: p.server.Addr(), PoolSize: 3})
	l := locker(t, store, patient("a"))
	b := p.process(t, "b")
	names := []string{"wk03-x", "wk03-y"}
	var work sync.WaitGroup
	for _, name := range names {
		work.Go(func() {
			for i := range 60 {
				first := take(t, b, name, redlatch.Options{TTL: long})
				held, err := l.Lock(t.Context(), name, redlatch.Options{TTL: long, MaxWait: time.Duration(1+i%5) * time.Millisecond})
				if err == nil {
					t.Error("two hold it")
					_ = held.Unlock()
				} else if !errors.Is(err, redlatch.ErrHeld) && !errors.Is(err, redlatch.ErrUnavailable) {
					t.Errorf("a short wait: %v", err)
				}
				giveBack(t, first)
			}
		})
	}
	work.Wait()
	for _, name := range names {
		free(t, b, name)
		first := take(t, b, name, redlatch.Options{TTL: long})
		got := lined(t, l, name, 1, redlatch.Options{TTL: long}, nil)
		giveBack(t, first)
		ends(t, patience, "a wait after many that ended", got)
	}
	// One subscription for each process, however many names and waits; none that is dead.
	if n := len(p.do(t, "PUBSUB", "CHANNELS").([]any)); n > 2*2+1 {
		t.Errorf("%d channels of two processes", n)
	}
	if list, _ := p.do(t, "CLIENT", "LIST").(string); strings.Count(list, "\n") > 3+1+20+1+1 {
		t.Errorf("connections:\n%s", list)
	}
	_ = l.Close(t.Context())
	_ = store.Close()
	servertest.Eventually(t, patience, "the channels of a closed store to go", func() bool {
		return len(p.do(t, "PUBSUB", "CHANNELS").([]any)) <= 3
	})
}

func TestWK05ADeadHolderIsFollowedWhenItsLeaseIsOver(t *testing.T) {
	t.Parallel()
	p := onRedis(t, "--notify-keyspace-events", "")
	c := start(t, part{Do: "hold", Redis: p.server.Addr(), Name: "wk05", TTL: 3 * time.Second})
	c.says("held")
	l := p.process(t, "b")
	got := lined(t, l, "wk05", 1, redlatch.Options{TTL: long, MaxWait: long}, nil)
	c.signal(syscall.SIGKILL)
	ends(t, patience, "the waiter behind a dead holder", got)
}

func TestWK06CancelledWaitersOnADeadConnectionBlockNobody(t *testing.T) {
	t.Parallel()
	p := onRedis(t)
	l, b := p.process(t, "a"), p.process(t, "b")
	for round := range 3 {
		first := take(t, b, "wk06", redlatch.Options{TTL: long})
		ctx, cancel := context.WithCancel(t.Context())
		var work sync.WaitGroup
		for range 100 {
			work.Go(func() {
				held, err := l.Lock(ctx, "wk06", redlatch.Options{TTL: long})
				if err == nil {
					t.Error("two hold it")
					_ = held.Unlock()
				}
			})
		}
		queued(t, b, "wk06", 100)
		var cut sync.WaitGroup
		cut.Go(func() {
			p.do(t, "CLIENT", "KILL", "TYPE", "pubsub")
			p.do(t, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
		})
		cancel()
		cut.Wait()
		back := make(chan error, 1)
		go func() { work.Wait(); back <- nil }()
		ends(t, patience, fmt.Sprintf("round %d: the cancelled waiters", round), back)
		giveBack(t, first)
		giveBack(t, take(t, l, "wk06", redlatch.Options{TTL: long}))
	}
	free(t, b, "wk06")
}

func TestWK08AFreeLockIsNeverATimeout(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		l := p.process(t, "a")
		var work sync.WaitGroup
		for i := range 20 {
			work.Go(func() {
				name := fmt.Sprint("wk08-", i)
				for range 40 {
					held, err := l.Lock(t.Context(), name, redlatch.Options{TTL: long, MaxWait: patience})
					if err != nil {
						t.Errorf("nobody has it: %v", err)
						return
					}
					if err := held.Unlock(); err != nil {
						t.Errorf("unlock: %v", err)
					}
				}
			})
		}
		work.Wait()
	})
}

func TestWK09NoAnswerInTimeIsNotBusy(t *testing.T) {
	t.Parallel()
	p := onRedis(t)
	r := relay.Start(t, p.server.Addr())
	l := processAt(t, r.Addr(), "a")
	direct := p.process(t, "b")
	busy := take(t, direct, "wk09-busy", redlatch.Options{TTL: long})
	giveBack(t, take(t, l, "warm", redlatch.Options{}))
	r.Delay(relay.Replies, 300*time.Millisecond)
	var work sync.WaitGroup
	for i := range 20 {
		name := fmt.Sprint("wk09-", i)
		work.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			_, err := l.TryLock(ctx, name, redlatch.Options{TTL: long})
			mustBe(t, err, redlatch.ErrUnavailable)
			_, err = l.TryLock(t.Context(), "wk09-busy", redlatch.Options{TTL: long})
			mustBe(t, err, redlatch.ErrHeld)
		})
	}
	work.Wait()
	r.Delay(relay.Both, 0)
	for i := range 20 {
		free(t, direct, fmt.Sprint("wk09-", i))
		// The next try finds no trace of the one without an answer.
		held, err := l.TryLock(t.Context(), fmt.Sprint("wk09-", i), redlatch.Options{TTL: long})
		if err != nil {
			t.Errorf("after the tries without an answer: %v", err)
			continue
		}
		giveBack(t, held)
	}
	giveBack(t, busy)
}

// called counts the calls of scripts that a server has carried out.
func called(p place) int {
	calls := p.server.CommandStats()
	return calls["evalsha"] + calls["eval"]
}

func TestWK11WaitersAskNothingAndWK18AReleaseWakesOne(t *testing.T) {
	t.Parallel()
	p := onRedis(t)
	const processes, each = 20, 10
	first := take(t, p.process(t, "holder"), "wk11", redlatch.Options{TTL: long})
	ctx, cancel := context.WithCancel(t.Context())
	got := make(chan *redlatch.Held, processes*each)
	var work sync.WaitGroup
	var lockers []*redlatch.Locker
	for i := range processes {
		l := p.process(t, fmt.Sprint("waiter", i))
		lockers = append(lockers, l)
		for range each {
			work.Go(func() {
				if held, err := l.Lock(ctx, "wk11", redlatch.Options{TTL: long}); err == nil {
					got <- held
				}
			})
		}
	}
	queued(t, lockers[0], "wk11", processes*each)
	// Their first subscriptions make them look once more; then there is nothing to do.
	quiet(t, p)
	commands := func() (sum int) {
		for name, n := range p.server.CommandStats() {
			if name != "info" {
				sum += n
			}
		}
		return sum
	}
	// A machine so busy that a subscription looks dead makes them look again: then this is
	// measured again.
	servertest.Eventually(t, patience, "200 waiters to cost less than 200 commands a second", func() bool {
		before, began := commands(), time.Now()
		pings := p.server.CommandStats()["ping"]
		servertest.Eventually(t, patience, "two rounds of pings", func() bool {
			return p.server.CommandStats()["ping"] >= pings+2*processes
		})
		return float64(commands()-before)/time.Since(began).Seconds() < 200
	})
	calls := called(p)
	giveBack(t, first)
	select {
	case held := <-got:
		if n := called(p) - calls; n >= 10*processes {
			t.Errorf("one release made %d calls", n)
		}
		cancel()
		giveBack(t, held)
	case <-time.After(patience):
		t.Error("nobody was woken")
	}
	cancel()
	work.Wait()
	for len(got) > 0 {
		giveBack(t, <-got)
	}
}

// quiet waits until no more scripts are called.
func quiet(t *testing.T, p place) {
	t.Helper()
	last, since := called(p), time.Now()
	servertest.Eventually(t, patience, "the calls to end", func() bool {
		if n := called(p); n != last {
			last, since = n, time.Now()
		}
		return time.Since(since) > 500*time.Millisecond
	})
}

func TestWK12AReadOnlyServerIsNotBusy(t *testing.T) {
	t.Parallel()
	p := onRedis(t)
	store := p.store(t)
	fail := locker(t, store, redlatch.Config{})
	wait := locker(t, store, redlatch.Config{OnUnavailable: redlatch.Wait})
	first := take(t, fail, "wk12", redlatch.Options{TTL: long})
	p.do(t, "REPLICAOF", "127.0.0.1", "1")
	before := called(p)
	var work sync.WaitGroup
	for name, l := range map[string]*redlatch.Locker{"wk12": wait, "wk12-free": wait, "wk12-fail": fail} {
		work.Go(func() {
			_, err := l.Lock(t.Context(), name, redlatch.Options{TTL: long, MaxWait: 5 * time.Second})
			mustBe(t, err, redlatch.ErrUnavailable)
			if err == nil || !strings.Contains(err.Error(), "READONLY") {
				t.Errorf("%s: the error does not say READONLY: %v", name, err)
			}
		})
	}
	work.Wait()
	// The client library sends each up to four times.
	if n := called(p) - before; n > 200 {
		t.Errorf("%d calls in 10 seconds of waiting", n)
	}
	p.do(t, "REPLICAOF", "NO", "ONE")
	giveBack(t, first)
	giveBack(t, take(t, wait, "wk12", redlatch.Options{}))
}

func TestWK14LiveWaitersKeepTheirPlaces(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		s := tallied(p.store(t))
		a := locker(t, s, patient("a"))
		const ttl = 3 * time.Second
		first := take(t, a, "wk14", redlatch.Options{TTL: ttl})
		var mu sync.Mutex
		var order []int
		var done []<-chan error
		for i := range 5 {
			done = append(done, lined(t, p.process(t, fmt.Sprint(i)), "wk14", i+1, redlatch.Options{TTL: ttl}, func() {
				mu.Lock()
				defer mu.Unlock()
				order = append(order, i)
			}))
		}
		s.renewed(t, first, 5) // longer than a waiter that is not looked after has its place
		giveBack(t, first)
		for i, d := range done {
			ends(t, patience, fmt.Sprint("waiter ", i), d)
		}
		if fmt.Sprint(order) != "[0 1 2 3 4]" {
			t.Errorf("they got it in the order %v", order)
		}
	})
}

func TestWK15AWaiterFollowsALeaseThatRanOut(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		a, b := p.process(t, "a"), p.process(t, "b")
		first := take(t, a, "wk15", redlatch.Options{TTL: time.Second, NoRenew: true})
		second := take(t, b, "wk15", redlatch.Options{TTL: long})
		if first.Valid() {
			t.Error("two hold it")
		}
		giveBack(t, second)
		free(t, b, "wk15")
		if p.server == nil {
			return
		}
		for _, key := range p.do(t, "KEYS", "*wk15*").([]any) {
			if kind := p.do(t, "TYPE", key.(string)); kind == "zset" {
				t.Errorf("the queue %q is left at rest", key)
			}
		}
		if bad := p.endless(t); len(bad) > 0 {
			t.Errorf("left for ever: %q", bad)
		}
	})
}

func TestWK17WaitersWhoseQueueIsGoneAllFinish(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"FLUSHALL", "SCRIPT FLUSH and FLUSHALL", "the queue alone"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			p := onRedis(t)
			first := take(t, p.process(t, "holder"), "wk17", redlatch.Options{TTL: 3 * time.Second})
			var done []<-chan error
			lockers := []*redlatch.Locker{p.process(t, "a"), p.process(t, "b")}
			for i := range 10 {
				done = append(done, lined(t, lockers[i%2], "wk17", i+1, redlatch.Options{TTL: 3 * time.Second}, nil))
			}
			switch how {
			case "the queue alone":
				for _, key := range p.do(t, "KEYS", "*wk17*").([]any) {
					if key != "lock:wk17" {
						p.do(t, "DEL", key.(string))
					}
				}
			case "FLUSHALL":
				p.do(t, "FLUSHALL")
			default:
				p.do(t, "SCRIPT", "FLUSH")
				p.do(t, "FLUSHALL")
			}
			if how == "the queue alone" {
				giveBack(t, first)
			} else {
				_ = first.Unlock()
			}
			for i, d := range done {
				ends(t, patience, fmt.Sprint("waiter ", i), d)
			}
		})
	}
}

func TestWK20HundredsOfWaitersCanGiveUpAtOnce(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		waiters := 500
		if p.dir != "" {
			waiters = 50 // a file for each name, read and written whole
		}
		l := p.process(t, "a")
		first := take(t, p.process(t, "b"), "wk20", redlatch.Options{TTL: long})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		back := make(chan error, waiters)
		for range waiters {
			go func() {
				held, err := l.Lock(ctx, "wk20", redlatch.Options{TTL: long})
				if err == nil {
					err = errors.Join(errors.New("two hold it"), held.Unlock())
				} else if errors.Is(err, context.Canceled) {
					err = nil
				}
				back <- err
			}()
		}
		queued(t, l, "wk20", waiters)
		cancel()
		for range waiters {
			ends(t, patience, "a waiter that was cancelled", back)
		}
		queued(t, l, "wk20", 0)
		giveBack(t, first)
		giveBack(t, take(t, l, "wk20", redlatch.Options{}))
	})
}
