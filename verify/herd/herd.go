//go:build unix

// Package herd restarts a Redis server that many processes wait on, or that one process
// has many holds on, and measures what comes down on it when it is back: commands and
// connections, at their peak and for each of them, and how long it takes until everybody
// knows where he stands.
//
// The processes are Stores with a client and connections of their own in this one
// process: what the server sees is the same. It judges nothing.
package herd

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/servertest"
	"github.com/redlatch/redlatch/redisstore"
	"github.com/redlatch/redlatch/verify/client"
)

// Config says how many of what. One of Waiters and Holds is set.
type Config struct {
	Waiters int           // processes, each with one that waits
	Names   int           // that they wait for; default 10
	Holds   int           // in one process
	TTL     time.Duration // of the holds; default 30 s
	Away    time.Duration // how long the server is; 0: it is back at once
	Cut     bool          // only the connections are cut: the server stays
}

// Result is what the server saw from its return until all was settled.
type Result struct {
	Settled     time.Duration // until every waiter is queued again, or every hold has its verdict
	Commands    int           // in that time
	Peak        int           // commands, in the second that had most of them
	Connections int           // that were made
	PeakOpen    int           // connections that were open at one time
	Twice       int           // holds with more than one verdict
	Failed      int           // waiters that gave up, or holds that could not be taken
}

func (r Result) String() string {
	return fmt.Sprintf("settled after %v: %d commands, %d in the worst second; %d connections made, %d open at one time; %d verdicts too many, %d failed",
		r.Settled.Round(10*time.Millisecond), r.Commands, r.Peak, r.Connections, r.PeakOpen, r.Twice, r.Failed)
}

type herd struct {
	cfg    Config
	server *servertest.RedisServer
	watch  *servertest.Conn
	open   []func()
	mu     sync.Mutex
	twice  int
	lost   map[string]int
	failed atomic.Int64
	queued func() (bool, error) // whether all is settled
}

// Run measures once.
func Run(ctx context.Context, cfg Config) (Result, error) {
	if cfg.Names == 0 {
		cfg.Names = 10
	}
	if cfg.TTL == 0 {
		cfg.TTL = 30 * time.Second
	}
	server, err := servertest.StartRedis(ctx, servertest.RedisConfig{Args: []string{"--maxclients", "60000"}})
	if err != nil {
		return Result{}, err
	}
	defer server.Close()
	ctx, cancel := context.WithCancel(ctx)
	h := &herd{cfg: cfg, server: server, lost: make(map[string]int)}
	defer func() {
		cancel()
		server.Close() // nobody is to be released one by one
		h.close()
	}()
	if cfg.Holds > 0 {
		err = h.hold(ctx)
	} else {
		err = h.wait(ctx)
	}
	if err != nil {
		return Result{}, err
	}
	return h.measure(ctx)
}

// process is one with a client of its own.
func (h *herd) process(pool int, cfg redlatch.Config) (*redlatch.Locker, error) {
	c := redis.NewClient(&redis.Options{Addr: h.server.Addr(), PoolSize: pool, DisableIdentity: true})
	s, err := redisstore.New(c, redisstore.Options{})
	if err != nil {
		return nil, err
	}
	l, err := redlatch.New(s, cfg)
	if err != nil {
		return nil, err
	}
	h.open = append(h.open, func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		_ = l.Close(ctx)
		_ = c.Close()
		_ = s.Close()
	})
	return l, nil
}

func (h *herd) close() {
	var work sync.WaitGroup
	for _, end := range h.open {
		work.Go(end)
	}
	work.Wait()
}

func (h *herd) hold(ctx context.Context) error {
	l, err := h.process(10, redlatch.Config{Observer: redlatch.Observer{Lost: func(e redlatch.Event) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.lost[e.Name]++; h.lost[e.Name] > 1 {
			h.twice++
		}
	}}})
	if err != nil {
		return err
	}
	each(16, h.cfg.Holds, func(i int) {
		if _, err := l.TryLock(ctx, fmt.Sprint("hold/", i), redlatch.Options{TTL: h.cfg.TTL}); err != nil {
			h.failed.Add(1)
		}
	})
	h.queued = func() (bool, error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		return len(h.lost)+int(h.failed.Load()) >= h.cfg.Holds, nil
	}
	return ctx.Err()
}

