//go:build unix

package redisstore

import (
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/internal/servertest"
	"github.com/redlatch/redlatch/lease"
)

func as(t *testing.T, server *servertest.RedisServer, user string, rights ...string) *Store {
	t.Helper()
	mustDo(t, server, append([]string{"ACL", "SETUSER", user, "reset", "on", ">secret"}, rights...)...)
	return storeWith(t, &redis.Options{Addr: server.Addr(), Username: user, Password: "secret"}, Options{})
}

// documented are the rights that the documentation in that file names.
func documented(t *testing.T, file, user string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "ACL SETUSER "+user+" reset on >PASSWORD ")
	list, _, ok := strings.Cut(rest, "//\n")
	if !ok {
		t.Fatal("no ACL line in the documentation")
	}
	return strings.Fields(strings.ReplaceAll(list, "//", ""))
}

// Every branch of a script takes a test of its own to be run; what it calls can be read.
func TestEveryCommandOfTheScriptsIsDocumented(t *testing.T) {
	rights := documented(t, "store.go", "locker")
	for name, text := range allScripts() {
		calls := regexp.MustCompile(`redis\.p?call\('(\w+)'(?:, '(\w+)')?`).FindAllStringSubmatch(text, -1)
		if all := strings.Count(text, ".call(") + strings.Count(text, ".pcall("); all != len(calls) || all == 0 {
			t.Errorf("%s has %d calls, of which %d name their command", name, all, len(calls))
		}
		for _, call := range calls {
			command := "+" + strings.ToLower(call[1])
			if command == "+pubsub" {
				command += "|" + strings.ToLower(call[2])
			}
			if !slices.Contains(rights, command) {
				t.Errorf("%s calls %s, which is not in the documented rights", name, command)
			}
		}
	}
}

func allScripts() map[string]string {
	return map[string]string{
		"prelude": prelude, "join": joinText, "leave": leaveText, "renew": renewText, "inspect": inspectText, "record": recordText,
		"seals": sealsText,
	}
}

// Whatever a server's user lacks of the channels, or the program does not want of them.
func TestTheDocumentedRightsAreEnough(t *testing.T) {
	rights := documented(t, "store.go", "locker")
	mute := slices.DeleteFunc(slices.Clone(rights), func(right string) bool { return strings.HasPrefix(right, "&") })
	for what, test := range map[string]struct {
		rights  []string
		options Options
		denied  bool
	}{
		"all":                  {rights: rights},
		"polling":              {rights: rights, options: Options{Poll: true}},
		"polling, foreign":     {rights: rights, options: Options{Poll: true, Foreign: true}},
		"foreign":              {rights: rights, options: Options{Foreign: true}},
		"no channels":          {rights: append(mute, "resetchannels"), denied: true},
		"no channels, polling": {rights: append(mute, "resetchannels"), options: Options{Poll: true}, denied: true},
	} {
		t.Run(what, func(t *testing.T) { playsUnder(t, test.rights, test.options, test.denied) })
	}
}

// playsUnder makes all moves with those rights. denied says whether the server may have had
// to deny something, which was done without then.
func playsUnder(t *testing.T, rights []string, o Options, denied bool) {
	server := serve(t)
	user := func(name string) *Store {
		as(t, server, name, rights...)
		return storeWith(t, &redis.Options{Addr: server.Addr(), Username: name, Password: "secret"}, o)
	}
	a, b := user("a"), user("b")
	third := user("c")
	for _, name := range []string{"n", "{}", "a{b", "a}b", "x{y}z"} {
		holder, c := claim(30*time.Second), claim(30*time.Second)
		holder.Vote = true
		join(t, a, name, holder, lease.Held)
		st := join(t, b, name, c, lease.Waiting)
		behind := claim(30 * time.Second)
		last := join(t, third, name, behind, lease.Waiting)
		leave(t, a, name, holder.ID)
		join(t, third, name, behind, lease.Waiting) // looks, and finds that it is not its turn
		got := within(t, time.Second, b, name, c, st)
		out := b.Renew(t.Context(), []driver.Ref{{Name: name, Token: lease.Token{ID: c.ID, Ticket: got.Ticket, Owner: c.Owner}, TTL: c.TTL}})
		if out[0].Err != nil || out[0].State != lease.Held {
			t.Errorf("renew: %+v", out[0])
		}
		if _, err := a.Inspect(t.Context(), name); err != nil {
			t.Error(err)
		}
		if _, err := b.Leave(t.Context(), name, c.ID, 0, lease.Seal{For: 100 * time.Millisecond, Value: "v"}); err != nil {
			t.Error(err)
		}
		within(t, time.Second, third, name, behind, last)
		broken := lease.Seal{For: time.Second, Victim: behind.ID, By: "ops"}
		for range 2 {
			if _, err := a.Leave(t.Context(), name, behind.ID, 0, broken); err != nil {
				t.Error(err)
			}
		}
		leave(t, third, name, behind.ID) // answers the break
	}
	for _, err := range a.Names(t.Context(), "") {
		if err != nil {
			t.Error(err)
		}
	}
	a.Close()
	if denied {
		return
	}
	for _, entry := range mustDo(t, server, "ACL", "LOG").([]any) {
		if fields := entry.([]any); !strings.HasPrefix(fields[7].(string), "config") && !strings.HasPrefix(fields[7].(string), "client") {
			t.Errorf("denied: %v", fields)
		}
	}
}

