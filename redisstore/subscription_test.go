//go:build unix

package redisstore

import (
	"bytes"
	"context"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/elapsed"
	"github.com/redlatch/redlatch/internal/relay"
	"github.com/redlatch/redlatch/internal/servertest"
	"github.com/redlatch/redlatch/lease"
)

// ears are the connections of one client, of which those that subscribe can be made
// deaf: alive for the server, and silent for the client.
type ears struct {
	mu    sync.Mutex
	conns []*ear
}

type ear struct {
	net.Conn
	of         *ears
	subscribes atomic.Bool
	silenced   atomic.Bool
	deadline   atomic.Pointer[time.Time]
}

func (e *ears) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	conn := &ear{Conn: c, of: e}
	e.mu.Lock()
	e.conns = append(e.conns, conn)
	e.mu.Unlock()
	return conn, nil
}

// silence makes the subscriptions of now deaf; later ones hear.
func (e *ears) silence() {
	e.mu.Lock()
	defer e.mu.Unlock()

	for _, c := range e.conns {
		if c.subscribes.Load() {
			c.silenced.Store(true)
		}
	}
}

func (c *ear) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("\r\nsubscribe\r\n")) {
		c.subscribes.Store(true)
	}
	if c.silenced.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (c *ear) SetReadDeadline(t time.Time) error {
	c.deadline.Store(&t)
	return c.Conn.SetReadDeadline(t)
}

func (c *ear) SetDeadline(t time.Time) error {
	c.deadline.Store(&t)
	return c.Conn.SetDeadline(t)
}

func (c *ear) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		if !c.silenced.Load() || err != nil {
			return n, err
		}
		if d := c.deadline.Load(); d != nil && !d.IsZero() && time.Now().After(*d) {
			return 0, os.ErrDeadlineExceeded
		}
	}
}

func TestASubscriptionThatDiesSilentlyCostsNoPlace(t *testing.T) {
	server := serve(t)
	var e ears
	a := newStore(t, server.Addr(), Options{})
	b := storeWith(t, &redis.Options{Addr: server.Addr(), Dialer: e.dial}, Options{})
	holder, c := claim(30*time.Second), claim(30*time.Second)
	join(t, a, "n", holder, lease.Held)
	st := join(t, b, "n", c, lease.Waiting)
	e.silence()
	leave(t, a, "n", holder.ID)
	// Dead after 2 s, a new one, a look: all within the grant's 5 s.
	if got := within(t, 4*time.Second, b, "n", c, st); got.Ticket != st.Ticket || got.Lease != c.TTL {
		t.Errorf("got %+v, was %+v", got, st)
	}
}

func TestALostMessageCostsABoundedDelay(t *testing.T) {
	server := serve(t)
	r := relay.Start(t, server.Addr())
	a, b := newStore(t, server.Addr(), Options{}), newStore(t, r.Addr(), Options{})
	holder, c := claim(2*time.Second), claim(30*time.Second)
	join(t, a, "n", holder, lease.Held)
	st := join(t, b, "n", c, lease.Waiting)
	r.DropMessages(true)
	leave(t, a, "n", holder.ID)
	// It looks when the holder's lease would have run out, and finds that it has the lock.
	if got := within(t, 3*time.Second, b, "n", c, st); got.Ticket != st.Ticket {
		t.Errorf("got %+v, was %+v", got, st)
	}
}

func TestAHolderThatDiesIsNoticedWhenItsLeaseRunsOut(t *testing.T) {
	server := serve(t)
	a, b, c := newStore(t, server.Addr(), Options{}), newStore(t, server.Addr(), Options{}), newStore(t, server.Addr(), Options{})
	join(t, a, "n", claim(700*time.Millisecond), lease.Held)
	first, second := claim(700*time.Millisecond), claim(30*time.Second)
	st1 := join(t, b, "n", first, lease.Waiting)
	st2 := join(t, c, "n", second, lease.Waiting)
	mustDo(t, server, "CONFIG", "RESETSTAT")
	within(t, time.Second, b, "n", first, st1)
	within(t, 2*time.Second, c, "n", second, st2) // the first one dies too
	if calls := server.CommandStats()["evalsha"]; calls > 8 {
		t.Errorf("%d commands to wait for two leases to run out", calls)
	}
}

