//go:build unix

package cases

import (
	"crypto/tls"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/relay"
	"github.com/redlatch/redlatch/internal/servertest"
	"github.com/redlatch/redlatch/redisstore"
)

// stateUser is a process of a user with those rights.
func stateUser(t *testing.T, server *servertest.RedisServer, user, prefix string, rights ...string) *redlatch.Locker {
	t.Helper()
	stateDo(t, server, append([]string{"ACL", "SETUSER", user, "reset", "on", ">secret"}, rights...)...)
	o := &redis.Options{Addr: server.Addr(), Username: user, Password: "secret"}
	return stateLocker(t, stateStore(t, o, redisstore.Options{Prefix: prefix}), redlatch.Config{})
}

// stateDenials is what users were denied but for what the client library tries when it
// connects, and does without.
func stateDenials(t *testing.T, server *servertest.RedisServer) []string {
	t.Helper()
	var denials []string
	for _, entry := range stateDo(t, server, "ACL", "LOG").([]any) {
		fields := entry.([]any)
		what, _ := fields[7].(string)
		if !strings.HasPrefix(what, "client") && !strings.HasPrefix(what, "hello") && !strings.HasPrefix(what, "config") {
			denials = append(denials, what)
		}
	}
	return denials
}

// stateAll does with the lock of a name whatever can be done, in two processes.
func stateAll(t *testing.T, a, b *redlatch.Locker, name string) {
	t.Helper()
	held := stateTake(t, a, name, redlatch.Options{TTL: 10 * time.Second, HoldAtLeast: time.Millisecond})
	if _, err := b.TryLock(t.Context(), name, redlatch.Options{}); err == nil {
		t.Error("held twice")
	}
	next := stateAsk(t.Context(), b, name, redlatch.Options{})
	stateQueued(t, b, name, 2)
	if err := held.Renew(t.Context(), 0); err != nil {
		t.Error(err)
	}
	servertest.Eventually(t, stateSoon, "the list to have it", func() bool {
		for listed, err := range b.Names(t.Context(), name) {
			if err != nil {
				t.Fatal(err)
			}
			if listed == name {
				return true
			}
		}
		return false
	})
	stateUnlock(t, held)
	held = stateWait(t, next)
	if err := held.Renew(t.Context(), 0); err != nil {
		t.Error(err)
	}
	if _, err := a.Break(t.Context(), name, redlatch.BreakOptions{Reason: "test"}); err != nil {
		t.Error(err)
	}
	stateLeaveBroken(t, held)
	held = stateTake(t, b, name, redlatch.Options{HoldAtLeast: 500 * time.Millisecond})
	if err := a.Release(t.Context(), name, held.Token()); err != nil {
		t.Error(err)
	}
}

func TestACL01EveryKeyAndChannelHasThePrefix(t *testing.T) {
	t.Parallel()
	server := stateServer(t)
	rights := []string{"~app:*", "&app:*", "+@all"}
	a, b := stateUser(t, server, "a", "app:", rights...), stateUser(t, server, "b", "app:", rights...)
	for _, name := range []string{"orders/42", "{}x", "a{b", "a}b", "{tag}y"} {
		stateAll(t, a, b, name)
	}
	if denied := stateDenials(t, server); len(denied) > 0 {
		t.Errorf("denied: %q", denied)
	}
	for _, key := range stateDo(t, server, "KEYS", "*").([]any) {
		if !strings.HasPrefix(key.(string), "app:") {
			t.Errorf("a key %q", key)
		}
	}
}

func TestACL02NothingDangerousIsNeeded(t *testing.T) {
	t.Parallel()
	server := stateServer(t)
	rights := []string{"~*", "&*", "+@all", "-@dangerous", "-config", "-client", "-role", "-keys", "-scan"}
	stateAll(t, stateUser(t, server, "a", "", rights...), stateUser(t, server, "b", "", rights...), "n")
	if denied := stateDenials(t, server); len(denied) > 0 {
		t.Errorf("denied: %q", denied)
	}
}

