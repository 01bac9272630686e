//go:build unix

// Package cases plays what has gone wrong in other lock libraries, as their users have
// reported it, on this one: against real servers, or on every store where the case is not
// one of Redis. README.md says which test plays which case, and which cases cannot be.
package cases

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/filestore"
	"github.com/redlatch/redlatch/internal/relay"
	"github.com/redlatch/redlatch/internal/servertest"
	"github.com/redlatch/redlatch/lease"
	"github.com/redlatch/redlatch/memstore"
	"github.com/redlatch/redlatch/redisstore"
	"github.com/redlatch/redlatch/verify/client"
)

// patience is how long something may take that has to happen: a busy machine is not what
// the cases are about. A lease that must not be the reason why it happens is longer.
const (
	patience = 45 * time.Second
	long     = 2 * time.Minute
)

func TestMain(m *testing.M) {
	client.Silence()
	if text, ok := os.LookupEnv(partVariable); ok {
		if err := play(text); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	flag.Parse()
	_ = flag.Set("test.parallel", "8") // most cases wait for the end of a lease, and need no processor for it
	os.Exit(m.Run())
}

// place is where the processes of a case keep their locks.
type place struct {
	server *servertest.RedisServer // nil where it is not Redis
	dir    string                  // filestore's
	memory *memstore.Store
}

// everywhere plays the case on each store.
func everywhere(t *testing.T, play func(t *testing.T, p place)) {
	t.Parallel()
	t.Run("redisstore", func(t *testing.T) { t.Parallel(); play(t, onRedis(t)) })
	t.Run("filestore", func(t *testing.T) { t.Parallel(); play(t, place{dir: t.TempDir()}) })
	t.Run("memstore", func(t *testing.T) { t.Parallel(); play(t, place{memory: memstore.New()}) })
}

func onRedis(t *testing.T, args ...string) place {
	t.Helper()
	return place{server: servertest.Redis(t, servertest.RedisConfig{Args: args})}
}

// store is the place as one more process sees it.
func (p place) store(t *testing.T) driver.Store {
	t.Helper()
	switch {
	case p.server != nil:
		return redisAt(t, &redis.Options{Addr: p.server.Addr()})
	case p.dir != "":
		s, err := filestore.New(p.dir, filestore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	return p.memory
}

// patient is a process that asks again where a call got no answer: one on a machine that
// has too much to do is not what most cases are about.
func patient(name string) redlatch.Config {
	return redlatch.Config{Owner: redlatch.Owner{Name: name}, OnUnavailable: redlatch.Wait}
}

// process is one more process at the place.
func (p place) process(t *testing.T, name string) *redlatch.Locker {
	t.Helper()
	return locker(t, p.store(t), patient(name))
}

func redisAt(t *testing.T, o *redis.Options) *redisstore.Store {
	t.Helper()
	c := redis.NewClient(o)
	s, err := redisstore.New(c, redisstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Close()
		c.Close()
	})
	return s
}

// processAt is a process that reaches its Redis server at addr, which may be a relay's.
func processAt(t *testing.T, addr, name string) *redlatch.Locker {
	t.Helper()
	return locker(t, redisAt(t, &redis.Options{Addr: addr}), patient(name))
}

func locker(t *testing.T, s driver.Store, cfg redlatch.Config) *redlatch.Locker {
	t.Helper()
	l, err := redlatch.New(s, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = l.Close(ctx) // what a case has broken cannot be released
	})
	return l
}

// take gets the lock. On a busy machine an answer may take longer than a short lease, so
// it asks again then.
func take(t *testing.T, l *redlatch.Locker, name string, o redlatch.Options) *redlatch.Held {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		held, err := l.Lock(ctx, name, o)
		if err == nil {
			return held
		}
		if !errors.Is(err, redlatch.ErrUnavailable) || ctx.Err() != nil {
			t.Fatalf("lock %q: %v", name, err)
		}
	}
}

func giveBack(t *testing.T, held interface{ Unlock() error }) {
	t.Helper()
	if err := unlock(held); err != nil {
		t.Errorf("unlock: %v", err)
	}
}

// unlock asks again where there was no answer.
func unlock(held interface{ Unlock() error }) error {
	err := held.Unlock()
	for began := time.Now(); errors.Is(err, redlatch.ErrUnavailable) && time.Since(began) < patience; {
		err = held.Unlock()
	}
	return err
}

// kinds are the errors that must not be taken for one another.
var kinds = []error{
	redlatch.ErrHeld, redlatch.ErrSealed, redlatch.ErrLost, redlatch.ErrUnavailable, redlatch.ErrDenied, redlatch.ErrNotHeld,
	redlatch.ErrUnsupported, redlatch.ErrInvalid, redlatch.ErrConflict, redlatch.ErrClosed,
}

