//go:build unix

package redisstore

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/internal/lines"
	"github.com/redlatch/redlatch/internal/servertest"
	"github.com/redlatch/redlatch/lease"
)

// serve starts a server. In the end every key on it must have an expiry.
func serve(t *testing.T, args ...string) *servertest.RedisServer {
	t.Helper()
	server := servertest.Redis(t, servertest.RedisConfig{Args: args})
	t.Cleanup(func() { allExpire(t, server) })
	return server
}

func allExpire(t *testing.T, server *servertest.RedisServer) {
	t.Helper()
	reply, err := server.Do("EVAL", `local bad = {}
		for _, k in ipairs(redis.call('KEYS', '*')) do if redis.call('PTTL', k) == -1 then bad[#bad + 1] = k end end
		return bad`, "0")
	if err != nil {
		return // the test has stopped it
	}
	for _, key := range reply.([]any) {
		if key != "lock:endless" { // tests of foreign holders
			t.Errorf("the key %q has no expiry", key)
		}
	}
}

func newStore(t *testing.T, addr string, o Options) *Store {
	t.Helper()
	return storeWith(t, &redis.Options{Addr: addr}, o)
}

func storeWith(t *testing.T, options *redis.Options, o Options) *Store {
	t.Helper()
	s, err := New(clientOf(t, options), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func clientOf(t *testing.T, options *redis.Options) *redis.Client {
	client := redis.NewClient(options)
	t.Cleanup(func() { client.Close() })
	return client
}

func mustDo(t *testing.T, server *servertest.RedisServer, args ...string) any {
	t.Helper()
	reply, err := server.Do(args...)
	if err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	return reply
}

func claim(ttl time.Duration) lease.Claim {
	return lease.Claim{ID: lease.NewID(), TTL: ttl, Owner: lease.Owner{Name: "test@host", PID: 7}}
}

func join(t *testing.T, s *Store, name string, c lease.Claim, want lease.State) lease.Standing {
	t.Helper()
	st, err := s.Join(t.Context(), name, c)
	if err != nil {
		t.Fatalf("join: %v", err)
	}
	if st.State != want {
		t.Fatalf("join: %v, want %v (%+v)", st.State, want, st)
	}
	return st
}

func leave(t *testing.T, s *Store, name, id string) lease.Standing {
	t.Helper()
	st, err := s.Leave(t.Context(), name, id, 0, lease.Seal{})
	if err != nil {
		t.Fatalf("leave: %v", err)
	}
	return st
}

// await waits until the claim is in that state and returns how it got there.
func await(t *testing.T, s *Store, name string, c lease.Claim, st lease.Standing, want lease.State) lease.Standing {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for st.State != want {
		var err error
		if st, err = s.Wait(ctx, name, c.ID, st.Rev); err != nil {
			t.Fatalf("wait for %v: %v", want, err)
		}
	}
	return st
}

func TestAReleaseHandsTheLockOver(t *testing.T) {
	server := serve(t)
	a, b := newStore(t, server.Addr(), Options{}), newStore(t, server.Addr(), Options{})
	first, second := claim(30*time.Second), claim(20*time.Second)
	held := join(t, a, "n", first, lease.Held)
	if held.Lease != first.TTL {
		t.Errorf("a lease of %v", held.Lease)
	}
	st := join(t, b, "n", second, lease.Waiting)
	if st.Holder == nil || st.Holder.ID != first.ID || st.Ahead != 1 || st.Ticket <= held.Ticket {
		t.Errorf("waiting: %+v, holder %+v", st, st.Holder)
	}
	began := time.Now()
	if got := leave(t, a, "n", first.ID); got.State != lease.Held {
		t.Errorf("left: %+v", got)
	}
	got := await(t, b, "n", second, st, lease.Held)
	if got.Ticket != st.Ticket || got.Lease != lines.Grant || got.Asked != st.Asked {
		t.Errorf("handed over: %+v, was %+v", got, st)
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("the hand-over took %v", took)
	}
	token := lease.Token{ID: second.ID, Ticket: got.Ticket, Owner: second.Owner}
	if v, err := server.Do("GET", "lock:n"); v != token.String() {
		t.Errorf("the key has %q, %v, want %q", v, err, token)
	}
	out := b.Renew(t.Context(), []driver.Ref{{Name: "n", Token: token, TTL: second.TTL}})
	if out[0].Err != nil || out[0].State != lease.Held || out[0].Lease != second.TTL {
		t.Errorf("renewed: %+v", out[0])
	}
	q, err := b.Inspect(t.Context(), "n")
	if err != nil || len(q.Holders()) != 1 || q.Holders()[0].ID != second.ID {
		t.Errorf("inspect: %+v, %v", q, err)
	}
	leave(t, b, "n", second.ID)
	if v, _ := server.Do("GET", "lock:n"); v != nil {
		t.Errorf("the key has %q", v)
	}
}
