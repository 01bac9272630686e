//go:build unix

package cases

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/servertest"
	"github.com/redlatch/redlatch/lease"
	"github.com/redlatch/redlatch/redisstore"
)

// stateTrouble is a server that answers, and says no: how it gets there and back.
type stateTrouble struct {
	code   string
	args   []string
	enter  func(t *testing.T, server *servertest.RedisServer)
	leave  func(t *testing.T, server *servertest.RedisServer)
	writes bool // renewals and releases go through all the same
}

func stateSetting(name, on, off string) (enter, leave func(t *testing.T, server *servertest.RedisServer)) {
	set := func(value string) func(*testing.T, *servertest.RedisServer) {
		return func(t *testing.T, server *servertest.RedisServer) { stateDo(t, server, "CONFIG", "SET", name, value) }
	}
	return set(on), set(off)
}

func stateTroubles() map[string]stateTrouble {
	replica := func(t *testing.T, server *servertest.RedisServer) { stateDo(t, server, "REPLICAOF", "127.0.0.1", "1") }
	master := func(t *testing.T, server *servertest.RedisServer) { stateDo(t, server, "REPLICAOF", "NO", "ONE") }
	fewOn, fewOff := stateSetting("min-replicas-to-write", "1", "0")
	fullOn, fullOff := stateSetting("maxmemory", "1kb", "0")
	staleOff, staleOn := stateSetting("replica-serve-stale-data", "no", "yes")
	return map[string]stateTrouble{
		"READONLY":   {code: "READONLY", enter: replica, leave: master},
		"NOREPLICAS": {code: "NOREPLICAS", enter: fewOn, leave: fewOff},
		"OOM":        {code: "OOM", enter: fullOn, leave: fullOff, writes: true},
		"MASTERDOWN": {
			code:  "MASTERDOWN",
			enter: func(t *testing.T, server *servertest.RedisServer) { staleOff(t, server); replica(t, server) },
			leave: func(t *testing.T, server *servertest.RedisServer) { master(t, server); staleOn(t, server) },
		},
		"MISCONF": {
			code: "MISCONF", args: []string{"--save", "3600 1"},
			enter: func(t *testing.T, server *servertest.RedisServer) {
				dump := filepath.Join(server.Dir(), "dump.rdb") // a directory that is not empty: no file can be renamed to it
				if err := errors.Join(os.Mkdir(dump, 0o700), os.WriteFile(filepath.Join(dump, "x"), nil, 0o600)); err != nil {
					t.Fatal(err)
				}
				stateDo(t, server, "BGSAVE")
				servertest.Eventually(t, stateSoon, "the save to fail", func() bool {
					return server.Info("persistence")["rdb_last_bgsave_status"] == "err"
				})
			},
			leave: func(t *testing.T, server *servertest.RedisServer) { stateDo(t, server, "CONFIG", "SET", "save", "") },
		},
		"BUSY": {
			code: "BUSY", args: []string{"--busy-reply-threshold", "50"},
			enter: func(t *testing.T, server *servertest.RedisServer) {
				go func() { _, _ = server.Do("EVAL", "while true do end", "0") }()
				servertest.Eventually(t, stateSoon, "the server to be busy", func() bool {
					_, err := server.Do("GET", "x")
					return err != nil && strings.HasPrefix(err.Error(), "BUSY")
				})
			},
			leave: func(t *testing.T, server *servertest.RedisServer) { stateDo(t, server, "SCRIPT", "KILL") },
		},
	}
}

