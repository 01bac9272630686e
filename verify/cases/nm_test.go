//go:build unix

package cases

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/servertest"
	"github.com/redlatch/redlatch/lease"
	"github.com/redlatch/redlatch/redisstore"
)

func TestNM01LongNamesWorkOrAreRefusedWithTheLimit(t *testing.T) {
	t.Parallel()
	stateEverywhere(t, func(t *testing.T, process func() *redlatch.Locker) {
		a, b := process(), process()
		for _, n := range []int{1, 40, 128, lease.MaxName - 1, lease.MaxName} {
			for _, letter := range []string{"x", "X", "/", "é"} { // on disk some take more bytes than they have
				name := "a" + strings.Repeat(letter+"b", n)
				name = strings.ToValidUTF8(name[:n], "")
				if strings.HasSuffix(name, "/") {
					name = name[:len(name)-1] + "c"
				}
				held := stateTake(t, a, name, redlatch.Options{})
				_, err := b.TryLock(t.Context(), name, redlatch.Options{})
				stateIs(t, err, redlatch.ErrHeld, "")
				stateUnlock(t, held)
			}
		}
		for _, n := range []int{lease.MaxName + 1, 255, 256, 4096, 65536, 1 << 20} {
			_, err := a.TryLock(t.Context(), strings.Repeat("x", n), redlatch.Options{})
			stateIs(t, err, redlatch.ErrInvalid, fmt.Sprintf("has %d bytes, %d is the most", n, lease.MaxName))
		}
		for name, err := range a.Names(t.Context(), "") {
			t.Errorf("left behind: %q, %v", name, err)
		}
	})
}

func TestNM02NamesThatDifferInOneByteAreTwoLocks(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("É", lease.MaxName/2-1)
	stateDifferent(t, [][2]string{
		{"a" + long + "y", "a" + long + "z"},
		{"a" + long + "y", "b" + long + "y"},
		{strings.Repeat("x", lease.MaxName), strings.Repeat("x", lease.MaxName-1)},
	})
}

func TestNM03NamesAreNotFolded(t *testing.T) {
	t.Parallel()
	stateDifferent(t, [][2]string{
		{"a/b/c", "a_b/c"}, {"a:b", "a_b"}, {"A", "a"}, {"\u00e9", "e\u0301"}, {"a%2Fb", "a/b"}, {".", ".."}, {"a/..", "a"},
		{"a.", "a"}, {"con", "CON"}, {"a~b", "a%7eb"}, {"a\u00a0b", "a b"}, {"ﬀ", "ff"}, {"{a}b", "{a}c"}, {"lock:a", "a"}, {"..", "%2e%2e"},
	})
}

// stateDifferent holds both names of each pair at once; a pair of which one is refused
// as no name is as good.
func stateDifferent(t *testing.T, pairs [][2]string) {
	t.Helper()
	stateEverywhere(t, func(t *testing.T, process func() *redlatch.Locker) {
		a, b := process(), process()
		for _, pair := range pairs {
			if lease.CheckName(pair[0]) != nil || lease.CheckName(pair[1]) != nil {
				continue
			}
			first := stateTake(t, a, pair[0], redlatch.Options{})
			second, err := b.TryLock(t.Context(), pair[1], redlatch.Options{})
			if err != nil {
				t.Errorf("%q excludes %q: %v", pair[0], pair[1], err)
			} else {
				stateUnlock(t, second)
			}
			_, err = b.TryLock(t.Context(), pair[0], redlatch.Options{})
			stateIs(t, err, redlatch.ErrHeld, "")
			stateUnlock(t, first)
		}
	})
	for _, name := range []string{"x ", " x", "x\x00", "x\n", "x\u202e", "a//b", "/a", "a/"} {
		if lease.CheckName(name) == nil {
			t.Errorf("%q is accepted", name)
		}
	}
}

func TestNM05OrdinaryNamesAreAccepted(t *testing.T) {
	t.Parallel()
	names := []string{
		"https:example.com/a?b=c&d=%20#e", "www.example.com/a/b", "some.one+tag@example.com", "123e4567-e89b-12d3-a456-426614174000",
		strings.Repeat("123e4567-e89b-12d3-a456-426614174000,", 5)[:184], "Rechnung 2026 Nr. 7/ä", "日本語/ロック", "a=b;c", "C:\\x\\y", "'quoted' \"name\"", "$HOME/`x`", "-n", "--", "*",
	}
	stateEverywhere(t, func(t *testing.T, process func() *redlatch.Locker) {
		a, b := process(), process()
		for _, name := range names {
			held := stateTake(t, a, name, redlatch.Options{})
			_, err := b.TryLock(t.Context(), name, redlatch.Options{})
			stateIs(t, err, redlatch.ErrHeld, "")
			stateUnlock(t, held)
		}
	})
	// Names are paths of a tree, so "//" is no name; who has URLs is told what to write.
	if err := lease.CheckName("https://example.com/a"); err == nil || !strings.Contains(err.Error(), "write a/b") {
		t.Errorf("a URL: %v", err)
	}
}

