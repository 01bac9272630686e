package redlock

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/drivertest"
	"github.com/redlatch/redlatch/internal/servertest"
	"github.com/redlatch/redlatch/quorum"
	"github.com/redlatch/redlatch/redisstore"
)

// servers starts n that keep what they have acknowledged, so that they vote at once.
func servers(t *testing.T, n int) []*servertest.RedisServer {
	t.Helper()
	var all []*servertest.RedisServer
	for range n {
		all = append(all, servertest.Redis(t, servertest.RedisConfig{Args: []string{"--appendonly", "yes", "--appendfsync", "always"}}))
	}
	return all
}

// over is a quorum of them, as one process has it.
func over(t *testing.T, servers []*servertest.RedisServer, o quorum.Options) *quorum.Store {
	t.Helper()
	var members []quorum.Member
	for _, s := range servers {
		client := redis.NewClient(&redis.Options{Addr: s.Addr(), MaxRetries: -1})
		store, err := redisstore.New(client, redisstore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Close() })
		members = append(members, quorum.Member{Name: s.Addr(), Store: store})
	}
	s, err := quorum.New(members, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func locker(t *testing.T, servers []*servertest.RedisServer) *redlatch.Locker {
	t.Helper()
	s := over(t, servers, quorum.Options{})
	l, err := redlatch.New(s, redlatch.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = l.Close(context.Background())
		_ = s.Close()
	})
	return l
}

func TestConformance(t *testing.T) {
	drivertest.Run(t, "quorum/redis", func(t *testing.T) func() driver.Store {
		all := servers(t, 3)
		return func() driver.Store {
			return over(t, all, quorum.Options{LongestTTL: time.Hour, NodeTimeout: 2 * time.Second})
		}
	})
}

// Lock and Unlock on five servers, with one that refuses and one that hangs: as fast as on
// five that are well, and nothing is left of the lock anywhere.
func TestOneRefusesAndOneHangs(t *testing.T) {
	all := servers(t, 5)
	l := locker(t, all)
	pairs := func(n int) time.Duration {
		t.Helper()
		var took []time.Duration
		for range n {
			began := time.Now()
			held, err := l.Lock(t.Context(), "x", redlatch.Options{TTL: 10 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			if err := held.Unlock(); err != nil {
				t.Fatal(err)
			}
			took = append(took, time.Since(began))
		}
		slices.Sort(took)
		return took[n/2]
	}
	healthy := pairs(200)
	all[0].Kill()
	all[1].Stop()
	ill := pairs(200)
	t.Logf("p50 healthy %v, with one that refuses and one that hangs %v: %.2f", healthy, ill, float64(ill)/float64(healthy))
	if ill > 100*time.Millisecond {
		t.Errorf("Lock and Unlock took %v: somebody was waited for", ill)
	}
	all[1].Continue()
	servertest.Eventually(t, 11*time.Second, "nothing to be left of the lock", func() bool {
		for _, s := range all[1:] {
			if n, err := s.Do("EXISTS", "lock:x"); err != nil || n != int64(0) {
				return false
			}
		}
		return true
	})
}

// A majority that hangs: the error says of each server what it said.
func TestNoQuorum(t *testing.T) {
	all := servers(t, 3)
	l := locker(t, all)
	all[0].Kill()
	all[1].Stop()
	defer all[1].Continue()
	_, err := l.TryLock(t.Context(), "x", redlatch.Options{})
	var none *quorum.NoQuorumError
	if !errors.Is(err, redlatch.ErrUnavailable) || !errors.As(err, &none) || len(none.Nodes) != 2 {
		t.Fatalf("%v", err)
	}
	for i, n := range none.Nodes {
		if n.Node != all[i].Addr() || n.Err == nil {
			t.Errorf("server %d is %s: %v", i, n.Node, n.Err)
		}
	}
}

// A server that was restarted without its data does not vote for as long as a lease may last.
func TestARestartedServerDoesNotVote(t *testing.T) {
	var all []*servertest.RedisServer
	for range 3 {
		all = append(all, servertest.Redis(t, servertest.RedisConfig{}))
	}
	s := over(t, all, quorum.Options{LongestTTL: 3 * time.Second})
	l, err := redlatch.New(s, redlatch.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close(context.Background()) }()
	try := func() error {
		held, err := l.TryLock(t.Context(), "x", redlatch.Options{TTL: 2 * time.Second})
		if err == nil {
			err = held.Unlock()
		}
		return err
	}
	servertest.Eventually(t, 20*time.Second, "servers that have been up for long enough", func() bool { return try() == nil })
	all[0].Restart()
	all[1].Restart()
	if err := try(); !errors.Is(err, redlatch.ErrUnavailable) {
		t.Errorf("two of three were restarted: %v", err)
	}
	servertest.Eventually(t, 20*time.Second, "their votes", func() bool { return try() == nil })
}
