//go:build unix

package cases

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/filestore"
	"github.com/redlatch/redlatch/internal/servertest"
	"github.com/redlatch/redlatch/memstore"
	"github.com/redlatch/redlatch/redisstore"
	"github.com/redlatch/redlatch/verify/client"
)

// stateSoon is how long anything may take that has to happen. It is no measure of speed.
const stateSoon = 30 * time.Second

func init() { client.Silence() }

// stateServer starts a Redis server.
func stateServer(t *testing.T, args ...string) *servertest.RedisServer {
	t.Helper()
	return servertest.Redis(t, servertest.RedisConfig{Args: args})
}

func stateDo(t *testing.T, server *servertest.RedisServer, args ...string) any {
	t.Helper()
	reply, err := server.Do(args...)
	if err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	return reply
}

// stateOperator is a connection that is there before the server takes no more.
func stateOperator(t *testing.T, server *servertest.RedisServer) func(args ...string) {
	t.Helper()
	conn, err := servertest.Dial(server.Socket())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return func(args ...string) {
		t.Helper()
		if _, err := conn.Do(args...); err != nil {
			t.Fatalf("%q: %v", args, err)
		}
	}
}

// stateStore is one process's store on a server, with a client made from options.
func stateStore(t *testing.T, o *redis.Options, so redisstore.Options) *redisstore.Store {
	t.Helper()
	c := redis.NewClient(o)
	s, err := redisstore.New(c, so)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.Close()
		_ = c.Close()
	})
	return s
}

// stateLocker is a Locker on the store. In the end it is closed, within a second: what it
// cannot release is the case's business.
func stateLocker(t *testing.T, s driver.Store, cfg redlatch.Config) *redlatch.Locker {
	t.Helper()
	l, err := redlatch.New(s, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = l.Close(ctx)
	})
	return l
}

// stateProcess is a process as most programs have it: defaults everywhere.
func stateProcess(t *testing.T, server *servertest.RedisServer) *redlatch.Locker {
	t.Helper()
	return stateLocker(t, stateStore(t, &redis.Options{Addr: server.Addr()}, redisstore.Options{}), redlatch.Config{})
}

// stateStores are the stores; each returns how one more process that shares it is made.
var stateStores = map[string]func(t *testing.T) (process func() *redlatch.Locker){
	"memstore": func(t *testing.T) func() *redlatch.Locker {
		s := memstore.New()
		return func() *redlatch.Locker { return stateLocker(t, s, redlatch.Config{}) }
	},
	"filestore": func(t *testing.T) func() *redlatch.Locker {
		dir := t.TempDir()
		return func() *redlatch.Locker {
			s, err := filestore.New(dir, filestore.Options{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })
			return stateLocker(t, s, redlatch.Config{})
		}
	},
	"redisstore": func(t *testing.T) func() *redlatch.Locker {
		server := stateServer(t)
		return func() *redlatch.Locker { return stateProcess(t, server) }
	},
}

// stateEverywhere plays a case on each store.
func stateEverywhere(t *testing.T, play func(t *testing.T, process func() *redlatch.Locker)) {
	t.Helper()
	for name, open := range stateStores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			play(t, open(t))
		})
	}
}

func stateTake(t *testing.T, l *redlatch.Locker, name string, o redlatch.Options) *redlatch.Held {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), stateSoon)
	defer cancel()
	held, err := l.Lock(ctx, name, o)
	if err != nil {
		t.Fatal(err)
	}
	return held
}

func stateUnlock(t *testing.T, held *redlatch.Held) {
	t.Helper()
	if err := held.Unlock(); err != nil {
		t.Error(err)
	}
}

// stateIs reports an error that is not the one kind that was meant, and no other.
func stateIs(t *testing.T, err, kind error, says string) {
	t.Helper()
	for _, k := range []error{
		redlatch.ErrHeld, redlatch.ErrSealed, redlatch.ErrLost, redlatch.ErrUnavailable, redlatch.ErrDenied,
		redlatch.ErrNotHeld, redlatch.ErrUnsupported, redlatch.ErrInvalid, redlatch.ErrConflict,
	} {
		if errors.Is(err, k) != errors.Is(kind, k) {
			t.Errorf("%q is %v, want %q: %v", k, errors.Is(err, k), kind, err)
		}
	}
	if err != nil && !strings.Contains(err.Error(), says) {
		t.Errorf("the error does not say %q: %v", says, err)
	}
}

// stateLost waits for the hold to end by itself and returns why.
func stateLost(t *testing.T, held *redlatch.Held) *redlatch.LostError {
	t.Helper()
	select {
	case <-held.Context().Done():
	case <-time.After(stateSoon):
		t.Fatal("the hold goes on")
	}
	var lost *redlatch.LostError
	if !errors.As(context.Cause(held.Context()), &lost) {
		t.Fatalf("the hold ended with %v", context.Cause(held.Context()))
	}
	return lost
}

// stateQueued waits until that many claims are in the name's queue, held ones included.
func stateQueued(t *testing.T, l *redlatch.Locker, name string, n int) {
	t.Helper()
	servertest.Eventually(t, stateSoon, "the queue", func() bool {
		q, err := l.Inspect(t.Context(), name)
		return err == nil && len(q.Claims) == n
	})
}

// stateAsk locks in the background.
func stateAsk(ctx context.Context, l *redlatch.Locker, name string, o redlatch.Options) <-chan stateAnswer {
	answer := make(chan stateAnswer, 1)
	go func() {
		held, err := l.Lock(ctx, name, o)
		answer <- stateAnswer{held, err}
	}()
	return answer
}

type stateAnswer struct {
	held *redlatch.Held
	err  error
}

func stateWait(t *testing.T, answer <-chan stateAnswer) *redlatch.Held {
	t.Helper()
	select {
	case a := <-answer:
		if a.err != nil {
			t.Fatal(a.err)
		}
		return a.held
	case <-time.After(stateSoon):
		t.Fatal("the lock does not come")
	}
	return nil
}

// stateLeaveBroken unlocks a hold that an operator has broken. Until it hears of that, by
// a message or its next renewal, it may find itself gone while nobody else can have the
// name, and that is a release.
func stateLeaveBroken(t *testing.T, held *redlatch.Held) {
	t.Helper()
	if err := held.Unlock(); err != nil && !errors.Is(err, redlatch.ErrLost) {
		t.Error(err)
	}
}
