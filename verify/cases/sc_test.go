//go:build unix

package cases

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/servertest"
	"github.com/redlatch/redlatch/redisstore"
)

func TestSC01AFlushedScriptCacheIsNotNoticed(t *testing.T) {
	t.Parallel()
	server := stateServer(t)
	a, b := stateProcess(t, server), stateProcess(t, server)
	flush := func() { stateDo(t, server, "SCRIPT", "FLUSH") }
	flush()
	held := stateTake(t, a, "n", redlatch.Options{HoldAtLeast: time.Millisecond})
	flush()
	if err := held.Renew(t.Context(), 0); err != nil {
		t.Error(err)
	}
	next := stateAsk(t.Context(), b, "n", redlatch.Options{})
	stateQueued(t, a, "n", 2)
	flush()
	stateUnlock(t, held) // hands over
	got := stateWait(t, next)
	flush()
	if err := got.Renew(t.Context(), 0); err != nil {
		t.Error(err)
	}
	flush()
	if _, err := a.Break(t.Context(), "n", redlatch.BreakOptions{Reason: "test"}); err != nil {
		t.Error(err)
	}
	flush()
	stateLeaveBroken(t, got)
	flush()
	stateUnlock(t, stateTake(t, b, "n", redlatch.Options{}))
	if v := stateDo(t, server, "GET", "lock:n"); v != nil {
		t.Errorf("it is still locked: %v", v)
	}
}

// A wrapping hook, as tracing libraries have them: errors come out inside others.
type stateTracer struct {
	mu   sync.Mutex
	errs []error
}

func (s *stateTracer) wrap(cmd redis.Cmder, err error) error {
	if err == nil || errors.Is(err, redis.Nil) {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()

	s.errs = append(s.errs, err)
	return fmt.Errorf("span %s: %w", cmd.Name(), err)
}

func (s *stateTracer) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *stateTracer) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return s.wrap(cmd, next(ctx, cmd))
	}
}

func (s *stateTracer) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			cmd.SetErr(s.wrap(cmd, cmd.Err()))
		}
		return err
	}
}

// stateWrapper is a client of a type that nobody but its author knows.
type stateWrapper struct{ redis.UniversalClient }

func TestSC02AMissingScriptIsSeenThroughWrappers(t *testing.T) {
	t.Parallel()
	server := stateServer(t)
	for name, wrap := range map[string]func(*redis.Client) redis.UniversalClient{
		"hook":            func(c *redis.Client) redis.UniversalClient { c.AddHook(&stateTracer{}); return c },
		"type":            func(c *redis.Client) redis.UniversalClient { return stateWrapper{c} },
		"hook under type": func(c *redis.Client) redis.UniversalClient { c.AddHook(&stateTracer{}); return stateWrapper{c} },
	} {
		t.Run(name, func(t *testing.T) {
			c := redis.NewClient(&redis.Options{Addr: server.Addr()})
			defer c.Close()
			s, err := redisstore.New(wrap(c), redisstore.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			l := stateLocker(t, s, redlatch.Config{})
			flush := func() { stateDo(t, server, "SCRIPT", "FLUSH") }
			flush()
			held := stateTake(t, l, name, redlatch.Options{})
			flush()
			if err := held.Renew(t.Context(), 0); err != nil {
				t.Error(err)
			}
			flush()
			stateUnlock(t, held)
		})
	}
}

// stateScripts returns what Redis is sent to run.
func stateScripts(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("../../redisstore/scripts/*.lua")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d scripts, %v", len(files), err)
	}
	texts := make(map[string]string)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		texts[filepath.Base(file)] = regexp.MustCompile(`--[^\n]*`).ReplaceAllString(string(text), "")
	}
	return texts
}