// mustBe checks that err is of that kind and of no other.
func mustBe(t *testing.T, err, want error) {
	t.Helper()
	for _, kind := range kinds {
		if is := errors.Is(err, kind); is != errors.Is(want, kind) {
			t.Errorf("%v: it is %q: %v; wanted %q only", err, kind, is, want)
		}
	}
}

// lostWhy waits until the hold is lost.
func lostWhy(t *testing.T, held *redlatch.Held) lease.Loss {
	t.Helper()
	select {
	case <-held.Context().Done():
	case <-time.After(patience):
		t.Fatalf("the hold of %q has not ended after %v", held.Name(), patience)
	}
	lost, ok := errors.AsType[*redlatch.LostError](context.Cause(held.Context()))
	if !ok {
		t.Fatalf("the hold ended with %v, not as lost", context.Cause(held.Context()))
	}
	return lost.Loss
}

// queued waits until so many wait for the name.
func queued(t *testing.T, l *redlatch.Locker, name string, n int) {
	t.Helper()
	servertest.Eventually(t, patience, fmt.Sprintf("%d waiters for %q", n, name), func() bool {
		q, err := l.Inspect(t.Context(), name)
		return err == nil && len(q.Waiters()) == n
	})
}

// free waits until nobody holds the name and nobody waits.
func free(t *testing.T, l *redlatch.Locker, name string) {
	t.Helper()
	servertest.Eventually(t, patience, fmt.Sprintf("%q to be free", name), func() bool {
		q, err := l.Inspect(t.Context(), name)
		return err == nil && len(q.Claims) == 0
	})
}

// do sends a command to the server of p, past everything that a case breaks.
func (p place) do(t *testing.T, args ...string) any {
	t.Helper()
	reply, err := p.server.Do(args...)
	if err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	return reply
}

// value is what the name's lock key has; "" if there is none.
func (p place) value(t *testing.T, name string) string {
	t.Helper()
	v, _ := p.do(t, "GET", "lock:"+name).(string)
	return v
}

// expires is when the name's lock key ends, in milliseconds of the server's clock: -2 if
// there is none, -1 if it never does.
func (p place) expires(t *testing.T, name string) int64 {
	t.Helper()
	at, _ := p.do(t, "PEXPIRETIME", "lock:"+name).(int64)
	return at
}

// endless are the keys without an expiry. The server looks at all of them at one instant.
func (p place) endless(t *testing.T) []any {
	t.Helper()
	return p.do(t, "EVAL", `local bad = {}
		for _, k in ipairs(redis.call('KEYS', '*')) do if redis.call('PTTL', k) == -1 then bad[#bad + 1] = k end end
		return bad`, "0").([]any)
}

// calls matches the scripts that are called for a name.
func calls(name string) func(args []string) bool {
	return func(args []string) bool {
		return strings.HasPrefix(strings.ToUpper(args[0]), "EVAL") && len(args) > 3 && args[3] == "lock:"+name
	}
}

// caught waits until the trap has caught its request.
func caught(t *testing.T, trap *relay.Trap) {
	t.Helper()
	select {
	case <-trap.Caught():
	case <-time.After(patience):
		t.Fatal("the call that is waited for was not made")
	}
}

// monitor writes down what a server carries out, inside scripts too.
type monitor struct {
	t      *testing.T
	server *servertest.RedisServer

	mu    sync.Mutex
	lines []string
	marks int
}

func watch(t *testing.T, server *servertest.RedisServer) *monitor {
	t.Helper()
	conn, err := servertest.Dial(server.Socket())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Do("MONITOR"); err != nil {
		t.Fatal(err)
	}
	m := &monitor{t: t, server: server}
	var reading sync.WaitGroup
	reading.Go(func() {
		for {
			line, err := conn.Receive(time.Hour)
			if err != nil {
				return
			}
			m.mu.Lock()
			m.lines = append(m.lines, fmt.Sprint(line))
			m.mu.Unlock()
		}
	})
	t.Cleanup(func() {
		conn.Close()
		reading.Wait()
	})
	return m
}

// seen is all that the server has carried out before this call and that has all the words,
// in any case: clients differ in how they write a command.
func (m *monitor) seen(words ...string) []string {
	m.t.Helper()
	m.mu.Lock()
	m.marks++
	mark := fmt.Sprintf("mark %d", m.marks)
	m.mu.Unlock()
	if _, err := m.server.Do("ECHO", mark); err != nil {
		m.t.Fatal(err)
	}
	var found []string
	servertest.Eventually(m.t, patience, "the monitor's "+mark, func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()

		found = found[:0]
		for _, line := range m.lines {
			if strings.Contains(line, strconv.Quote(mark)) {
				return true
			}
			if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(strings.ToLower(line), strings.ToLower(w)) }) {
				found = append(found, line)
			}
		}
		return false
	})
	return found
}

// tally counts the renewals that a process sends, by claim, and can be asked at any time.
type tally struct {
	driver.Store

	mu     sync.Mutex
	counts map[string]int // by the claim's ID
	leaves map[string]int // by the claim's ID, answered
	late   []string       // IDs that were renewed after their leave was answered
}