func TestWaitersAfterARestartAllFinish(t *testing.T) {
	server := serve(t)
	a := newStore(t, server.Addr(), Options{})
	join(t, a, "n", claim(30*time.Second), lease.Held)
	var work sync.WaitGroup
	for range 10 {
		s := newStore(t, server.Addr(), Options{})
		c := claim(30 * time.Second)
		st := join(t, s, "n", c, lease.Waiting)
		work.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			for st.State != lease.Held {
				next, err := s.Wait(ctx, "n", c.ID, st.Rev)
				if ctx.Err() != nil {
					t.Error("a waiter hangs")
					return
				}
				if err == nil {
					st = next
				}
			}
			if _, err := s.Leave(ctx, "n", c.ID, 0, lease.Seal{}); err != nil {
				t.Error(err)
			}
		})
	}
	server.Restart() // nothing was saved
	work.Wait()
}

// All keys of the queue are lost, or only that of the places, while ten wait in two
// processes. The first one to look finds the lock free: it gets it with a new ticket, and
// nobody is behind it.
func TestAQueueThatWasLostCostsPlacesAndNoTime(t *testing.T) {
	for what, lose := range map[string]func(s *Store) []string{
		"everything":  func(*Store) []string { return []string{"FLUSHALL"} },
		"the queue":   func(s *Store) []string { return append([]string{"DEL"}, s.keys.keys("n", "")[queueKey:sealedKey]...) },
		"the places":  func(s *Store) []string { return []string{"DEL", s.keys.keys("n", "")[queueKey]} },
		"the entries": func(s *Store) []string { return []string{"DEL", s.keys.keys("n", "")[aboutKey]} },
	} {
		t.Run(what, func(t *testing.T) {
			server := serve(t)
			h, a, b := newStore(t, server.Addr(), Options{}), newStore(t, server.Addr(), Options{}), newStore(t, server.Addr(), Options{})
			holder := claim(time.Second)
			join(t, h, "n", holder, lease.Held)
			var work sync.WaitGroup
			for i := range 10 {
				s, c := []*Store{a, b}[i%2], claim(30*time.Second)
				st := join(t, s, "n", c, lease.Waiting)
				work.Go(func() {
					await(t, s, "n", c, st, lease.Held)
					leave(t, s, "n", c.ID)
				})
			}
			began := time.Now()
			mustDo(t, server, lose(a)...)
			leave(t, h, "n", holder.ID)
			work.Wait()
			if took := time.Since(began); took > 3*time.Second {
				t.Errorf("the last one was done after %v", took)
			}
		})
	}
}

// Where something is left of the queue, the release tells its waiters.
func TestAReleaseTellsThoseWhosePlacesWereLost(t *testing.T) {
	server := serve(t)
	h, a := newStore(t, server.Addr(), Options{}), newStore(t, server.Addr(), Options{})
	holder, c := claim(time.Minute), claim(time.Minute)
	join(t, h, "n", holder, lease.Held)
	st := join(t, a, "n", c, lease.Waiting)
	mustDo(t, server, "DEL", a.keys.keys("n", "")[queueKey])
	leave(t, h, "n", holder.ID)
	within(t, time.Second, a, "n", c, st)
}

func TestAProcessThatNeverWaitsHasNoSubscription(t *testing.T) {
	server := serve(t)
	a, b := newStore(t, server.Addr(), Options{}), newStore(t, server.Addr(), Options{})
	c := claim(30 * time.Second)
	join(t, a, "n", c, lease.Held)
	refused := claim(time.Second)
	refused.NoWait = true
	join(t, b, "n", refused, lease.Busy)
	leave(t, a, "n", c.ID)
	if channels := mustDo(t, server, "PUBSUB", "CHANNELS").([]any); len(channels) != 0 {
		t.Errorf("subscribed: %v", channels)
	}
}

