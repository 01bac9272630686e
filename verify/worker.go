//go:build linux

package verify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/lease"
	"github.com/redlatch/redlatch/redisstore"
)

// workerEnv makes a process a worker: it holds what the worker has to know.
const workerEnv = "REDLATCH_VERIFY_WORKER"

type worker struct {
	Addr       string
	Dir        string
	Process    int
	Goroutines int
	Names      int
	TTL        time.Duration
	Seed       uint64
	Broken     string // "": the product as it is

	mu      sync.Mutex
	record  *os.File
	waiting map[string]int
}

// BeWorker turns this process into a worker if it was started as one; it then does not
// return. Whoever starts workers calls it first thing in main.
func BeWorker() {
	text := os.Getenv(workerEnv)
	if text == "" {
		return
	}
	var w worker
	if err := json.Unmarshal([]byte(text), &w); err != nil {
		panic(err)
	}
	redis.SetLogger(quiet{}) // connections are killed here all the time
	if err := w.run(); err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

func (w *worker) run() (err error) {
	name := filepath.Join(w.Dir, fmt.Sprintf("p%d", w.Process))
	if w.record, err = os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
		return err
	}
	client := redis.NewClient(&redis.Options{Addr: w.Addr})
	redisStore, err := redisstore.New(client, redisstore.Options{})
	if err != nil {
		return err
	}
	var store driver.Store = redisStore
	if w.Broken == "plain-del" {
		store = plainDel{redisStore, client}
	}
	locks, err := redlatch.New(store, redlatch.Config{OnUnavailable: redlatch.Wait})
	if err != nil {
		return err
	}
	w.waiting = map[string]int{}
	go w.stampWaits()
	for i := range w.Goroutines {
		go w.loop(locks, rand.New(rand.NewPCG(w.Seed, uint64(w.Process*1000+i))))
	}
	select {} // until it is killed
}

// plainDel is the classic fault: it releases without comparing.
type plainDel struct {
	driver.Store

	client *redis.Client
}

func (p plainDel) Leave(ctx context.Context, name, _ string, _ lease.Seal) (lease.Standing, error) {
	return lease.Standing{State: lease.Held}, p.client.Del(ctx, "lock:"+name).Err()
}

func (w *worker) loop(locks *redlatch.Locker, dice *rand.Rand) {
	for {
		name := fmt.Sprintf("n%02d", dice.IntN(w.Names))
		w.wait(name, 1)
		held, err := locks.Lock(context.Background(), name, redlatch.Options{TTL: w.TTL})
		w.wait(name, -1)
		if err != nil {
			fmt.Fprintln(os.Stderr, "worker:", err)
			time.Sleep(100 * time.Millisecond)
			continue
		}
		w.hold(held, w.TTL/10+time.Duration(dice.Int64N(int64(w.TTL*29/10))))
		if err := held.Unlock(); err != nil && !errors.Is(err, redlatch.ErrLost) && !errors.Is(err, redlatch.ErrUnavailable) {
			fmt.Fprintln(os.Stderr, "worker:", err)
		}
	}
}

// hold stamps the name until its time is over or the lock is lost.
func (w *worker) hold(held *redlatch.Held, d time.Duration) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	over := time.NewTimer(d)
	defer over.Stop()
	for {
		now := hostNow()
		if held.Context().Err() != nil {
			return
		}
		w.write(Stamp{Kind: Holds, At: now, Name: held.Name(), Fence: held.Fence(), Process: w.Process})
		select {
		case <-held.Context().Done():
			return
		case <-over.C:
			return
		case <-tick.C:
		}
	}
}

func (w *worker) wait(name string, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting[name] += n
}

func (w *worker) stampWaits() {
	for range time.Tick(200 * time.Millisecond) {
		w.mu.Lock()
		var names []string
		for name, n := range w.waiting {
			if n > 0 {
				names = append(names, name)
			}
		}
		w.mu.Unlock()
		for _, name := range names {
			w.write(Stamp{Kind: Waits, At: hostNow(), Name: name, Process: w.Process})
		}
	}
}

func (w *worker) write(s Stamp) {
	if _, err := fmt.Fprintf(w.record, "%c %d %s %d %d\n", s.Kind, s.At, s.Name, s.Fence, s.Process); err != nil {
		panic(err)
	}
}
