// Command commands counts, by INFO commandstats of a real server, what locks cost it:
// commands sent per acquisition with few and many waiters, and per second by those who
// wait for a held lock. Clients are processes of their own; each renews a hundred other
// locks meanwhile. It starts its own server.
//
// EVALSHA, PING, SUBSCRIBE and the like are what clients send; what a script calls is
// counted by the server too, and is listed apart.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/servertest"
	"github.com/redlatch/redlatch/redisstore"
)

// sent are the commands that clients send; all others come from inside scripts, or are
// the harness's own (INFO, CONFIG).
var sent = []string{"evalsha", "eval", "ping", "subscribe", "unsubscribe", "hello", "client|setinfo"}

const workerEnv = "REDLATCH_BENCH_WORKER"

type worker struct {
	Addr, Counter string
	ID, Waiters   int
	Hold          time.Duration
}

func main() {
	if text := os.Getenv(workerEnv); text != "" {
		var w worker
		if err := json.Unmarshal([]byte(text), &w); err != nil {
			panic(err)
		}
		fail(w.run())
		return
	}
	window := flag.Duration("window", time.Minute, "how long each is counted")
	processes := flag.Int("processes", 4, "client processes")
	hold := flag.Duration("hold", 2*time.Millisecond, "how long each holds the contended lock")
	flag.Parse()
	for _, waiters := range []int{1, 32, 1000} {
		fail(contended(*window, *processes, waiters, *hold))
	}
	fail(held(*window, *processes, 1000))
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "commands:", err)
		os.Exit(1)
	}
}

// contended counts what one acquisition costs while so many wait.
func contended(window time.Duration, processes, waiters int, hold time.Duration) error {
	return measure(processes, waiters+1, hold, nil, func(server *servertest.RedisServer, got func() int) error {
		before := got()
		if _, err := server.Do("CONFIG", "RESETSTAT"); err != nil {
			return err
		}
		wait(window)
		stats, acquired := server.CommandStats(), got()-before
		fmt.Printf("%4d waiters, %d processes, %v: %d acquisitions\n", waiters, processes, window, acquired)
		report(stats, func(n int) string { return fmt.Sprintf("%7.3f per acquisition", float64(n)/float64(acquired)) })
		return nil
	})
}

// held counts what those cost who wait for a lock that is held all the time.
func held(window time.Duration, processes, waiters int) error {
	hold := func(server *servertest.RedisServer) error {
		locks, err := locker(server.Addr())
		if err != nil {
			return err
		}
		_, err = locks.Lock(context.Background(), "hot", redlatch.Options{})
		return err
	}
	return measure(processes, waiters, 0, hold, func(server *servertest.RedisServer, _ func() int) error {
		if _, err := server.Do("CONFIG", "RESETSTAT"); err != nil {
			return err
		}
		wait(window)
		fmt.Printf("%4d wait for a held lock, %d processes, %v\n", waiters, processes, window)
		report(server.CommandStats(), func(n int) string {
			return fmt.Sprintf("%7.3f per second and process", float64(n)/window.Seconds()/float64(processes))
		})
		return nil
	})
}

func report(stats map[string]int, rate func(int) string) {
	names := make([]string, 0, len(stats))
	for name := range stats {
		names = append(names, name)
	}
	slices.Sort(names)
	total, inner := 0, []string{}
	for _, name := range names {
		switch {
		case slices.Contains(sent, name):
			total += stats[name]
			fmt.Printf("    %-16s %9d %s\n", name, stats[name], rate(stats[name]))
		case name != "info" && !strings.HasPrefix(name, "config"):
			inner = append(inner, fmt.Sprintf("%s %d", name, stats[name]))
		}
	}
	fmt.Printf("    %-16s %9d %s\n    in scripts: %s\n", "sent in all", total, rate(total), strings.Join(inner, ", "))
}

// measure runs do while the workers are at it.
func measure(processes, waiters int, hold time.Duration, first func(*servertest.RedisServer) error, do func(*servertest.RedisServer, func() int) error) error {
	dir, err := os.MkdirTemp("", "redlatch-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	server, err := servertest.StartRedis(context.Background(), servertest.RedisConfig{})
	if err != nil {
		return err
	}
	defer server.Close()
	if first != nil {
		if err := first(server); err != nil {
			return err
		}
	}
	for i := range processes {
		n := waiters / processes
		if i < waiters%processes {
			n++
		}
		about, err := json.Marshal(worker{Addr: server.Addr(), Counter: filepath.Join(dir, strconv.Itoa(i)), ID: i, Waiters: n, Hold: hold})
		if err != nil {
			return err
		}
		cmd := exec.Command(os.Args[0])
		cmd.Env, cmd.Stderr = append(os.Environ(), workerEnv+"="+string(about)), os.Stderr
		if err := cmd.Start(); err != nil {
			return err
		}
		defer func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait() // it was killed
		}()
	}
	wait(5 * time.Second) // everybody stands in line
	return do(server, func() int { return sum(dir) })
}

func wait(d time.Duration) { <-time.After(d) }

func sum(dir string) int {
	files, _ := filepath.Glob(filepath.Join(dir, "[0-9]"))
	total := 0
	for _, name := range files {
		text, _ := os.ReadFile(name)
		n, _ := strconv.Atoi(string(text))
		total += n
	}
	return total
}

func locker(addr string) (*redlatch.Locker, error) {
	store, err := redisstore.New(redis.NewClient(&redis.Options{Addr: addr}), redisstore.Options{})
	if err != nil {
		return nil, err
	}
	return redlatch.New(store, redlatch.Config{})
}

func (w worker) run() error {
	locks, err := locker(w.Addr)
	if err != nil {
		return err
	}
	for i := range 100 {
		if _, err := locks.Lock(context.Background(), fmt.Sprintf("own/%d/%d", w.ID, i), redlatch.Options{}); err != nil {
			return err
		}
	}
	var acquired atomic.Int64
	for range w.Waiters {
		go func() {
			for {
				held, err := locks.Lock(context.Background(), "hot", redlatch.Options{})
				fail(err)
				acquired.Add(1)
				wait(w.Hold)
				fail(held.Unlock())
			}
		}()
	}
	for range time.Tick(50 * time.Millisecond) {
		temp := w.Counter + ".new"
		if err := os.WriteFile(temp, []byte(strconv.FormatInt(acquired.Load(), 10)), 0o600); err != nil {
			return err
		}
		if err := os.Rename(temp, w.Counter); err != nil {
			return err
		}
	}
	return nil
}