func TestPollersKeepTheirOrderAndTheirDeadFallOut(t *testing.T) {
	server := serve(t)
	o := Options{Poll: true}
	a, dead, b := newStore(t, server.Addr(), o), newStore(t, server.Addr(), o), newStore(t, server.Addr(), o)
	holder, c, d := claim(30*time.Second), claim(30*time.Second), claim(30*time.Second)
	join(t, a, "n", holder, lease.Held)
	join(t, dead, "n", claim(30*time.Second), lease.Waiting) // never looks again
	st := join(t, b, "n", c, lease.Waiting)
	std := join(t, b, "n", d, lease.Waiting)
	leave(t, a, "n", holder.ID)
	within(t, 4*time.Second, b, "n", c, st)
	leave(t, b, "n", c.ID)
	within(t, time.Second, b, "n", d, std)
	if channels := mustDo(t, server, "PUBSUB", "CHANNELS").([]any); len(channels) != 0 {
		t.Errorf("subscribed: %v", channels)
	}
	if a.Features().Push {
		t.Error("a Store that polls says that it pushes")
	}
}

func TestASubscriptionEndsWhenNobodyHasWaitedForAWhile(t *testing.T) {
	server := serve(t)
	a, b := newStore(t, server.Addr(), Options{}), newStore(t, server.Addr(), Options{})
	b.inbox.idle = 100 * time.Millisecond
	for range 2 {
		holder, c := claim(30*time.Second), claim(30*time.Second)
		join(t, a, "n", holder, lease.Held)
		st := join(t, b, "n", c, lease.Waiting)
		leave(t, a, "n", holder.ID)
		within(t, time.Second, b, "n", c, st)
		leave(t, b, "n", c.ID)
		servertest.Eventually(t, 4*time.Second, "no subscription", func() bool { return b.inbox.subscription().id == 0 })
		if channels := mustDo(t, server, "PUBSUB", "CHANNELS").([]any); len(channels) != 0 {
			t.Errorf("subscribed: %v", channels)
		}
	}
}

// The subscription's connection is to a server that the commands do not go to any more,
// as after a fail-over that it did not notice.
func TestASubscriptionOnAnotherServerIsMadeAnew(t *testing.T) {
	server := serve(t)
	a, b := newStore(t, server.Addr(), Options{}), newStore(t, server.Addr(), Options{})
	b.inbox.open(t.Context())
	before := b.inbox.subscription()
	b.inbox.mu.Lock()
	b.inbox.now.marker += "elsewhere" // the server that answers does not know it
	b.inbox.mu.Unlock()
	holder, c := claim(30*time.Second), claim(30*time.Second)
	join(t, a, "n", holder, lease.Held)
	st := join(t, b, "n", c, lease.Waiting)
	servertest.Eventually(t, 3*time.Second, "another subscription", func() bool { return b.inbox.subscription().id > before.id })
	leave(t, a, "n", holder.ID)
	within(t, time.Second, b, "n", c, st)
}

// A process that did not run for a while cannot know what became of its places, though
// its subscription looks well: the pings that it missed are answered at once.
func TestAProcessThatSleptLooksAfterItsPlaces(t *testing.T) {
	server := serve(t)
	a, b := newStore(t, server.Addr(), Options{}), newStore(t, server.Addr(), Options{})
	c := claim(30 * time.Second)
	join(t, a, "n", claim(30*time.Second), lease.Held)
	st := join(t, b, "n", c, lease.Waiting)
	mustDo(t, server, "DEL", b.keys.keys("n", "")[1], b.keys.keys("n", "")[2])
	elapsed.Sleep(10 * time.Second)
	mustDo(t, server, "PUBLISH", b.inbox.channel, "whatever")
	ctx, cancel := context.WithTimeout(t.Context(), 700*time.Millisecond)
	defer cancel()
	if again, err := b.Wait(ctx, "n", c.ID, st.Rev); err != nil || again.Ticket <= st.Ticket {
		t.Errorf("%+v, was %+v, %v", again, st, err)
	}
}

func TestAConnectionThatTheClientReplacedIsANewSubscription(t *testing.T) {
	server := serve(t)
	b := newStore(t, server.Addr(), Options{})
	before := b.inbox.open(t.Context())
	b.inbox.mu.Lock()
	err := b.inbox.pubsub.Subscribe(t.Context(), "lock:more") // acknowledged like a subscription made again
	b.inbox.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	servertest.Eventually(t, 3*time.Second, "another subscription", func() bool { return b.inbox.subscription().id > before.id })
}
