//go:build unix

// Package deadline stops a Redis server (SIGSTOP) and measures when calls with a deadline
// return, and what is left of them on the server once it goes on.
//
// Left of a call is a lock that it holds, or a place in a queue. What a lock's name leaves
// behind by design is not meant: the highest ticket, and for a while the IDs of claims that
// have left, so that a late copy of their join finds out.
package deadline

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/internal/servertest"
	"github.com/redlatch/redlatch/verify/client"
	"github.com/redlatch/redlatch/verify/quantile"
)

// Config is the size of a run.
type Config struct {
	Calls int // with a deadline, of all kinds together
	Seed  uint64

	wrap func(driver.Store) driver.Store // breaks the product on purpose; nil: not
}

const (
	// Deadline is that of every call.
	Deadline = 100 * time.Millisecond

	// Clear is within what time of its going on the server has nothing left of the calls.
	Clear = 200 * time.Millisecond

	watched = 2 * Clear // so long is looked whether something comes back
)

// Result is what came of a run.
type Result struct {
	Took   map[string]quantile.Spread // by kind of call
	All    quantile.Spread
	Gone   quantile.Spread // from when the server went on to when it was last seen to have something left
	Faults []string
}

func (r Result) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "calls with a deadline of %v to a stopped server: %v\n", Deadline, r.All)
	for _, kind := range slices.Sorted(maps.Keys(r.Took)) {
		fmt.Fprintf(&b, "  %-18s %v\n", kind, r.Took[kind])
	}
	fmt.Fprintf(&b, "nothing is left of a stop's calls after: %v\n", r.Gone)
	fmt.Fprintf(&b, "%d faults\n", len(r.Faults))
	for _, f := range r.Faults {
		fmt.Fprintln(&b, f)
	}
	return b.String()
}

// run is one run on its way.
type run struct {
	server *servertest.RedisServer
	wrap   func(driver.Store) driver.Store
	random *rand.Rand
	holder *client.Client // has the names that others want
	warm   *client.Client // has connections and a subscription when the server stops

	names int
	keys  map[string]any // lock key -> value that it must have

	mu     sync.Mutex
	took   map[string][]time.Duration
	gone   []time.Duration
	faults []string
}

// Run stops the server again and again, each time under one call of every kind.
func Run(ctx context.Context, cfg Config) (Result, error) {
	server, err := servertest.StartRedis(ctx, servertest.RedisConfig{})
	if err != nil {
		return Result{}, err
	}
	defer server.Close()
	client.Silence()
	r := &run{
		server: server, wrap: cfg.wrap, random: rand.New(rand.NewPCG(cfg.Seed, 0)),
		keys: make(map[string]any), took: make(map[string][]time.Duration),
	}
	if r.holder, err = client.New(server.Addr(), "holder", nil); err != nil {
		return Result{}, err
	}
	defer r.holder.Close()
	if r.warm, err = client.New(server.Addr(), "warm", cfg.wrap); err != nil {
		return Result{}, err
	}
	defer r.warm.Close()
	for calls := 0; calls < cfg.Calls; {
		n, err := r.stop(ctx)
		if err != nil {
			return Result{}, err
		}
		calls += n
	}
	res := Result{Took: make(map[string]quantile.Spread), Gone: quantile.Of(r.gone), Faults: r.faults}
	var all []time.Duration
	for kind, took := range r.took {
		res.Took[kind] = quantile.Of(took)
		all = append(all, took...)
	}
	res.All = quantile.Of(all)
	return res, nil
}

// call is one kind of call, on a client of its own choice.
type call struct {
	kind string
	f    func(ctx context.Context) error
}

// stop stops the server under one call of each kind, lets it go on when they have
// returned, and looks at what is left.
func (r *run) stop(ctx context.Context) (int, error) {
	clear(r.keys)
	cold, err := client.New(r.server.Addr(), "cold", r.wrap)
	if err != nil {
		return 0, err
	}
	defer cold.Close()
	calls, cleanup, err := r.calls(ctx, cold)
	if err != nil {
		return 0, err
	}
	r.server.Stop()
	var work sync.WaitGroup
	for _, c := range calls {
		work.Go(func() { r.measure(ctx, c) })
	}
	work.Wait()
	// Some stops are over before the first release of a given up claim has timed out.
	rest := []time.Duration{0, 150 * time.Millisecond, 1300 * time.Millisecond}[r.random.IntN(3)]
	err = client.Pause(ctx, rest)
	r.server.Continue()
	if err != nil {
		return 0, err
	}
	if err := r.look(ctx, rest); err != nil {
		return 0, err
	}
	return len(calls), cleanup()
}