func (s *tally) Renew(ctx context.Context, refs []driver.Ref) []driver.Outcome {
	s.mu.Lock()
	for _, ref := range refs {
		s.counts[ref.Token.ID]++
		if s.leaves[ref.Token.ID] > 0 {
			s.late = append(s.late, ref.Token.ID)
		}
	}
	s.mu.Unlock()
	return s.Store.Renew(ctx, refs)
}

func (s *tally) Leave(ctx context.Context, name, id string, ticket uint64, seal lease.Seal) (lease.Standing, error) {
	st, err := s.Store.Leave(ctx, name, id, ticket, seal)
	if err == nil {
		s.mu.Lock()
		s.leaves[id]++
		s.mu.Unlock()
	}
	return st, err
}

func tallied(s driver.Store) *tally {
	return &tally{Store: s, counts: make(map[string]int), leaves: make(map[string]int)}
}

// afterLeave is the IDs that were renewed though they had left.
func (s *tally) afterLeave() []string {
	s.mu.Lock()
	defer s.mu.Unlock()

	return slices.Clone(s.late)
}

func (s *tally) renewals(id string) int {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.counts[id]
}

// renewed waits until the hold has been renewed n more times: the one clock here that runs
// with the product's.
func (s *tally) renewed(t *testing.T, held *redlatch.Held, n int) {
	t.Helper()
	id := claimID(held)
	want := s.renewals(id) + n
	servertest.Eventually(t, patience, fmt.Sprintf("%d renewals of %q", n, held.Name()), func() bool {
		if !held.Valid() {
			t.Fatalf("the hold of %q ended: %v", held.Name(), context.Cause(held.Context()))
		}
		return s.renewals(id) >= want
	})
}

func claimID(held *redlatch.Held) string {
	id, _, _ := strings.Cut(held.Token(), ".")
	return id
}

// partVariable tells a process that it is one of a case, and what to do.
const partVariable = "REDLATCH_CASES_PART"

// part is what another process does.
type part struct {
	Do      string // hold, spin, churn, draw
	Redis   string // the server's address, or
	Dir     string // filestore's directory
	Name    string
	TTL     time.Duration
	NoRenew bool
}

// play is one of the other processes. It ends with its standard input at the latest, so
// that none outlives the test.
func play(text string) error {
	var p part
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return err
	}
	if p.Do == "draw" {
		for range drawn {
			fmt.Println(lease.NewID())
		}
		return nil
	}
	store, err := p.store()
	if err != nil {
		return err
	}
	locks, err := redlatch.New(store, redlatch.Config{Owner: redlatch.Owner{Name: "child"}})
	if err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	if p.Do == "churn" {
		return churn(locks, p)
	}
	held, err := locks.Lock(context.Background(), p.Name, redlatch.Options{TTL: p.TTL, NoRenew: p.NoRenew})
	if err != nil {
		return err
	}
	fmt.Println("held", held.Token())
	if p.Do == "spin" {
		return spin(held, p)
	}
	<-held.Context().Done()
	fmt.Println("ended", context.Cause(held.Context()))
	fmt.Println("unlocked", held.Unlock())
	select {}
}

func (p part) store() (driver.Store, error) {
	if p.Dir != "" {
		return filestore.New(p.Dir, filestore.Options{})
	}
	return redisstore.New(redis.NewClient(&redis.Options{Addr: p.Redis}), redisstore.Options{})
}

// A child is another process of a case.
type child struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines chan string
}

func start(t *testing.T, p part, env ...string) *child {
	t.Helper()
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	group, err := servertest.NewGroup()
	if err != nil {
		t.Fatal(err)
	}
	c := &child{t: t, cmd: exec.Command(os.Args[0]), lines: make(chan string, 1<<20)}
	c.cmd.Env = append(os.Environ(), append(env, partVariable+"="+string(text))...)
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: group.ID()}
	c.cmd.Stderr = os.Stderr
	if _, err := c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(c.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			c.lines <- s.Text()
		}
	})
	t.Cleanup(func() {
		group.End()
		reading.Wait()
		_ = c.cmd.Wait()
	})
	return c
}

// says waits for the child's next line, which has to begin like that, and returns the rest.
func (c *child) says(begin string) string {
	c.t.Helper()
	select {
	case line, ok := <-c.lines:
		rest, is := strings.CutPrefix(line, begin)
		if !is {
			c.t.Fatalf("the other process says %q (%v), wanted %q", line, ok, begin)
		}
		return strings.TrimSpace(rest)
	case <-time.After(patience):
		c.t.Fatalf("the other process does not say %q", begin)
	}
	return ""
}

func (c *child) signal(s syscall.Signal) {
	c.t.Helper()
	if err := c.cmd.Process.Signal(s); err != nil {
		c.t.Fatalf("%v: %v", s, err)
	}
}