// In each of these states: a new lock is refused as unavailable, with the server's own
// word, and never as held; a hold lives on and is renewed when the state is over; one
// whose trust ends before is lost, and says by what; a release says that the name stays
// locked; and nothing is left of what was refused.
func TestSRV01ServerStatesAreUnavailabilityAndNothingIsLost(t *testing.T) {
	t.Parallel()
	for name, trouble := range stateTroubles() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := stateServer(t, trouble.args...)
			renewed := make(chan struct{}, 100)
			s := stateStore(t, &redis.Options{Addr: server.Addr(), MaxRetries: -1}, redisstore.Options{})
			l := stateLocker(t, s, redlatch.Config{Observer: redlatch.Observer{Renewed: func(e redlatch.Event) {
				if e.Name == "long" {
					renewed <- struct{}{}
				}
			}}})
			other := stateLocker(t, stateStore(t, &redis.Options{Addr: server.Addr(), MaxRetries: -1}, redisstore.Options{}), redlatch.Config{})
			short := stateTake(t, l, "short", redlatch.Options{TTL: time.Second})
			long := stateTake(t, l, "long", redlatch.Options{TTL: 20 * time.Second})
			given := stateTake(t, l, "given", redlatch.Options{TTL: time.Minute})

			trouble.enter(t, server)
			_, err := other.TryLock(t.Context(), "free", redlatch.Options{})
			stateIs(t, err, redlatch.ErrUnavailable, trouble.code)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			_, err = other.Lock(ctx, "free", redlatch.Options{})
			cancel()
			stateIs(t, err, redlatch.ErrUnavailable, trouble.code)
			if _, err = other.TryLock(t.Context(), "long", redlatch.Options{}); !errors.Is(err, redlatch.ErrHeld) {
				stateIs(t, err, redlatch.ErrUnavailable, trouble.code)
			}
			if trouble.writes {
				for _, held := range []*redlatch.Held{long, short} {
					if err := held.Renew(t.Context(), 0); err != nil {
						t.Error(err)
					}
				}
				stateUnlock(t, given)
				stateUnlock(t, short)
			} else {
				stateIs(t, long.Renew(t.Context(), 0), redlatch.ErrUnavailable, trouble.code)
				lost := stateLost(t, short)
				if lost.Loss.Why != lease.Unreachable || !strings.Contains(lost.Error(), trouble.code) {
					t.Errorf("lost: %v", lost)
				}
				stateIs(t, given.Unlock(), redlatch.ErrUnavailable, trouble.code)
			}
			if !long.Valid() {
				t.Fatalf("lost before its time: %v", context.Cause(long.Context()))
			}
			for len(renewed) > 0 {
				<-renewed
			}
			trouble.leave(t, server)
			select {
			case <-renewed:
			case <-long.Context().Done():
				t.Fatalf("lost though the server came back in time: %v", context.Cause(long.Context()))
			}
			stateUnlock(t, long)
			servertest.Eventually(t, stateSoon, "what was refused or released to be gone", func() bool {
				for _, name := range []string{"free", "given", "short", "long"} {
					q, err := other.Inspect(t.Context(), name)
					if err != nil || len(q.Claims) > 0 {
						return false
					}
				}
				return true
			})
		})
	}
}

func TestSRV01AReleaseThatIsRefusedSaysThatTheNameStaysLocked(t *testing.T) {
	t.Parallel()
	server := stateServer(t)
	l := stateProcess(t, server)
	held := stateTake(t, l, "n", redlatch.Options{TTL: time.Minute})
	stateDo(t, server, "CONFIG", "SET", "min-replicas-to-write", "1")
	stateIs(t, held.Unlock(), redlatch.ErrUnavailable, "it stays locked for up to")
	if v := stateDo(t, server, "GET", "lock:n"); v != held.Token() {
		t.Errorf("the key has %v", v)
	}
	stateDo(t, server, "CONFIG", "SET", "min-replicas-to-write", "0")
	stateUnlock(t, held)
}

