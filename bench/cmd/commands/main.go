//go:build unix

// Command commands counts, by INFO commandstats of a real server, what locks cost it:
// commands sent per acquisition with few and many waiters, and per second by those who
// wait for a held lock. It starts its own server. Clients are processes of their own, this
// program started again; each renews a hundred other locks meanwhile.
//
// The server counts what scripts call as well. What clients send is told apart by name:
// EVALSHA, EVAL, PING, SUBSCRIBE and what a connection begins with are never called by our
// scripts, everything else always is (the test asks MONITOR). Renewals are EVALSHA too;
// the clients count their own, because only they know.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/servertest"
	"github.com/redlatch/redlatch/redisstore"
)

func main() {
	beClient()
	b := bench{}
	flag.DurationVar(&b.window, "window", time.Minute, "how long each is counted")
	flag.IntVar(&b.processes, "processes", 4, "client processes")
	flag.IntVar(&b.others, "others", 100, "other locks that each process holds and renews")
	flag.DurationVar(&b.hold, "hold", 2*time.Millisecond, "how long each holds the contended lock")
	flag.Parse()
	for _, waiters := range []int{1, 32, 1000} {
		c, err := b.contended(waiters)
		check(err)
		fmt.Printf("%d waiters, %d processes, %v, each holds for %v: %d acquisitions\n%s",
			waiters, b.processes, b.window, b.hold, c.acquired, c.table("per acquisition", float64(c.acquired)))
	}
	for _, waiters := range []int{32, 1000} {
		c, err := b.held(waiters)
		check(err)
		fmt.Printf("%d wait for a lock that is held, %d processes, %v\n%s",
			waiters, b.processes, b.window, c.table("per second and process", b.window.Seconds()*float64(b.processes)))
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "commands:", err)
		os.Exit(1)
	}
}

// bench is what all runs have in common.
type bench struct {
	window    time.Duration
	processes int
	others    int
	hold      time.Duration
}

// hot is the lock that everybody wants, and queue the key of those who wait for it.
const (
	hot   = "hot"
	queue = "lock:{lock:hot}\x02q"
)

// contended counts what an acquisition costs while that many wait for the next one.
func (b bench) contended(waiters int) (count, error) {
	return b.run(waiters+1, waiters, func(*servertest.RedisServer) error { return nil })
}

// held counts what those cost who wait for a lock that is never given back.
func (b bench) held(waiters int) (count, error) {
	client, locks, err := (*redis.Client)(nil), (*redlatch.Locker)(nil), error(nil)
	c, err := b.run(waiters, waiters, func(server *servertest.RedisServer) error {
		if client, locks, err = connect(server.Addr()); err != nil {
			return err
		}
		_, err := locks.Lock(context.Background(), hot, redlatch.Options{})
		return err
	})
	if client != nil {
		_ = client.Close() // the server is gone, and the lock with it
	}
	return c, err
}

// run lets goroutines that want the hot lock loose on a new server, and counts once so
// many stand in line.
func (b bench) run(goroutines, inLine int, first func(*servertest.RedisServer) error) (count, error) {
	server, err := servertest.StartRedis(context.Background(), servertest.RedisConfig{})
	if err != nil {
		return count{}, err
	}
	defer server.Close()
	if err := first(server); err != nil {
		return count{}, err
	}
	var clients []*client
	defer func() {
		for _, c := range clients {
			c.end()
		}
	}()
	for i := range b.processes {
		n := goroutines / b.processes
		if i < goroutines%b.processes {
			n++
		}
		c, err := startClient(orders{Addr: server.Addr(), ID: i, Goroutines: n, Others: b.others, Hold: b.hold})
		if err != nil {
			return count{}, err
		}
		clients = append(clients, c)
	}
	if err := awaitLine(server, inLine); err != nil {
		return count{}, err
	}
	before, err := tell(clients)
	if err != nil {
		return count{}, err
	}
	if _, err := server.Do("CONFIG", "RESETSTAT"); err != nil {
		return count{}, err
	}
	<-time.After(b.window)
	stats := server.CommandStats()
	after, err := tell(clients)
	if err != nil {
		return count{}, err
	}
	return count{stats: stats, acquired: after.Acquired - before.Acquired, renewals: after.Renewals - before.Renewals}, nil
}

// awaitLine waits until about that many stand in line, and have their connections: those
// of whom one has just been given the lock are on their way back to its end.
func awaitLine(server *servertest.RedisServer, n int) error {
	for deadline := time.Now().Add(time.Minute); ; {
		waiting, err := server.Do("ZCARD", queue)
		if err != nil {
			return err
		}
		if waiting, _ := waiting.(int64); int(waiting) >= n*9/10 {
			break
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("after a minute only %v of %d stand in line", waiting, n)
		}
	}
	<-time.After(3 * time.Second) // the rest, and records of names, which are written half a second late
	return nil
}

func connect(addr string) (*redis.Client, *redlatch.Locker, error) {
	client := redis.NewClient(&redis.Options{Addr: addr})
	store, err := redisstore.New(client, redisstore.Options{})
	if err != nil {
		return nil, nil, err
	}
	locks, err := redlatch.New(store, redlatch.Config{})
	return client, locks, err
}
