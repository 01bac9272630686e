package main

import (
	"flag"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/servertest"
)

// go test ./cmd/redlatch -run TestMargin -rounds 100 -v measures.
var rounds = flag.Int("rounds", 2, "how often TestMargin does each of its harms")

// TestMargin measures what is left of the lease when the last of a command and its
// descendants is gone, for each way in which nobody renews it any more. Nothing may be
// less than nothing.
func TestMargin(t *testing.T) {
	t.Parallel()
	const ttl, grace = 15 * time.Second, "0.3"
	seed := rand.Uint64()
	harms := []struct {
		what string
		do   func(p *proc, server *servertest.RedisServer)
	}{
		{"redlatch is killed", func(p *proc, _ *servertest.RedisServer) { p.signal(syscall.SIGKILL) }},
		{"redlatch is stopped", func(p *proc, _ *servertest.RedisServer) { p.signal(syscall.SIGSTOP) }},
		{"redlatch is stopped, then killed", func(p *proc, _ *servertest.RedisServer) { p.signal(syscall.SIGSTOP); p.signal(syscall.SIGKILL) }},
		{"Redis is stopped", func(_ *proc, server *servertest.RedisServer) { server.Stop() }},
		{"Redis is killed", func(_ *proc, server *servertest.RedisServer) { server.Kill() }},
	}
	var mu sync.Mutex
	margins := make([][]time.Duration, len(harms))
	next := make(chan int)
	var work sync.WaitGroup
	for range min(2*len(harms), *rounds*len(harms)) {
		work.Go(func() {
			for n := range next {
				m := margin(t, ttl, grace, rand.New(rand.NewPCG(seed, uint64(n))), harms[n%len(harms)].do)
				mu.Lock()
				margins[n%len(harms)] = append(margins[n%len(harms)], m)
				mu.Unlock()
			}
		})
	}
	for n := range *rounds * len(harms) {
		next <- n
	}
	close(next)
	work.Wait()
	for i, m := range margins {
		slices.Sort(m)
		t.Logf("%s: %d rounds, lease %v, grace %s s: least %v, median %v, most %v", harms[i].what, len(m), ttl, grace,
			m[0].Round(time.Millisecond), m[len(m)/2].Round(time.Millisecond), m[len(m)-1].Round(time.Millisecond))
		if m[0] <= 0 {
			t.Errorf("%s: some were alive for %v when others could have had the lock (seed %d)", harms[i].what, -m[0], seed)
		}
	}
}

// margin is one round.
func margin(t *testing.T, ttl time.Duration, grace string, random *rand.Rand, harm func(*proc, *servertest.RedisServer)) time.Duration {
	server := servertest.Redis(t, servertest.RedisConfig{})
	defer server.Close()
	for {
		p, clan := startClan(t, server.URL(), "--ttl", ttl.String(), "--grace", grace)
		// At any time between two renewals; what follows is not waited for by this.
		<-time.After(time.Duration(random.Int64N(int64(ttl / 4))))
		asked := time.Now()
		left, err := leaseLeft(server)
		if err != nil {
			t.Error(err)
			return 0
		}
		harm(p, server)
		passesOn := asked.Add(left)
		// When a third of the lease is over it is renewed. If that could have been before
		// the harm, on a machine under load, it is not known when the lease ends.
		known := left-time.Since(asked) > ttl*7/10
		for len(clan.alive()) > 0 {
			if time.Since(passesOn) > patience {
				t.Errorf("%v do not end", clan.alive())
				return -patience
			}
			time.Sleep(5 * time.Millisecond)
		}
		gone := time.Now()
		_ = p.cmd.Process.Signal(syscall.SIGCONT) // of a dead one: nothing
		if known {
			return passesOn.Sub(gone)
		}
		t.Log("a round that tells nothing is done again")
		p.code()
		server.Kill()
		server.Restart()
	}
}
