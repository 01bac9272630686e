//go:build unix

package redisstore

import (
	"context"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/internal/relay"
	"github.com/redlatch/redlatch/internal/servertest"
	"github.com/redlatch/redlatch/lease"
)

// drain takes every connection that the client will ever have, until the test ends.
func drain(t *testing.T, client *redis.Client) {
	t.Helper()
	n := client.Options().PoolSize + max(client.Options().PipelinePoolSize, 0)
	for range n {
		go client.BLPop(t.Context(), 0, "nothing")
		go client.Pipelined(t.Context(), func(p redis.Pipeliner) error { p.BLPop(t.Context(), 0, "nothing"); return nil }) //nolint:errcheck // it never ends well
	}
	servertest.Eventually(t, 10*time.Second, "the pools to be drained", func() bool {
		stats := client.PoolStats()
		pipes := stats.PipelineStats
		return drained(client) && (pipes == nil || pipes.IdleConns == 0 && int(pipes.TotalConns) >= client.Options().PipelinePoolSize)
	})
}

func pool(server *servertest.RedisServer) *redis.Options {
	return &redis.Options{Addr: server.Addr(), PoolSize: 2, PipelinePoolSize: 2}
}

func TestAProgramThatDrainsItsPoolLosesNoLock(t *testing.T) {
	server := serve(t)
	s := storeWith(t, pool(server), Options{})
	c := claim(2 * time.Second)
	st := join(t, s, "n", c, lease.Held)
	drain(t, s.client.(*redis.Client))
	ref := driver.Ref{Name: "n", Token: lease.Token{ID: c.ID, Ticket: st.Ticket, Owner: c.Owner}, TTL: c.TTL}
	ctx, cancel := context.WithTimeout(t.Context(), lease.AttemptTimeout(30*time.Second))
	defer cancel()
	for range 3 {
		if out := s.Renew(ctx, []driver.Ref{ref}); out[0].Err != nil || out[0].State != lease.Held {
			t.Errorf("renew: %+v", out[0])
		}
	}
	if st, err := s.Leave(ctx, "n", c.ID, 0, lease.Seal{}); err != nil || st.State != lease.Held {
		t.Errorf("leave: %+v, %v", st, err)
	}
}

// A connection takes more round trips than a renewal has time for.
func TestARenewalOnASlowNetworkFindsItsConnectionMade(t *testing.T) {
	server := serve(t)
	r := relay.Start(t, server.Addr())
	o := pool(server)
	o.Addr = r.Addr()
	s := storeWith(t, o, Options{})
	c := claim(30 * time.Second)
	st := join(t, s, "n", c, lease.Held)
	drain(t, s.client.(*redis.Client))
	r.Delay(relay.Replies, 300*time.Millisecond)
	ref := driver.Ref{Name: "n", Token: lease.Token{ID: c.ID, Ticket: st.Ticket, Owner: c.Owner}, TTL: c.TTL}
	servertest.Eventually(t, 10*time.Second, "a renewal", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 450*time.Millisecond)
		defer cancel()
		return s.Renew(ctx, []driver.Ref{ref})[0].Err == nil
	})
}

// Where connections of the Store's own cannot be had, renewals go over the program's.
func TestARenewalTakesTheWayThatIsOpen(t *testing.T) {
	server := serve(t)
	renew := func(s *Store, name string, c lease.Claim, st lease.Standing) {
		t.Helper()
		ref := driver.Ref{Name: name, Token: lease.Token{ID: c.ID, Ticket: st.Ticket, Owner: c.Owner}, TTL: c.TTL}
		var out driver.Outcome
		for range 2 {
			if out = s.Renew(t.Context(), []driver.Ref{ref})[0]; out.Err == nil {
				return
			}
		}
		t.Errorf("two renewals of %q failed: %v", name, out.Err)
	}
	s := newStore(t, server.Addr(), Options{})
	c := claim(30 * time.Second)
	st := join(t, s, "full", c, lease.Held)
	operator, err := servertest.Dial(server.Socket())
	if err != nil {
		t.Fatal(err)
	}
	defer operator.Close()
	if _, err := operator.Do("CONFIG", "SET", "maxclients", "2"); err != nil { // the program's, and this one
		t.Fatal(err)
	}
	renew(s, "full", c, st)
	if _, err := operator.Do("CONFIG", "SET", "maxclients", "1000"); err != nil {
		t.Fatal(err)
	}

	hooked := storeWith(t, &redis.Options{Addr: "127.0.0.1:1"}, Options{})
	hooked.client.AddHook(detour(server.Addr()))
	c = claim(30 * time.Second)
	st = join(t, hooked, "hooked", c, lease.Held)
	renew(hooked, "hooked", c, st)
}

// detour dials somewhere else than the client's options say.
type detour string

func (d detour) DialHook(redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, string(d))
	}
}
func (detour) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (detour) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func TestBehindSentinelRenewalsGoOverTheProgramsClient(t *testing.T) {
	client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"127.0.0.1:1"}})
	s, err := New(client, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	defer s.Close()
	if s.lifeline.renewals() != redis.UniversalClient(client) {
		t.Error("renewals would stay with a master that is none any more")
	}
}

func TestTheLifelineEndsWithTheStore(t *testing.T) {
	server := serve(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), ClientName: "lifeline"})
	defer client.Close()
	s, err := New(client, Options{})
	if err != nil {
		t.Fatal(err)
	}
	c := claim(30 * time.Second)
	st := join(t, s, "n", c, lease.Held)
	ref := driver.Ref{Name: "n", Token: lease.Token{ID: c.ID, Ticket: st.Ticket, Owner: c.Owner}, TTL: c.TTL}
	if out := s.Renew(t.Context(), []driver.Ref{ref}); out[0].Err != nil {
		t.Fatal(out[0].Err)
	}
	leave(t, s, "n", c.ID)
	connections := func() string { return server.Info("clients")["connected_clients"] }
	if n := connections(); n != "3" { // the program's, the lifeline, and the one that asks
		t.Errorf("%s connections", n)
	}
	s.Close()
	servertest.Eventually(t, 5*time.Second, "the lifeline to end", func() bool { return connections() == "2" })
	if out := s.Renew(t.Context(), []driver.Ref{ref}); out[0].Err != nil || out[0].State != lease.Gone {
		t.Errorf("renew after Close: %+v", out[0])
	}
}

// Many batches at one time go over the same two connections, one after the other.
func TestRenewalsDoNotDialEachTime(t *testing.T) {
	server := serve(t)
	s := newStore(t, server.Addr(), Options{})
	c := claim(30 * time.Second)
	st := join(t, s, "n", c, lease.Held)
	ref := driver.Ref{Name: "n", Token: lease.Token{ID: c.ID, Ticket: st.Ticket, Owner: c.Owner}, TTL: c.TTL}
	var work sync.WaitGroup
	for range 8 {
		work.Go(func() {
			for range 50 {
				if out := s.Renew(t.Context(), []driver.Ref{ref}); out[0].Err != nil {
					t.Error(out[0].Err)
				}
			}
		})
	}
	work.Wait()
	if n, err := strconv.Atoi(server.Info("stats")["total_connections_received"]); err != nil || n > 10 {
		t.Errorf("%d connections, %v", n, err)
	}
}