func TestWithoutTheRightToPublishALockIsNotLost(t *testing.T) {
	server := serve(t)
	mute := as(t, server, "mute", "~*", "+@all", "resetchannels")
	b := newStore(t, server.Addr(), Options{})
	holder, c := claim(time.Second), claim(30*time.Second)
	join(t, mute, "n", holder, lease.Held)
	st := join(t, b, "n", c, lease.Waiting)
	leave(t, mute, "n", holder.ID)
	if v := mustDo(t, server, "GET", "lock:n"); v != nil {
		t.Errorf("a lock that nobody was told of: %v", v)
	}
	if got := within(t, 2*time.Second, b, "n", c, st); got.Ticket != st.Ticket {
		t.Errorf("ticket %d, was %d", got.Ticket, st.Ticket)
	}
}

// The process is subscribed and well, but no release can tell it anything.
func TestWhereNobodyMayPublishWaitersPoll(t *testing.T) {
	server := serve(t)
	rights := slices.DeleteFunc(documented(t, "store.go", "locker"), func(right string) bool { return right == "+publish" })
	a, b, c := as(t, server, "a", rights...), as(t, server, "b", rights...), as(t, server, "c", rights...)
	holder, first, second := claim(30*time.Second), claim(30*time.Second), claim(30*time.Second)
	join(t, a, "n", holder, lease.Held)
	st, st2 := join(t, b, "n", first, lease.Waiting), join(t, c, "n", second, lease.Waiting)
	if b.inbox.subscription().id == 0 {
		t.Error("it is not subscribed")
	}
	stays(t, 300*time.Millisecond, b, "n", first, st.Rev)
	leave(t, a, "n", holder.ID)
	if got := within(t, time.Second, b, "n", first, st); got.Ticket != st.Ticket {
		t.Errorf("ticket %d, queued with %d", got.Ticket, st.Ticket)
	}
	stays(t, 300*time.Millisecond, c, "n", second, st2.Rev)
	leave(t, b, "n", first.ID)
	if got := within(t, time.Second, c, "n", second, st2); got.Ticket != st2.Ticket {
		t.Errorf("ticket %d, queued with %d", got.Ticket, st2.Ticket)
	}
}

// A process that is subscribed and hangs looks alive for ever, and cannot be told that it is
// its turn; it does not poll either.
func TestWhereNobodyMayPublishAFrozenProcessCostsOneTurn(t *testing.T) {
	server := serve(t)
	rights := slices.DeleteFunc(documented(t, "store.go", "locker"), func(right string) bool { return right == "+publish" })
	a, frozen, c := as(t, server, "a", rights...), as(t, server, "b", rights...), as(t, server, "c", rights...)
	holder, next := claim(30*time.Second), claim(30*time.Second)
	join(t, a, "n", holder, lease.Held)
	for range 3 {
		join(t, frozen, "n", claim(500*time.Millisecond), lease.Waiting)
	}
	st := join(t, c, "n", next, lease.Waiting)
	leave(t, a, "n", holder.ID)
	within(t, 2*time.Second, c, "n", next, st)
}