func TestSC04ScriptsSpeakThePlainDialect(t *testing.T) {
	t.Parallel()
	forbidden := regexp.MustCompile(`#!|replicate_commands|set_repl|redis\.(log|sha1hex|setresp|breakpoint)|\bserver\.|loadstring|\bos\.|\bio\.|cjson|cmsgpack|struct\.|\bgoto\b|//`)
	// Commands of Redis 4, and only those: with the keys that the call declares.
	known := strings.Fields("GET MGET SET DEL EXISTS PEXPIRE PTTL TIME ZADD ZREM ZSCORE ZCARD ZRANK ZRANGE ZREMRANGEBYSCORE HGET HSET HDEL HKEYS HEXISTS HGETALL PUBLISH PUBSUB SADD SREM")
	call := regexp.MustCompile(`redis\.p?call\(\s*'([A-Z]+)'\s*(?:,\s*([^,)]+))?`)
	declared := regexp.MustCompile(`^(lock|queue|about|last|sealed|stone|index|record|KEYS\[\w+\]|e\.channel|channel|channel \.\. '\.'|news|seals|'NUMSUB'|)$`)
	assigned := regexp.MustCompile(`(?m)^\s*([a-z_]+)(?:, [a-z_]+)* = `)
	for file, text := range stateScripts(t) {
		if strings.Contains(text, "acl_check_cmd") && !strings.Contains(text, "if not redis.acl_check_cmd then return") {
			t.Errorf("%s uses acl_check_cmd, which Redis 7.0 brought, without asking for it", file)
		}
		if found := forbidden.FindString(text); found != "" {
			t.Errorf("%s uses %q", file, found)
		}
		calls := call.FindAllStringSubmatch(text, -1)
		if n := strings.Count(text, "redis.call(") + strings.Count(text, "redis.pcall("); n != len(calls) {
			t.Errorf("%s: %d of %d calls can be read", file, len(calls), n)
		}
		for _, c := range calls {
			if !strings.Contains(" "+strings.Join(known, " ")+" ", " "+c[1]+" ") {
				t.Errorf("%s calls %s", file, c[1])
			}
			if !declared.MatchString(strings.TrimSpace(c[2])) {
				t.Errorf("%s: %s of %q, which is no declared key", file, c[1], c[2])
			}
		}
		for _, a := range assigned.FindAllStringSubmatch(text, -1) {
			whole := stateScripts(t)["prelude.lua"] + text
			if !regexp.MustCompile(`(?m)(local (\w+, )*|function \w*\([^)]*)\b` + a[1] + `\b`).MatchString(whole) {
				t.Errorf("%s assigns the global %s", file, a[1])
			}
		}
	}
}

// The bound of the report is 300 bytes a try, for a SET. Ours carries six keys and its
// owner: what must not be in it is the script.
func TestSC05NeitherATryNorAWaitSendsTheScript(t *testing.T) {
	t.Parallel()
	server := stateServer(t)
	received := func() int {
		n, err := strconv.Atoi(server.Info("stats")["total_net_input_bytes"])
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	a, b := stateProcess(t, server), stateProcess(t, server)
	held := stateTake(t, a, "n", redlatch.Options{})
	try := func() {
		if _, err := b.TryLock(t.Context(), "n", redlatch.Options{}); !errors.Is(err, redlatch.ErrHeld) {
			t.Fatal(err)
		}
	}
	try()
	const tries = 200
	before := received()
	for range tries {
		try()
	}
	if each := (received() - before) / tries; each > 1000 {
		t.Errorf("a try sends %d bytes", each)
	}
	// Those who poll because they can be told nothing.
	deaf := stateLocker(t, stateStore(t, &redis.Options{Addr: server.Addr()}, redisstore.Options{Poll: true}), redlatch.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const waiters = 100
	for range waiters {
		stateAsk(ctx, deaf, "n", redlatch.Options{})
	}
	stateQueued(t, a, "n", 1+waiters)
	stateDo(t, server, "CONFIG", "RESETSTAT")
	var polls, asked int
	servertest.Eventually(t, stateSoon, "ten polls", func() bool {
		stats := server.CommandStats()
		polls, asked = stats["evalsha"], asked+1
		return polls >= 10
	})
	const info = 100 // bytes that this test sends itself each time, generously
	if each := (received() - asked*info) / polls; each > 1500 {
		t.Errorf("a poll of a process with %d waiters sends %d bytes", waiters, each)
	}
	cancel()
	stateUnlock(t, held)
}