// A server that reads its file answers LOADING. Whoever waits goes on waiting; what was
// held is still held afterwards, because it was in the file.
func TestSRV01ALoadingServerIsWaitedFor(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t, servertest.RedisConfig{WhileLoading: true})
	s := stateStore(t, &redis.Options{Addr: server.Addr(), MaxRetries: -1}, redisstore.Options{})
	l := stateLocker(t, s, redlatch.Config{})
	patient := stateLocker(t, stateStore(t, &redis.Options{Addr: server.Addr()}, redisstore.Options{}), redlatch.Config{OnUnavailable: redlatch.Wait})
	held := stateTake(t, l, "n", redlatch.Options{TTL: time.Minute})
	stateDo(t, server, "EVAL", "for i = 1, 20000 do redis.call('SET', 'k' .. i, string.rep('x', 100), 'PX', 600000) end", "0")
	stateDo(t, server, "SAVE")
	server.Restart("--key-load-delay", "100", "--loading-process-events-interval-bytes", "1024")
	if _, err := server.Do("GET", "x"); err == nil || !strings.HasPrefix(err.Error(), "LOADING") {
		t.Fatalf("it is not loading: %v", err)
	}
	_, err := l.TryLock(t.Context(), "free", redlatch.Options{})
	stateIs(t, err, redlatch.ErrUnavailable, "")
	next := stateAsk(t.Context(), patient, "free", redlatch.Options{})
	stateUnlock(t, stateWait(t, next))
	if err := held.Renew(t.Context(), 0); err != nil {
		t.Error(err)
	}
	stateUnlock(t, held)
}

// A key of another kind under a lock's name: taken for what it is by whoever asks, renews
// or releases, and left alone.
func TestSRV01AnotherKindOfKeyIsAConflict(t *testing.T) {
	t.Parallel()
	server := stateServer(t)
	l := stateProcess(t, server)
	held, fine := stateTake(t, l, "n", redlatch.Options{TTL: time.Second}), stateTake(t, l, "fine", redlatch.Options{TTL: time.Second})
	stateDo(t, server, "DEL", "lock:n")
	stateDo(t, server, "RPUSH", "lock:n", "theirs")
	for _, err := range []error{
		func() error { _, err := l.TryLock(t.Context(), "n", redlatch.Options{}); return err }(),
		func() error { _, err := l.Lock(t.Context(), "n", redlatch.Options{}); return err }(),
		func() error { _, err := l.Inspect(t.Context(), "n"); return err }(),
	} {
		stateIs(t, err, redlatch.ErrConflict, "another lock format")
	}
	if lost := stateLost(t, held); !strings.Contains(lost.Error(), "WRONGTYPE") {
		t.Errorf("lost: %v", lost)
	}
	if err := held.Unlock(); err == nil {
		t.Error("a release of what is another's succeeds")
	}
	if n := stateDo(t, server, "LLEN", "lock:n"); n != int64(1) {
		t.Errorf("their list has %v entries", n)
	}
	if !fine.Valid() {
		t.Errorf("another lock was lost with it: %v", context.Cause(fine.Context()))
	}
	stateUnlock(t, fine)
}

func TestSRV02AnEvictedHoldIsToldAtItsNextRenewal(t *testing.T) {
	t.Parallel()
	server := stateServer(t)
	l := stateProcess(t, server)
	held := stateTake(t, l, "n", redlatch.Options{TTL: 3 * time.Second})
	blind := stateTake(t, l, "blind", redlatch.Options{TTL: 20 * time.Second, NoRenew: true})
	stateDo(t, server, "CONFIG", "SET", "maxmemory-policy", "allkeys-random")
	stateDo(t, server, "CONFIG", "SET", "maxmemory", "1mb")
	servertest.Eventually(t, stateSoon, "the locks to be evicted", func() bool {
		_, _ = server.Do("EVAL", "for i = 1, 50 do redis.pcall('SET', 'k' .. math.random(1e9), string.rep('x', 20000)) end", "0")
		n, err := server.Do("EXISTS", "lock:n", "lock:blind")
		return err == nil && n == int64(0)
	})
	lost := stateLost(t, held)
	if lost.Loss.Why != lease.Vanished || !strings.Contains(lost.Error(), "evicted") {
		t.Errorf("lost: %v", lost)
	}
	stateDo(t, server, "CONFIG", "SET", "maxmemory", "0")
	stateIs(t, blind.Renew(t.Context(), 0), redlatch.ErrLost, "evicted")
}