func TestWithoutChannelsWaitersPoll(t *testing.T) {
	server := serve(t)
	a := as(t, server, "mute", "~*", "+@all", "resetchannels")
	b := as(t, server, "deaf", "~*", "+@all", "resetchannels")
	holder, c := claim(30*time.Second), claim(30*time.Second)
	join(t, a, "n", holder, lease.Held)
	st := join(t, b, "n", c, lease.Waiting)
	leave(t, a, "n", holder.ID)
	within(t, time.Second, b, "n", c, st)
}

// A user has all documented rights but one. Whatever that breaks: what is not granted must
// not be there either, and nothing stays for ever.
func TestLessOneRightNothingStays(t *testing.T) {
	server := serve(t)
	for _, text := range allScripts() { // else it is chance which of them a user without EVAL can run
		mustDo(t, server, "SCRIPT", "LOAD", text)
		mustDo(t, server, "SCRIPT", "LOAD", prelude+text)
	}
	rights := documented(t, "store.go", "locker")
	for _, less := range append(rights[2:], "&lock:*", "nothing") {
		some := slices.DeleteFunc(slices.Clone(rights), func(right string) bool { return right == less })
		for _, o := range []Options{{}, {Poll: true, Foreign: true}} {
			mustDo(t, server, "FLUSHALL")
			as(t, server, "u", append(some, "resetkeys", "~lock:*")...)
			user := func() *Store {
				return storeWith(t, &redis.Options{Addr: server.Addr(), Username: "u", Password: "secret", MaxRetries: -1}, o)
			}
			a, b := user(), user()
			holder, waits, try := claim(500*time.Millisecond), claim(500*time.Millisecond), claim(500*time.Millisecond)
			try.NoWait = true
			if st, err := a.Join(t.Context(), "try", try); err != nil || st.State != lease.Held {
				if v := mustDo(t, server, "GET", "lock:try"); v != nil {
					t.Errorf("without %s: %+v, %v; the key has %v", less, st, err, v)
				}
			} else if _, err := a.Leave(t.Context(), "try", try.ID, 0, lease.Seal{For: time.Minute}); err != nil && mustDo(t, server, "EXISTS", "lock:try") != int64(0) {
				t.Errorf("without %s a lock can be taken and not released: %v", less, err)
			}
			st, err := a.Join(t.Context(), "n", holder)
			if err != nil {
				// There may be others, who have all rights.
				st = join(t, newStore(t, server.Addr(), Options{}), "n", holder, lease.Held)
			}
			_, _ = b.Join(t.Context(), "n", waits)
			ref := driver.Ref{Name: "n", Token: lease.Token{ID: holder.ID, Ticket: st.Ticket, Owner: holder.Owner}, TTL: holder.TTL, Fence: st.Ticket + 1}
			_ = a.Renew(t.Context(), []driver.Ref{ref})
			_, _ = a.Leave(t.Context(), "n", holder.ID, 0, lease.Seal{})
			_, _ = b.Join(t.Context(), "n", waits)
			_, _ = b.Leave(t.Context(), "n", lease.NewID(), 0, lease.Seal{})
			_, _ = a.index.send(t.Context(), []string{"x", "y"}, []string{"z"})
			a.Close()
			b.Close()
			t.Run("without "+less, func(t *testing.T) { allExpire(t, server) })
		}
	}
}

// locked is a server with a password.
func locked(t *testing.T) *servertest.RedisServer {
	return servertest.Redis(t, servertest.RedisConfig{Password: "Sw0rdfish-77"})
}

// reported is an answer of a server that cannot be brought to give it here: tests connect
// from its own host.
type reported string

func (a reported) Error() string { return string(a) }
func (a reported) RedisError()   {}