func (h *herd) wait(ctx context.Context) error {
	holder, err := h.process(10, redlatch.Config{OnUnavailable: redlatch.Wait})
	if err != nil {
		return err
	}
	name := func(i int) string { return fmt.Sprint("wait/", i%h.cfg.Names) }
	for i := range h.cfg.Names {
		if _, err := holder.TryLock(ctx, name(i), redlatch.Options{TTL: h.cfg.TTL}); err != nil {
			return err
		}
	}
	for i := range h.cfg.Waiters {
		l, err := h.process(1, redlatch.Config{OnUnavailable: redlatch.Wait})
		if err != nil {
			return err
		}
		go func() {
			// Who gets the lock keeps it: the others are queued behind.
			if _, err := l.Lock(ctx, name(i), redlatch.Options{TTL: time.Hour}); err != nil && ctx.Err() == nil {
				h.failed.Add(1)
			}
		}()
	}
	h.queued = func() (bool, error) {
		n := 0
		for i := range h.cfg.Names {
			reply, err := h.do("ZCARD", "lock:{lock:"+name(i)+"}\x02q")
			if err != nil {
				return false, err
			}
			waiting, _ := reply.(int64)
			held, err := h.do("EXISTS", "lock:"+name(i))
			if err != nil {
				return false, err
			}
			n += int(waiting + held.(int64))
		}
		// After a restart one waiter a name has become the holder.
		return n+int(h.failed.Load()) >= h.cfg.Waiters, nil
	}
	if err := h.settle(ctx, func() {}); err != nil {
		return err
	}
	// Each looks once more when its subscription is up.
	return client.Pause(ctx, 3*time.Second)
}

func (h *herd) settle(ctx context.Context, sample func()) error {
	for {
		done, err := h.queued()
		sample()
		if done && err == nil {
			return nil
		}
		if err := client.Pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

func (h *herd) measure(ctx context.Context) (Result, error) {
	switch {
	case h.cfg.Cut:
		if _, err := h.do("CONFIG", "RESETSTAT"); err != nil {
			return Result{}, err
		}
		for _, kind := range []string{"normal", "pubsub"} {
			if _, err := h.do("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"); err != nil {
				return Result{}, err
			}
		}
	default:
		h.server.Kill()
		if err := client.Pause(ctx, h.cfg.Away); err != nil {
			return Result{}, err
		}
		h.forget()
		h.server.Restart()
	}
	var r Result
	began := time.Now()
	type point struct {
		at time.Time
		n  int
	}
	points := []point{{began, 0}} // the server counts from then
	ours := 0                     // commands of the measuring itself
	sample := func() {
		stats, err := h.info("stats", "total_commands_processed", "total_connections_received")
		clients, err2 := h.info("clients", "connected_clients")
		if errors.Join(err, err2) != nil {
			return
		}
		ours += 2 + 2*h.cfg.Names
		points = append(points, point{time.Now(), stats[0]})
		r.Commands, r.Connections, r.PeakOpen = max(0, stats[0]-ours), stats[1], max(r.PeakOpen, clients[0])
		first := len(points) - 1
		for first > 0 && time.Since(points[first].at) < time.Second {
			first-- // the last one before that second: a busy server is late with its numbers
		}
		r.Peak = max(r.Peak, stats[0]-points[first].n)
	}
	// Cut connections leave everybody in the queue; what comes is over when nothing comes.
	if h.cfg.Cut {
		for last := -1; r.Commands > last || time.Since(began) < 3*time.Second; {
			last = r.Commands + h.cfg.Waiters/100
			for range 20 {
				sample()
				if err := client.Pause(ctx, 50*time.Millisecond); err != nil {
					return r, err
				}
			}
		}
	} else if err := h.settle(ctx, sample); err != nil {
		return r, err
	}
	r.Settled = time.Since(began)
	h.mu.Lock()
	defer h.mu.Unlock()
	r.Twice, r.Failed = h.twice, int(h.failed.Load())
	return r, nil
}

// do sends a command over one connection of the measuring's own.
func (h *herd) do(args ...string) (any, error) {
	if h.watch == nil {
		var err error
		if h.watch, err = servertest.Dial(h.server.Socket()); err != nil {
			return nil, err
		}
	}
	reply, err := h.watch.Do(args...)
	if err != nil {
		h.forget()
	}
	return reply, err
}

func (h *herd) forget() {
	if h.watch != nil {
		h.watch.Close()
		h.watch = nil
	}
}

func (h *herd) info(section string, fields ...string) ([]int, error) {
	reply, err := h.do("INFO", section)
	if err != nil {
		return nil, err
	}
	text, _ := reply.(string)
	numbers := make([]int, len(fields))
	for i, field := range fields {
		if numbers[i], err = number(text, field); err != nil {
			return nil, err
		}
	}
	return numbers, nil
}

// each calls f with 0 to n-1 from several goroutines.
func each(workers, n int, f func(i int)) {
	var next atomic.Int64
	var work sync.WaitGroup
	for range workers {
		work.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				f(i)
			}
		})
	}
	work.Wait()
}

func number(info, field string) (int, error) {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			return strconv.Atoi(strings.TrimSpace(value))
		}
	}
	return 0, fmt.Errorf("INFO has no %s", field)
}
