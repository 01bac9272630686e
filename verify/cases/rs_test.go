//go:build unix

package cases

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/servertest"
	"github.com/redlatch/redlatch/lease"
	"github.com/redlatch/redlatch/redisstore"
)

// A million names is the report's number; what grows by name shows with some thousands.
func TestRS01NamesLeaveNothingBehind(t *testing.T) {
	const some, workers = 1500, 4
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	play := func(t *testing.T, l *redlatch.Locker) {
		next := 0
		use := func() {
			var work sync.WaitGroup
			for w := range workers {
				from := next + w*some/workers
				work.Go(func() {
					for i := range some / workers {
						held, err := l.TryLock(t.Context(), fmt.Sprintf("names/%d", from+i), redlatch.Options{})
						if err != nil {
							t.Error(err)
							return
						}
						if err := held.Unlock(); err != nil {
							t.Error(err)
						}
					}
				})
			}
			work.Wait()
			next += some
		}
		use() // maps and pools have their size then
		before := heap()
		use()
		if grown := (heap() - before) / some; grown > 200 {
			t.Errorf("%d bytes stay for each name", grown)
		}
		runtime.KeepAlive(l)
	}
	for name, open := range stateStores { // one by one: the heap is all of theirs
		t.Run(name, func(t *testing.T) { play(t, open(t)()) })
	}
}

func TestRS02WhatIsHeldIsNeverForgotten(t *testing.T) {
	t.Parallel()
	stateEverywhere(t, func(t *testing.T, process func() *redlatch.Locker) {
		const holds = 300 // there is no bound to be under or over: nothing is kept but what is held
		a, b := process(), process()
		var all []*redlatch.Held
		for i := range holds {
			all = append(all, stateTake(t, a, fmt.Sprint("n", i), redlatch.Options{TTL: time.Minute}))
		}
		for _, l := range []*redlatch.Locker{a, b} {
			_, err := l.TryLock(t.Context(), "n0", redlatch.Options{})
			stateIs(t, err, redlatch.ErrHeld, "")
		}
		for _, held := range all {
			if !held.Valid() {
				t.Fatalf("%q is forgotten", held.Name())
			}
		}
		for _, held := range all {
			stateUnlock(t, held)
		}
		stateUnlock(t, stateTake(t, b, "n0", redlatch.Options{}))
	})
}

// stateDrain takes every connection of the program's pools, until the test ends.
func stateDrain(t *testing.T, c *redis.Client) {
	t.Helper()
	o := c.Options()
	for range o.PoolSize + max(o.PipelinePoolSize, 0) {
		go c.BLPop(t.Context(), 0, "nothing")
		go c.Pipelined(t.Context(), func(p redis.Pipeliner) error { p.BLPop(t.Context(), 0, "nothing"); return nil }) //nolint:errcheck // it never ends well
	}
	servertest.Eventually(t, stateSoon, "the pools to be drained", func() bool {
		s := c.PoolStats()
		full := func(idle, total uint32, size int) bool { return idle == 0 && int(total) >= size }
		return full(s.IdleConns, s.TotalConns, o.PoolSize) &&
			(s.PipelineStats == nil || full(s.PipelineStats.IdleConns, s.PipelineStats.TotalConns, o.PipelinePoolSize))
	})
}