func TestKindsOfTrouble(t *testing.T) {
	server := serve(t)
	kind := func(err error) driver.Kind {
		t.Helper()
		var f *driver.Fault
		if !errors.As(err, &f) {
			t.Fatalf("no fault: %v", err)
		}
		return f.Kind
	}
	ask := func(s *Store) error {
		t.Helper()
		_, err := s.Join(t.Context(), "n", claim(time.Second))
		return err
	}
	for name, rights := range map[string][]string{
		"no scripts":            {"~*", "&*", "+@all", "-eval", "-evalsha"},
		"no SET inside scripts": {"~*", "&*", "+@all", "-set"},
		"no such key":           {"~other:*", "&*", "+@all"},
	} {
		if err := ask(as(t, server, "u", rights...)); kind(err) != driver.Denied {
			t.Errorf("%s: %v", name, err)
		}
	}
	wrong := storeWith(t, &redis.Options{Addr: server.Addr(), Username: "nobody", Password: "x"}, Options{})
	if err := ask(wrong); kind(err) != driver.Denied {
		t.Errorf("a wrong password: %v", err)
	}
	votes := claim(time.Second)
	votes.Vote = true
	for _, s := range []*Store{wrong, storeWith(t, &redis.Options{Addr: locked(t).Addr()}, Options{})} {
		out := s.Renew(t.Context(), []driver.Ref{{Name: "n", Token: lease.Token{ID: lease.NewID(), Ticket: 1}, TTL: time.Second}})
		_, err := s.Join(t.Context(), "n", votes)
		if kind(ask(s)) != driver.Denied || kind(out[0].Err) != driver.Denied || kind(err) != driver.Denied {
			t.Errorf("a password that is wrong or missing: %v, %v, %v", ask(s), out[0].Err, err)
		}
	}
	unwanted := storeWith(t, &redis.Options{Addr: serve(t, "--rename-command", "HELLO", "").Addr(), Password: "x"}, Options{})
	if err := ask(unwanted); kind(err) != driver.Denied {
		t.Errorf("a password where none is set: %v", err)
	}
	for _, missing := range []string{"EVALSHA", "ZCARD"} {
		s := newStore(t, serve(t, "--rename-command", missing, "").Addr(), Options{})
		if err := ask(s); kind(err) != driver.Refused {
			t.Errorf("no %s: %v", missing, err)
		}
	}
	if err := ask(storeWith(t, &redis.Options{Addr: server.Addr(), DB: 99}, Options{})); kind(err) != driver.Refused {
		t.Errorf("no such database: %v", err)
	}
	mustDo(t, server, "CONFIG", "SET", "requirepass", "x")
	if err := ask(storeWith(t, &redis.Options{Addr: server.Addr()}, Options{})); kind(err) != driver.Denied {
		t.Errorf("no password: %v", err)
	}
	if conn, err := servertest.Dial(server.Addr()); err != nil {
		t.Error(err)
	} else if _, err = conn.Do("AUTH", "x"); err != nil {
		t.Error(err)
	} else if _, err = conn.Do("CONFIG", "SET", "requirepass", ""); err != nil {
		t.Error(err)
	}
	if kind := kindOf(reported("DENIED Redis is running in protected mode")); kind != driver.Denied {
		t.Errorf("protected mode: %v", kind)
	}
	once := storeWith(t, &redis.Options{Addr: server.Addr(), MaxRetries: -1}, Options{})
	for name, setting := range map[string][]string{
		"OOM":        {"maxmemory", "1", "0"},
		"NOREPLICAS": {"min-replicas-to-write", "1", "0"},
	} {
		mustDo(t, server, "CONFIG", "SET", setting[0], setting[1])
		if err := ask(once); kind(err) != driver.Unavailable || serverCode(err) != name {
			t.Errorf("%s: %v", name, err)
		}
		mustDo(t, server, "CONFIG", "SET", setting[0], setting[2])
	}
	mustDo(t, server, "REPLICAOF", "127.0.0.1", "1")
	if err := ask(once); kind(err) != driver.Unavailable || serverCode(err) != "READONLY" {
		t.Errorf("READONLY: %v", err)
	}
	mustDo(t, server, "REPLICAOF", "NO", "ONE")

	mustDo(t, server, "HSET", "lock:n", "redisson", "1")
	mustDo(t, server, "PEXPIRE", "lock:n", "60000")
	if err := ask(once); kind(err) != driver.Misplaced || !strings.Contains(err.Error(), "another lock format") {
		t.Errorf("a hash: %v", err)
	}
	mustDo(t, server, "SET", "lock:n", lease.NewID()+".7.what.ever", "PX", "60000")
	if err := ask(once); kind(err) != driver.Misplaced || !errors.Is(err, lease.ErrNewer) {
		t.Errorf("a newer token: %v", err)
	}
	mustDo(t, server, "DEL", "lock:n")

	server.Kill()
	if err := ask(once); kind(err) != driver.Unavailable {
		t.Errorf("no server: %v", err)
	}
	short := claim(time.Millisecond)
	if _, err := once.Join(t.Context(), "n", short); kind(err) != driver.Refused {
		t.Errorf("a TTL of 1 ms: %v", err)
	}
	shared := claim(time.Second)
	shared.Mode = lease.Shared
	if _, err := once.Join(t.Context(), "n", shared); kind(err) != driver.Refused {
		t.Errorf("a shared claim: %v", err)
	}
}