// calls prepares a stop: it takes the locks that are wanted or kept in it.
func (r *run) calls(ctx context.Context, cold *client.Client) ([]call, func() error, error) {
	var helds []*redlatch.Held
	taken := func(c *client.Client) (string, *redlatch.Held, error) {
		name := r.name()
		held, err := c.Locks.Lock(ctx, name, redlatch.Options{TTL: time.Minute})
		if err != nil {
			return "", nil, err
		}
		helds = append(helds, held)
		r.keys["lock:"+name] = held.Token()
		return name, held, nil
	}
	var calls []call
	for who, c := range map[string]*client.Client{"warm": r.warm, "cold": cold} {
		busy, _, err := taken(r.holder)
		if err != nil {
			return nil, nil, err
		}
		calls = append(calls,
			call{"Lock, " + who, lock(c, r.name())},
			call{"Lock held, " + who, lock(c, busy)},
			call{"TryLock, " + who, func(ctx context.Context) error {
				_, err := c.Locks.TryLock(ctx, r.name(), redlatch.Options{})
				return err
			}},
			call{"Do, " + who, func(ctx context.Context) error {
				return c.Locks.Do(ctx, r.name(), redlatch.Options{}, func(context.Context, *redlatch.Held) error { return nil })
			}},
			call{"LockAll, " + who, func(ctx context.Context) error {
				_, err := c.Locks.LockAll(ctx, []string{r.name(), busy}, redlatch.Options{})
				return err
			}},
			call{"Inspect, " + who, func(ctx context.Context) error {
				_, err := c.Locks.Inspect(ctx, busy)
				return err
			}},
		)
	}
	_, mine, err := taken(r.warm)
	if err != nil {
		return nil, nil, err
	}
	waited, _, err := taken(r.holder)
	if err != nil {
		return nil, nil, err
	}
	calls = append(calls,
		call{"Renew, warm", func(ctx context.Context) error { return mine.Renew(ctx, 2*time.Minute) }},
		call{"Lock held, MaxWait", func(ctx context.Context) error {
			_, err := r.warm.Locks.Lock(context.WithoutCancel(ctx), waited, redlatch.Options{MaxWait: Deadline})
			return err
		}},
	)
	return calls, func() error {
		var errs []error
		for _, held := range helds {
			errs = append(errs, held.Unlock())
		}
		return errors.Join(errs...)
	}, nil
}

func lock(c *client.Client, name string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := c.Locks.Lock(ctx, name, redlatch.Options{})
		return err
	}
}

func (r *run) name() string {
	r.mu.Lock()
	defer r.mu.Unlock()

	r.names++
	return fmt.Sprintf("orders/%d", r.names)
}

func (r *run) measure(ctx context.Context, c call) {
	ctx, cancel := context.WithTimeout(ctx, Deadline)
	defer cancel()
	began := time.Now()
	err := c.f(ctx)
	took := time.Since(began)

	r.mu.Lock()
	defer r.mu.Unlock()

	r.took[c.kind] = append(r.took[c.kind], took)
	if !errors.Is(err, redlatch.ErrUnavailable) {
		r.faults = append(r.faults, fmt.Sprintf("%s on a stopped server says: %v", c.kind, err))
	}
}

// look watches the server from its going on, and notes when it was last seen to have
// something left.
func (r *run) look(ctx context.Context, stopped time.Duration) error {
	began := time.Now()
	var dirty time.Duration
	var what string
	for time.Since(began) < watched {
		left, err := r.left()
		if err != nil {
			return err
		}
		if left != "" {
			dirty, what = time.Since(began), left
		}
		if err := client.Pause(ctx, 2*time.Millisecond); err != nil {
			return err
		}
	}
	r.gone = append(r.gone, dirty)
	if dirty > Clear {
		r.faults = append(r.faults, fmt.Sprintf("%v after a server that was stopped for %v more went on it has still %s",
			dirty.Round(time.Millisecond), stopped, what))
	}
	return nil
}

// left is what the server has of the calls.
func (r *run) left() (string, error) {
	reply, err := r.server.Do("KEYS", "lock:*")
	if err != nil {
		return "", err
	}
	keys, _ := reply.([]any)
	for _, k := range keys {
		key, _ := k.(string)
		switch {
		case strings.HasPrefix(key, "lock:orders/"):
			value, err := r.server.Do("GET", key)
			if err != nil {
				return "", err
			}
			if want, ok := r.keys[key]; value != nil && (!ok || value != want) {
				return fmt.Sprintf("the lock %s = %v", key, value), nil
			}
		case strings.HasSuffix(key, "\x02q"):
			queue, err := r.server.Do("ZRANGE", key, "0", "-1")
			if err != nil {
				return "", err
			}
			if waiting, _ := queue.([]any); len(waiting) > 0 {
				return fmt.Sprintf("waiting in %q: %v", key, waiting), nil
			}
		}
	}
	return "", nil
}