func TestNM06AnEmptyNameIsNoLock(t *testing.T) {
	t.Parallel()
	server := stateServer(t)
	s := stateStore(t, &redis.Options{Addr: server.Addr()}, redisstore.Options{NoPrefix: true})
	for _, prefix := range []string{"", "app/"} {
		l := stateLocker(t, s, redlatch.Config{Prefix: prefix})
		_, err := l.Lock(t.Context(), "", redlatch.Options{})
		stateIs(t, err, redlatch.ErrInvalid, "empty")
		_, err = l.TryLock(t.Context(), "", redlatch.Options{})
		stateIs(t, err, redlatch.ErrInvalid, "empty")
		_, err = l.LockAll(t.Context(), []string{"a", ""}, redlatch.Options{})
		stateIs(t, err, redlatch.ErrInvalid, "empty")
		_, err = l.Inspect(t.Context(), "")
		stateIs(t, err, redlatch.ErrInvalid, "empty")
		_, err = l.Break(t.Context(), "", redlatch.BreakOptions{})
		stateIs(t, err, redlatch.ErrInvalid, "empty")
	}
	if n := server.CommandStats()["evalsha"]; n != 0 {
		t.Errorf("%d calls were sent", n)
	}
	if keys := stateDo(t, server, "KEYS", "*").([]any); len(keys) > 0 {
		t.Errorf("keys %q", keys)
	}
}

func TestNM08EveryVerbUsesTheSameKeys(t *testing.T) {
	t.Parallel()
	server := stateServer(t)
	process := func(prefix string) *redlatch.Locker {
		s := stateStore(t, &redis.Options{Addr: server.Addr()}, redisstore.Options{Prefix: "my app{x}:"})
		return stateLocker(t, s, redlatch.Config{Prefix: prefix})
	}
	a, b, whole := process("team/ä"), process("team/ä"), process("")
	for _, name := range []string{"n", "{}", "a}b{c", "%2F", "*?[x]", "x/y"} {
		stateAll(t, a, b, name)
		held := stateTake(t, a, name, redlatch.Options{})
		if v := stateDo(t, server, "GET", "my app{x}:team/ä"+name); v != held.Token() {
			t.Errorf("%q: the key has %v", name, v)
		}
		if q, err := whole.Inspect(t.Context(), "team/ä"+name); err != nil || len(q.Claims) != 1 {
			t.Errorf("%q: by its whole name it is %+v, %v", name, q, err)
		}
		token := held.Token()
		stateUnlock(t, held)
		// A release that finds nothing says so.
		if err := b.Release(t.Context(), name, token); err == nil {
			t.Errorf("%q is released twice", name)
		}
		if _, err := b.Break(t.Context(), name, redlatch.BreakOptions{}); !errors.Is(err, redlatch.ErrNotHeld) {
			t.Errorf("%q is broken though nobody holds it: %v", name, err)
		}
	}
}

func TestNM09TheSameNameInTwoDatabases(t *testing.T) {
	t.Parallel()
	server := stateServer(t)
	in := func(db int) *redlatch.Locker {
		return stateLocker(t, stateStore(t, &redis.Options{Addr: server.Addr(), DB: db}, redisstore.Options{}), redlatch.Config{})
	}
	held1, held2 := stateTake(t, in(1), "n", redlatch.Options{TTL: time.Minute}), stateTake(t, in(2), "n", redlatch.Options{TTL: time.Minute})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	one, two := in(1), in(2)
	next1, next2 := stateAsk(t.Context(), one, "n", redlatch.Options{}), stateAsk(ctx, two, "n", redlatch.Options{})
	stateQueued(t, one, "n", 2)
	stateQueued(t, two, "n", 2)
	// Each waiter looks once more when its subscription is up; then nobody asks anything.
	quiet, since := 0, time.Now()
	servertest.Eventually(t, stateSoon, "quiet", func() bool {
		if n := server.CommandStats()["evalsha"]; n != quiet {
			quiet, since = n, time.Now()
		}
		return time.Since(since) > 700*time.Millisecond
	})
	stateUnlock(t, held1)
	stateUnlock(t, stateWait(t, next1))
	servertest.Eventually(t, stateSoon, "a second", func() bool { return time.Since(since) > 2*time.Second })
	select {
	case a := <-next2:
		t.Fatalf("a release in another database gave %+v, %v", a.held, a.err)
	default:
	}
	if n := server.CommandStats()["evalsha"] - quiet; n > 12 { // two releases, one grant, the lists of four processes
		t.Errorf("%d calls for one hand-over", n)
	}
	stateUnlock(t, held2)
	stateUnlock(t, stateWait(t, next2))
}