func TestACL03WithoutScriptsNothingIsTaken(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		args, rights []string
		kind         error
		says         string
	}{
		"denied":  {rights: []string{"~*", "&*", "+@all", "-eval", "-evalsha", "-script"}, kind: redlatch.ErrDenied, says: "evalsha"},
		"renamed": {args: []string{"--rename-command", "EVALSHA", "", "--rename-command", "EVAL", ""}, rights: []string{"~*", "&*", "+@all"}, kind: redlatch.ErrUnsupported, says: "unknown command"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := stateServer(t, tt.args...)
			l := stateUser(t, server, "u", "", tt.rights...)
			_, err := l.Lock(t.Context(), "n", redlatch.Options{})
			stateIs(t, err, tt.kind, tt.says)
			_, err = l.TryLock(t.Context(), "n", redlatch.Options{})
			stateIs(t, err, tt.kind, tt.says)
			if keys := stateDo(t, server, "KEYS", "*").([]any); len(keys) > 0 {
				t.Errorf("left behind: %q", keys)
			}
		})
	}
}

// Rights that are taken away while the lock is held: the release is denied inside the
// script, and says so; it does not say that the lock is free.
func TestACL04ADenialInsideTheReleaseIsADenial(t *testing.T) {
	t.Parallel()
	server := stateServer(t)
	l := stateUser(t, server, "u", "", "~*", "&*", "+@all")
	held := stateTake(t, l, "n", redlatch.Options{})
	stateDo(t, server, "ACL", "SETUSER", "u", "-del")
	stateIs(t, held.Unlock(), redlatch.ErrDenied, "stays locked")
	if v := stateDo(t, server, "GET", "lock:n"); v == nil {
		t.Error("the release was denied, and the key is gone")
	}
	_, err := stateProcess(t, server).TryLock(t.Context(), "n", redlatch.Options{})
	stateIs(t, err, redlatch.ErrHeld, "held by")
	stateDo(t, server, "ACL", "SETUSER", "u", "+del")
	stateUnlock(t, held) // can be repeated
	if v := stateDo(t, server, "GET", "lock:n"); v != nil {
		t.Errorf("released, and the key is %v", v)
	}
}

func TestACL04ADeniedMessageDoesNotUndoTheRelease(t *testing.T) {
	t.Parallel()
	for name, taken := range map[string][]string{"no publish": {"-publish"}, "no channel": {"resetchannels"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := stateServer(t)
			l, other := stateUser(t, server, "u", "", "~*", "&*", "+@all"), stateProcess(t, server)
			held := stateTake(t, l, "n", redlatch.Options{TTL: 2 * time.Second}) // nobody looks before its end
			next := stateAsk(t.Context(), other, "n", redlatch.Options{})
			stateQueued(t, other, "n", 2)
			stateDo(t, server, append([]string{"ACL", "SETUSER", "u"}, taken...)...)
			stateUnlock(t, held)
			servertest.Eventually(t, stateSoon, "the waiter to find it free", func() bool { return len(next) == 1 })
			stateUnlock(t, stateWait(t, next))
		})
	}
}

// The renewal is denied: the hold goes on for as long as it is trusted, is back when the
// right is, and names the denial when it is not.
func TestACL04ADeniedRenewalIsTriedUntilTrustEnds(t *testing.T) {
	t.Parallel()
	server := stateServer(t)
	l := stateUser(t, server, "u", "", "~*", "&*", "+@all")
	short, long := stateTake(t, l, "short", redlatch.Options{TTL: time.Second}), stateTake(t, l, "long", redlatch.Options{TTL: time.Minute})
	stateDo(t, server, "ACL", "SETUSER", "u", "-pexpire")
	stateIs(t, long.Renew(t.Context(), 0), redlatch.ErrDenied, "can't run this command")
	lost := stateLost(t, short)
	if !strings.Contains(lost.Error(), "can't run this command") && !strings.Contains(lost.Error(), "NOPERM") {
		t.Errorf("lost: %v", lost)
	}
	if !long.Valid() {
		t.Error("a hold was given up before its time")
	}
	stateDo(t, server, "ACL", "SETUSER", "u", "+pexpire")
	if err := long.Renew(t.Context(), 0); err != nil {
		t.Error(err)
	}
	stateUnlock(t, long)
}