// Nothing that a renewal or a release does needs memory; a lock does.
func TestSRV03FullMemoryRefusesNewLocksOnly(t *testing.T) {
	t.Parallel()
	server := stateServer(t)
	l, other := stateProcess(t, server), stateProcess(t, server)
	held := stateTake(t, l, "n", redlatch.Options{})
	next := stateAsk(t.Context(), other, "n", redlatch.Options{})
	stateQueued(t, l, "n", 2)
	stateDo(t, server, "CONFIG", "SET", "maxmemory", "1kb")
	_, err := l.TryLock(t.Context(), "free", redlatch.Options{})
	stateIs(t, err, redlatch.ErrUnavailable, "OOM")
	if err := held.Renew(t.Context(), 0); err != nil {
		t.Error(err)
	}
	stateUnlock(t, held)
	got := stateWait(t, next)
	if err := got.Renew(t.Context(), 0); err != nil {
		t.Error(err)
	}
	stateUnlock(t, got)
	if v := stateDo(t, server, "GET", "lock:n"); v != nil {
		t.Errorf("released, and the key has %v", v)
	}
}

func TestSRV04AServerThatTakesNoMoreClientsIsUnavailable(t *testing.T) {
	t.Parallel()
	server := stateServer(t)
	operate := stateOperator(t, server)
	l := stateProcess(t, server)
	held := stateTake(t, l, "n", redlatch.Options{TTL: 3 * time.Second})
	operate("CONFIG", "SET", "maxclients", "2") // the operator's and the holder's
	late := stateProcess(t, server)
	_, err := late.TryLock(t.Context(), "free", redlatch.Options{})
	stateIs(t, err, redlatch.ErrUnavailable, "")
	if err := held.Renew(t.Context(), 0); err != nil && held.Renew(t.Context(), 0) != nil {
		t.Errorf("the holder's own connection is there: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	operate("CONFIG", "RESETSTAT")
	for ctx.Err() == nil { // whoever is refused does not come back without a pause
		patient := stateLocker(t, stateStore(t, &redis.Options{Addr: server.Addr()}, redisstore.Options{}), redlatch.Config{OnUnavailable: redlatch.Wait})
		_, err := patient.Lock(ctx, "free", redlatch.Options{})
		stateIs(t, err, redlatch.ErrUnavailable, "")
	}
	operate("CONFIG", "SET", "maxclients", "1000")
	if n, _ := strconv.Atoi(server.Info("stats")["rejected_connections"]); n == 0 || n > 100 {
		t.Errorf("%d connections were refused in a second", n)
	}
	stateUnlock(t, held)
}

// However many wait: one connection for commands at a time, one for the messages, one for
// renewals, and those that the program's own pool has had to open for a burst.
func TestSRV04WaitersCostNoConnections(t *testing.T) {
	t.Parallel()
	server := stateServer(t)
	const processes, waiters, pool = 5, 100, 1
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	holder := stateLocker(t, stateStore(t, &redis.Options{Addr: server.Addr(), PoolSize: pool, ClientName: "holder"}, redisstore.Options{}), redlatch.Config{})
	held := stateTake(t, holder, "n", redlatch.Options{TTL: time.Minute})
	for p := range processes {
		l := stateLocker(t, stateStore(t, &redis.Options{Addr: server.Addr(), PoolSize: pool, ClientName: fmt.Sprint("waiter", p)}, redisstore.Options{}), redlatch.Config{})
		own := stateTake(t, l, fmt.Sprint("own", p), redlatch.Options{})
		if err := own.Renew(t.Context(), 0); err != nil {
			t.Error(err)
		}
		for range waiters {
			stateAsk(ctx, l, "n", redlatch.Options{})
		}
	}
	stateQueued(t, holder, "n", 1+processes*waiters)
	for _, name := range append([]string{"holder"}, "waiter0", "waiter1", "waiter2", "waiter3", "waiter4") {
		if n := strings.Count(stateDo(t, server, "CLIENT", "LIST").(string), "name="+name+" "); n == 0 || n > pool+2 {
			t.Errorf("process %s has %d connections", name, n)
		}
	}
	cancel()
	stateUnlock(t, held)
}
