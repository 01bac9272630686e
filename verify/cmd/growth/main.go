//go:build linux

// Command growth uses locks for a long time in all ways, breaks connections and locks
// meanwhile, and tells whether anything grew: goroutines, memory, files and connections here,
// connections, keys and memory at the server, files in the directory. It exits with 1 if
// something did.
//
//	go run ./verify/cmd/growth -for 10m -store redis
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/filestore"
	"github.com/redlatch/redlatch/internal/servertest"
	"github.com/redlatch/redlatch/redisstore"
	"github.com/redlatch/redlatch/verify/client"
	"github.com/redlatch/redlatch/verify/growth"
)

// slacks are what chance may do. Of the names there are always as many.
var slacks = map[string]growth.Slack{
	"goroutines": {Part: 0.1, Least: 20}, "heap": {Part: 0.1, Least: 2 << 20}, "rss": {Part: 0.15, Least: 16 << 20},
	"files here": {Part: 0.1, Least: 10},
	"clients":    {Part: 0.1, Least: 10}, "keys": {Part: 0.1, Least: 20}, "server memory": {Part: 0.1, Least: 1 << 20},
	"files of the store": {Part: 0.1, Least: 20},
}

const names = 50

func main() {
	length := flag.Duration("for", 10*time.Minute, "how long")
	every := flag.Duration("every", 5*time.Second, "between samples")
	kind := flag.String("store", "redis", "or files")
	leak := flag.Bool("leak", false, "leak a goroutine in a while, to see it found")
	flag.Parse()
	client.Silence()
	grown, err := run(*length, *every, *kind, *leak)
	if err != nil {
		fmt.Fprintln(os.Stderr, "growth:", err)
		os.Exit(2)
	}
	for _, g := range grown {
		fmt.Println(g)
	}
	if len(grown) > 0 {
		os.Exit(1)
	}
	fmt.Println("nothing grew")
}

// place is a store, and what to do to it and to count of it.
type place struct {
	store   driver.Store
	disturb func(name string)
	count   func(growth.Sample) error
	close   func()
}

func open(kind string) (*place, error) {
	switch kind {
	case "redis":
		return openRedis()
	case "files":
		return openFiles()
	}
	return nil, fmt.Errorf("there is no store %q: redis or files", kind)
}

func openRedis() (*place, error) {
	server, err := servertest.StartRedis(context.Background(), servertest.RedisConfig{})
	if err != nil {
		return nil, err
	}
	c := redis.NewClient(&redis.Options{Addr: server.Addr()})
	store, err := redisstore.New(c, redisstore.Options{})
	if err != nil {
		return nil, err
	}
	return &place{
		store: store,
		disturb: func(name string) {
			_, _ = server.Do("CLIENT", "KILL", "TYPE", [...]string{"normal", "pubsub"}[rand.IntN(2)])
			_, _ = server.Do("DEL", "lock:"+name)
			_, _ = server.Do("SCRIPT", "FLUSH")
		},
		count: func(s growth.Sample) error {
			info := server.Info("everything")
			for what, field := range map[string]string{"clients": "connected_clients", "server memory": "used_memory"} {
				n, err := strconv.ParseFloat(info[field], 64)
				if err != nil {
					return fmt.Errorf("INFO %s: %w", field, err)
				}
				s[what] = n
			}
			keys, err := server.Do("DBSIZE")
			if n, ok := keys.(int64); ok {
				s["keys"] = float64(n)
			}
			return err
		},
		close: func() { _ = store.Close(); _ = c.Close(); server.Close() },
	}, nil
}

func openFiles() (*place, error) {
	dir, err := os.MkdirTemp("", "growth-*")
	if err != nil {
		return nil, err
	}
	store, err := filestore.New(dir, filestore.Options{})
	if err != nil {
		return nil, err
	}
	return &place{
		store:   store,
		disturb: func(string) {},
		count: func(s growth.Sample) error {
			return filepath.WalkDir(dir, func(_ string, _ fs.DirEntry, err error) error {
				s["files of the store"]++
				if errors.Is(err, fs.ErrNotExist) {
					return nil // it went while we looked
				}
				return err
			})
		},
		close: func() { _ = store.Close(); _ = os.RemoveAll(dir) },
	}, nil
}

func run(length, every time.Duration, kind string, leak bool) ([]growth.Grown, error) {
	p, err := open(kind)
	if err != nil {
		return nil, err
	}
	defer p.close()
	locks, err := redlatch.New(p.store, redlatch.Config{})
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithTimeout(context.Background(), length)
	defer stop()
	var work sync.WaitGroup
	var uses atomic.Int64
	for range 32 {
		work.Go(func() {
			for ctx.Err() == nil {
				use(ctx, locks, name())
				uses.Add(1)
				if leak && rand.IntN(10) == 0 {
					go func() { select {} }()
				}
			}
		})
	}
	var counting sync.Mutex // whoever counts has a connection too, which is not to be killed
	work.Go(func() {
		for pause(ctx, 2*time.Second) {
			counting.Lock()
			p.disturb(name())
			counting.Unlock()
		}
	})
	var samples []growth.Sample
	for pause(ctx, every) {
		counting.Lock()
		s, err := sample(p)
		counting.Unlock()
		if err != nil {
			return nil, err
		}
		samples = append(samples, s)
		fmt.Printf("%v uses %d\n", s, uses.Load())
	}
	work.Wait()
	if err := locks.Close(context.Background()); err != nil {
		fmt.Println("close:", err)
	}
	fmt.Printf("%d uses of %d names in %v\n", uses.Load(), names, length)
	return growth.Judge(samples, slacks)
}

func name() string { return "n" + strconv.Itoa(rand.IntN(names)) }

// use takes a lock in one of the ways there are; whether it gets it, and whether it loses it,
// is all the same here.
func use(ctx context.Context, locks *redlatch.Locker, name string) {
	o := redlatch.Options{TTL: 2 * time.Second}
	var held *redlatch.Held
	switch rand.IntN(4) {
	case 0:
		held, _ = locks.TryLock(ctx, name, o)
	case 1: // given up while it waits, or before
		short, cancel := context.WithTimeout(ctx, rand.N(20*time.Millisecond))
		held, _ = locks.Lock(short, name, o)
		cancel()
	case 2:
		o.MaxWait = time.Second
		held, _ = locks.Lock(ctx, name, o)
	case 3:
		_ = locks.Do(ctx, name, redlatch.Options{TTL: o.TTL, MaxWait: time.Second}, func(ctx context.Context, _ *redlatch.Held) error {
			pause(ctx, rand.N(5*time.Millisecond))
			return nil
		})
	}
	if held == nil {
		return
	}
	if rand.IntN(50) == 0 {
		pause(ctx, 3*time.Second) // it is renewed meanwhile
	}
	_ = held.Unlock()
}

func sample(p *place) (growth.Sample, error) {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	s := growth.Sample{"goroutines": float64(runtime.NumGoroutine()), "heap": float64(m.HeapAlloc)}
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return nil, err
	}
	fields := strings.Fields(string(text))
	pages, err := strconv.ParseFloat(fields[1], 64)
	if err != nil {
		return nil, err
	}
	s["rss"] = pages * float64(os.Getpagesize())
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil, err
	}
	s["files here"] = float64(len(files))
	return s, p.count(s)
}

// pause reports false if ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