func TestACL06ServersAndProxiesWithoutHello(t *testing.T) {
	t.Parallel()
	round := func(t *testing.T, l *redlatch.Locker) {
		held := stateTake(t, l, "n", redlatch.Options{})
		if err := held.Renew(t.Context(), 0); err != nil {
			t.Error(err)
		}
		stateUnlock(t, held)
	}
	t.Run("denied", func(t *testing.T) {
		t.Parallel()
		round(t, stateUser(t, stateServer(t), "u", "", "~*", "&*", "+@all", "-hello"))
	})
	t.Run("unknown", func(t *testing.T) {
		t.Parallel()
		round(t, stateProcess(t, stateServer(t, "--rename-command", "HELLO", "")))
	})
	t.Run("RESP2", func(t *testing.T) {
		t.Parallel()
		server := stateServer(t)
		a := stateLocker(t, stateStore(t, &redis.Options{Addr: server.Addr(), Protocol: 2}, redisstore.Options{}), redlatch.Config{})
		b := stateLocker(t, stateStore(t, &redis.Options{Addr: server.Addr(), Protocol: 2}, redisstore.Options{}), redlatch.Config{})
		stateAll(t, a, b, "n")
	})
	t.Run("cut", func(t *testing.T) {
		t.Parallel()
		server := stateServer(t)
		r := relay.Start(t, server.Addr())
		first := r.CutReply(relay.Command("HELLO")) // a trap catches once, and the client tries some times
		for range 63 {
			r.CutReply(relay.Command("HELLO"))
		}
		l := stateLocker(t, stateStore(t, &redis.Options{Addr: r.Addr(), DialerRetries: 1}, redisstore.Options{}), redlatch.Config{})
		_, err := l.TryLock(t.Context(), "n", redlatch.Options{})
		stateIs(t, err, redlatch.ErrUnavailable, "")
		select {
		case <-first.Caught():
		default:
			t.Error("no HELLO was cut")
		}
	})
}

// redis-server 7.0 knows no CLIENT SETINFO; a user may have no CLIENT at all.
func TestACL07TheHandshakesExtrasAreNotNeeded(t *testing.T) {
	t.Parallel()
	server := stateServer(t)
	rights := []string{"~*", "&*", "+@all", "-client"}
	stateAll(t, stateUser(t, server, "a", "", rights...), stateUser(t, server, "b", "", rights...), "n")
}

func TestACL09ACertificateForAnotherNameIsCalledThat(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t, servertest.RedisConfig{TLS: true})
	right, err := server.Certs().ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	with := func(change func(c *tls.Config)) *redlatch.Locker {
		c := right.Clone()
		change(c)
		return stateLocker(t, stateStore(t, &redis.Options{Addr: server.Addr(), TLSConfig: c, DialerRetries: 1}, redisstore.Options{}), redlatch.Config{})
	}
	_, err = with(func(c *tls.Config) { c.ServerName = "redis.example.com" }).TryLock(t.Context(), "n", redlatch.Options{})
	stateIs(t, err, redlatch.ErrUnavailable, "certificate is valid for localhost, not redis.example.com")
	_, err = with(func(c *tls.Config) { c.RootCAs = nil }).TryLock(t.Context(), "n", redlatch.Options{})
	stateIs(t, err, redlatch.ErrUnavailable, "certificate signed by unknown authority")
	// The server's reset may come before what it says is read; then the next try says it.
	anonymous := with(func(c *tls.Config) { c.Certificates = nil })
	servertest.Eventually(t, stateSoon, "the server to say what it lacks", func() bool {
		_, err := anonymous.TryLock(t.Context(), "n", redlatch.Options{})
		stateIs(t, err, redlatch.ErrUnavailable, "")
		return strings.Contains(err.Error(), "certificate required")
	})
	stateAll(t, with(func(*tls.Config) {}), with(func(*tls.Config) {}), "n")
}