func TestRS04AProgramThatDrainsItsPoolLosesNoLock(t *testing.T) {
	t.Parallel()
	server := stateServer(t)
	var renewals atomic.Int64
	c := redis.NewClient(&redis.Options{Addr: server.Addr(), PoolSize: 2, PipelinePoolSize: 2})
	defer c.Close()
	s, err := redisstore.New(c, redisstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	l := stateLocker(t, s, redlatch.Config{Observer: redlatch.Observer{Renewed: func(redlatch.Event) { renewals.Add(1) }}})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	held := []*redlatch.Held{stateTake(t, l, "a", redlatch.Options{TTL: 3 * time.Second}), stateTake(t, l, "b", redlatch.Options{TTL: 3 * time.Second})}
	other := stateProcess(t, server)
	const waiters = 250
	for i := range 2 * waiters {
		stateAsk(ctx, l, []string{"a", "b"}[i%2], redlatch.Options{TTL: time.Minute})
	}
	stateQueued(t, other, "a", 1+waiters)
	stateQueued(t, other, "b", 1+waiters)
	stateDrain(t, c)
	before := renewals.Load()
	servertest.Eventually(t, stateSoon, "two rounds of renewals", func() bool {
		for _, h := range held {
			if !h.Valid() {
				t.Fatalf("lost: %v", context.Cause(h.Context()))
			}
		}
		return renewals.Load() >= before+4
	})
	for _, h := range held {
		stateUnlock(t, h)
	}
	cancel()
}

func TestRS05ALockerForEachRequestLeavesNothing(t *testing.T) {
	server := stateServer(t) // not parallel: goroutines are counted
	c := redis.NewClient(&redis.Options{Addr: server.Addr(), PoolSize: 2})
	defer c.Close()
	request := func(i int) {
		s, err := redisstore.New(c, redisstore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		l, err := redlatch.New(s, redlatch.Config{})
		if err != nil {
			t.Fatal(err)
		}
		held := stateTake(t, l, fmt.Sprint("n", i%3), redlatch.Options{})
		if err := held.Renew(t.Context(), 0); err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		next := stateAsk(ctx, l, held.Name(), redlatch.Options{})
		stateQueued(t, l, held.Name(), 2)
		cancel()
		<-next
		if err := errors.Join(l.Close(t.Context()), s.Close()); err != nil {
			t.Error(err)
		}
	}
	connections := func() int { return strings.Count(stateDo(t, server, "CLIENT", "LIST").(string), "\n") }
	request(0)
	goroutines, conns := runtime.NumGoroutine(), connections()
	for i := range 20 {
		request(i)
	}
	servertest.Eventually(t, stateSoon, "goroutines and connections to end", func() bool {
		return runtime.NumGoroutine() <= goroutines+2 && connections() <= conns
	})
	if keys := stateDo(t, server, "EVAL", `local n = 0
		for _, k in ipairs(redis.call('KEYS', '*')) do if redis.call('PTTL', k) == -1 then n = n + 1 end end
		return n`, "0"); keys != int64(0) {
		t.Errorf("%v keys stay for ever", keys)
	}
}

// What a tracing hook sees of a day's work are commands that went well: a script that the
// server does not have yet, once each, is the one exception.
func TestRS07TracingSeesNoErrors(t *testing.T) {
	t.Parallel()
	server := stateServer(t)
	tracer := &stateTracer{}
	process := func() *redlatch.Locker {
		c := redis.NewClient(&redis.Options{
			Addr: server.Addr(), PoolSize: 5, ConnMaxLifetime: 20 * time.Millisecond,
			// The client library's own extras are the program's to turn off.
			DisableIdentity: true, MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		})
		c.AddHook(tracer)
		t.Cleanup(func() { c.Close() })
		s, err := redisstore.New(c, redisstore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return stateLocker(t, s, redlatch.Config{})
	}
	a, b := process(), process()
	for i := range 5 {
		stateAll(t, a, b, fmt.Sprint("n", i))
	}
	tracer.mu.Lock()
	defer tracer.mu.Unlock()
	missing := 0
	for _, err := range tracer.errs {
		if strings.HasPrefix(err.Error(), "NOSCRIPT") {
			missing++
		} else {
			t.Errorf("traced: %v", err)
		}
	}
	if missing > 10 { // five scripts, two processes that may ask at one time
		t.Errorf("%d scripts were missing", missing)
	}
}

func TestQueueBoundHoldsOverAllProcesses(t *testing.T) {
	t.Parallel()
	server := stateServer(t)
	const most, askers = 10, 40
	bounded := func() *redlatch.Locker {
		return stateLocker(t, stateStore(t, &redis.Options{Addr: server.Addr()}, redisstore.Options{}), redlatch.Config{MaxWaiters: most})
	}
	processes := []*redlatch.Locker{bounded(), bounded(), bounded(), bounded()}
	held := stateTake(t, processes[0], "n", redlatch.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	answers := make(chan error, askers)
	for i := range askers {
		go func() {
			h, err := processes[i%len(processes)].Lock(ctx, "n", redlatch.Options{})
			if err == nil {
				err = h.Unlock()
			}
			answers <- err
		}()
	}
	for range askers - most {
		if err := <-answers; !errors.Is(err, redlatch.ErrQueueFull) {
			t.Errorf("one of too many: %v", err)
		}
	}
	stateQueued(t, processes[1], "n", 1+most)
	stateUnlock(t, held)
	for range most {
		if err := <-answers; err != nil {
			t.Errorf("one of those who may wait: %v", err)
		}
	}
}

// A server that comes back empty: each hold has one verdict, and nobody asks for it twice.
// 100,000 of them are measured by the command verify/cmd/herd.
func TestRestartedEmptyEachHoldHasOneVerdict(t *testing.T) {
	t.Parallel()
	server := stateServer(t)
	var mu sync.Mutex
	verdicts := make(map[string]int)
	s := stateStore(t, &redis.Options{Addr: server.Addr()}, redisstore.Options{})
	l := stateLocker(t, s, redlatch.Config{Observer: redlatch.Observer{Lost: func(e redlatch.Event) {
		var lost *redlatch.LostError
		mu.Lock()
		defer mu.Unlock()
		verdicts[e.Name]++
		if !errors.As(e.Err, &lost) || lost.Loss.Why != lease.Vanished {
			t.Errorf("%q: %v", e.Name, e.Err)
		}
	}}})
	const holds = 300
	var all []*redlatch.Held
	for i := range holds {
		all = append(all, stateTake(t, l, fmt.Sprint("n", i), redlatch.Options{TTL: 15 * time.Second}))
	}
	server.Restart()
	for _, held := range all {
		_ = stateLost(t, held)
	}
	servertest.Eventually(t, stateSoon, "the verdicts", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(verdicts) == holds
	})
	for _, held := range all {
		stateIs(t, held.Unlock(), redlatch.ErrLost, "")
	}
	mu.Lock()
	for name, n := range verdicts {
		if n != 1 {
			t.Errorf("%q was lost %d times", name, n)
		}
	}
	mu.Unlock()
	// A renewal each, a leave each, the record of names; renewals may have been tried twice.
	if n := server.CommandStats()["evalsha"]; n > 4*holds {
		t.Errorf("%d calls about %d holds", n, holds)
	}
}