// What the connection itself is refused is seen by whatever is asked first.
func TestKindsOfTroubleOfAConnection(t *testing.T) {
	open, closed := serve(t), locked(t)
	clustered := servertest.Redis(t, servertest.RedisConfig{Args: []string{"--cluster-enabled", "yes"}})
	for what, test := range map[string]struct {
		options redis.Options
		kind    driver.Kind
		text    string
	}{
		"no password":        {redis.Options{Addr: closed.Addr()}, driver.Denied, ""},
		"a wrong password":   {redis.Options{Addr: closed.Addr(), Password: "x"}, driver.Denied, "WRONGPASS"},
		"no such database":   {redis.Options{Addr: open.Addr(), DB: 99}, driver.Refused, "DB index is out of range"},
		"another database":   {redis.Options{Addr: clustered.Addr(), DB: 1}, driver.Refused, "SELECT is not allowed in cluster mode"},
		"no password, RESP2": {redis.Options{Addr: closed.Addr(), Protocol: 2}, driver.Denied, ""},
	} {
		for mode, o := range map[string]*Store{"scripts": storeWith(t, &test.options, Options{}), "plain": plainWith(t, &test.options).plainStore} {
			check := func(call string, err error) {
				t.Helper()
				var f *driver.Fault
				if !errors.As(err, &f) || f.Kind != test.kind || !strings.Contains(err.Error(), test.text) {
					t.Errorf("%s, %s, %s: %v", what, mode, call, err)
				}
			}
			votes := claim(time.Second)
			votes.Vote = true
			for range 3 { // the pool has a connection or not
				_, err := o.Join(t.Context(), "n", claim(time.Second))
				check("join", err)
				_, err = o.Join(t.Context(), "n", votes)
				check("vote", err)
				_, err = o.Leave(t.Context(), "n", lease.NewID(), 0, lease.Seal{})
				check("leave", err)
				ref := driver.Ref{Name: "n", Token: lease.Token{ID: lease.NewID(), Ticket: 1}, TTL: time.Second}
				for _, out := range o.Renew(t.Context(), []driver.Ref{ref, ref, ref}) {
					check("renew", out.Err)
				}
				_, err = o.Inspect(t.Context(), "n")
				check("inspect", err)
				_, err = o.Node(t.Context())
				check("node", err)
				for _, err := range o.Names(t.Context(), "") {
					check("names", err)
				}
			}
		}
	}
}

func TestClientsThatAreRefused(t *testing.T) {
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	defer ring.Close()
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	defer cluster.Close()
	for _, c := range []redis.UniversalClient{nil, (*redis.Client)(nil), ring, cluster} {
		if _, err := New(c, Options{}); err == nil {
			t.Errorf("a %T is accepted", c)
		}
	}
}

// Who may not ask for subscribers goes by the number that heard the message, and takes
// the lock back if that is none.
func TestWithoutTheRightToAskForSubscribersTheDeadAreSkipped(t *testing.T) {
	server := serve(t)
	a := as(t, server, "blind", "~*", "&*", "+@all", "-pubsub|numsub")
	dead, b := newStore(t, server.Addr(), Options{}), newStore(t, server.Addr(), Options{})
	holder, c := claim(30*time.Second), claim(30*time.Second)
	join(t, a, "n", holder, lease.Held)
	join(t, dead, "n", claim(30*time.Second), lease.Waiting)
	st := join(t, b, "n", c, lease.Waiting)
	dead.Close()
	servertest.Eventually(t, 5*time.Second, "the end of its subscription", func() bool {
		return mustDo(t, server, "PUBSUB", "NUMSUB", dead.inbox.channel).([]any)[1] == int64(0)
	})
	leave(t, a, "n", holder.ID)
	within(t, time.Second, b, "n", c, st)
}
