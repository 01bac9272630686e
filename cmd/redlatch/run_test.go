//go:build unix

package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/redlatch/redlatch/internal/servertest"
)

func TestExitCodes(t *testing.T) {
	t.Parallel()
	store := redisURL(t)
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, []byte("exit 5\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(dir, "data")
	if err := os.WriteFile(data, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		why  string
		code int
		args string
		says string // on stderr; "" is nothing at all
	}{
		{"success", 0, "run a -- true", ""},
		{"success without dashes", 0, "run a true", ""},
		{"dashes before the name", 0, "run -- a true", ""},
		{"the command's flags are the command's", 0, "run a true -n --wait --nonsense", ""},
		{"the command's own code", 7, "run a -- sh -c exit${IFS}7", ""},
		{"the command's own 75", 75, "run -c exit${IFS}75 a", ""},
		{"a script without #!", 5, "run a -- " + plain, ""},
		{"the command was killed", 137, "run -c kill${IFS}-9${IFS}$$ a", ""},
		{"the command was terminated", 143, "run -c kill${IFS}$$ a", ""},
		{"no command", 64, "run a", "the command is missing"},
		{"no name", 64, "run", "the name of the lock is missing"},
		{"no such command of ours", 64, "wo a", "did you mean redlatch who?"},
		{"a bad name", 64, "run a//b -- true", `"//"`},
		{"an empty name", 64, "run  -- true", "is empty"},
		{"a flag behind the name", 64, "run a -w 5 -- true", "flags stand before"},
		{"an unknown flag", 64, "run --wiat 5 a -- true", "did you mean --wait?"},
		{"an unknown short flag", 64, "run -x a -- true", "no flag -x"},
		{"a bad length of time", 64, "run -w soon a -- true", "no length of time"},
		{"a bad exit code", 64, "run -E 600 a -- true", "0 to 255"},
		{"contradicting flags", 64, "run -n -w 5 a -- true", "exclude each other"},
		{"command twice", 64, "run -c true a -- true", "both -c and a command"},
		{"a short lease", 64, "run --ttl 10s a -- true", "3 x (5s + 1s) = 18s"},
		{"a bad reaction", 64, "run --on-lost panic a -- true", "none of term, kill, warn"},
		{"a bad label", 64, "run --label x a -- true", "key=value"},
		{"an unknown store", 64, "--store mysql://h run a -- true", "there is no store mysql://"},
		{"a store that is not there yet", 64, "--store redlock://a,b,c run a -- true", "not there yet"},
		{"a typing mistake in the store", 64, "--store redis://h?prefx=x run a -- true", "did you mean prefix?"},
		{"a variable that is not set", 64, "--store env:NO_SUCH who a", "is not set"},
		{"a store that is away", 69, "--store redis://127.0.0.1:1 run --retry-start 0 a -- true", "nothing was run"},
		{"is a store that is away held", 69, "--store redis://127.0.0.1:1 is-held a", "unavailable"},
		{"a file that is no program", 126, "run a -- " + data, "may not be executed"},
		{"a directory", 126, "run a -- " + dir, "is a directory"},
		{"no such file", 127, "run a -- " + dir + "/none", "there is no such file"},
		{"no such command", 127, "run a -- no-such-command-here", "no such command in PATH"},
		{"the limit of its time", 124, "run --max-runtime 0.1 a -- sleep 100", "--max-runtime"},
		{"a number that looks like another unit", 0, "run --ttl 5000 a -- true", "5000 is seconds (1h23m)"},
	} {
		t.Run(c.why, func(t *testing.T) {
			args := strings.Split(c.args, " ")
			p := start(t, store, args...).want(c.code)
			has(t, p.err.String(), c.says)
			if c.says == "" && p.err.String() != "" {
				t.Errorf("%q prints %q", c.args, p.err.String())
			}
			if p.out.String() != "" {
				t.Errorf("%q prints %q on stdout", c.args, p.out.String())
			}
		})
	}
	start(t, store, "is-held", "a").want(codeFree)
}

func TestTheConflictNamesTheHolder(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, store string) {
		holder := start(t, store, "run", "--owner", "ci", "deploy/prod", "--", "sh", "-c", "echo started; exec sleep 100")
		holder.says(&holder.out, "started")
		host, err := os.Hostname()
		if err != nil {
			t.Fatal(err)
		}
		p := start(t, store, "run", "deploy/prod", "--", "true").want(codeHeld)
		has(t, p.err.String(), "deploy/prod is held by ci on "+host, "pid "+strconv.Itoa(holder.cmd.Process.Pid), `"sh"`,
			" for ", "expires in", "not waiting (use -w 10m to wait; redlatch who deploy/prod)")

		start(t, store, "run", "-E", "3", "deploy/prod", "--", "true").want(3)
		start(t, store, "run", "--skip-ok", "deploy/prod", "--", "true").want(0)
		if p := start(t, store, "run", "-q", "deploy/prod", "--", "true").want(codeHeld); p.err.String() != "" {
			t.Errorf("-q prints %q", p.err.String())
		}
		p = start(t, store, "run", "-w", "0.4", "deploy/prod", "--", "true").want(codeHeld)
		has(t, p.err.String(), "waiting for deploy/prod - held by ci", "gave up after 400ms")

		file := filepath.Join(t.TempDir(), "result")
		p = start(t, store, "run", "--json", "--result-file", file, "deploy/prod", "--", "true").want(codeHeld)
		doc := document(t, p.err.String())
		if doc["schema"] != "redlatch.run/v1" || doc["outcome"] != "held" || doc["exit_code"] != nil {
			t.Errorf("the result is %v", doc)
		}
		if holder, ok := doc["holder"].(map[string]any); !ok || holder["owner"] != "ci" || holder["host"] != host {
			t.Errorf("the result's holder is %v", doc["holder"])
		}
		if e, ok := doc["error"].(map[string]any); !ok || e["code"] != "held" {
			t.Errorf("the result's error is %v", doc["error"])
		}
		text, err := os.ReadFile(file)
		if err != nil || document(t, string(text))["outcome"] != "held" {
			t.Errorf("the result file has %q, %v", text, err)
		}
	})
}

func TestTheResultOfARun(t *testing.T) {
	t.Parallel()
	p := start(t, redisURL(t), "run", "--json", "a", "--", "sh", "-c", "echo data; exit 4").want(4)
	if p.out.String() != "data\n" {
		t.Errorf("stdout is %q: it is the command's", p.out.String())
	}
	doc := document(t, p.err.String())
	if doc["outcome"] != "ran" || doc["exit_code"] != 4.0 || doc["error"] != nil || doc["holder"] != nil {
		t.Errorf("the result is %v", doc)
	}
	for _, field := range []string{"name", "signal", "wait_ms", "held_ms", "fence", "started_at", "finished_at", "renewals", "store"} {
		if _, ok := doc[field]; !ok {
			t.Errorf("the result lacks %s: %v", field, doc)
		}
	}
	for _, field := range []string{"started_at", "finished_at"} {
		if _, err := time.Parse(time.RFC3339, doc[field].(string)); err != nil {
			t.Error(err)
		}
	}
}

// TestNoTwoAtOnce has each command write when it begins and when it ends.
func TestNoTwoAtOnce(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, store string) {
		log := filepath.Join(t.TempDir(), "log")
		var all []*proc
		for range 6 {
			all = append(all, start(t, store, "run", "-w", "forever", "-c", "echo in >>"+log+"; sleep 0.05; echo out >>"+log, "x"))
		}
		for _, p := range all {
			p.want(0)
		}
		text, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		if want := strings.Repeat("in\nout\n", len(all)); string(text) != want {
			t.Errorf("they wrote %q, want %q", text, want)
		}
	})
}

func TestWaitingEndsWithASignal(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, store string) {
		holder := start(t, store, "run", "x", "--", "sh", "-c", "echo started; exec sleep 100")
		holder.says(&holder.out, "started")
		for sig, code := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143, syscall.SIGHUP: 129} {
			p := start(t, store, "run", "-w", "forever", "x", "--", "true")
			p.says(&p.err, "waiting for x")
			p.signal(sig)
			p.want(code)
		}
		doc := document(t, start(t, store, "who", "--json", "x").want(0).out.String())
		if waiters := doc["waiters"].([]any); len(waiters) != 0 {
			t.Errorf("they still wait: %v", waiters)
		}
	})
}

// A redlatch inside the command locks where we do, or not at all.
func TestARunInsideARun(t *testing.T) {
	t.Parallel()
	open, closed := servertest.Redis(t, servertest.RedisConfig{}), servertest.Redis(t, servertest.RedisConfig{Password: "pass-Word9"})
	inner := binary + " is-held outer"
	startEnv(t, environ(), "--store", open.URL(), "run", "outer", "--", "sh", "-c", inner).want(0)
	p := startEnv(t, environ(urlVariable+"=redis://:pass-Word9@"+closed.Addr()), "run", "outer", "--", "sh", "-c", inner).want(codeDenied)
	has(t, p.err.String(), "NOAUTH")
}

func TestTheCommandsEnvironment(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t, servertest.RedisConfig{Password: "pass-Word9"})
	env := environ("MY_PW=pass-Word9", "MY_URL=redis://"+server.Addr()+"?password_env=MY_PW", urlVariable+"=redis://other", "KEPT=1", "REDLATCH_LOCK=old")
	p := startEnv(t, env, "--store", "env:MY_URL", "run", "--owner", "me", "--ttl", "40s", "a/b", "--", "env").want(0)
	got := "\n" + p.out.String()
	has(t, got, "\nKEPT=1\n", "\nREDLATCH_HELD=1\n", "\nREDLATCH_LOCK=a/b\n", "\nREDLATCH_FENCE=", "\nREDLATCH_OWNER=me\n", "\nREDLATCH_TTL_MS=40000\n", "\nREDLATCH_LEASE=")
	for _, secret := range []string{"pass-Word9", urlVariable + "=redis://other", "MY_URL=", "MY_PW=", "REDLATCH_LOCK=old"} {
		if strings.Contains(got, secret) {
			t.Errorf("the command sees %q: %q", secret, got)
		}
	}
	has(t, got, "\n"+urlVariable+"=redis://"+server.Addr()+"?password_env=MY_PW\n")
	p = startEnv(t, env, "--store", "env:MY_URL", "run", "--no-env", "a/b", "--", "env").want(0)
	if got := p.out.String(); strings.Contains(got, "REDLATCH_HELD") || strings.Contains(got, "MY_PW=") || !strings.Contains(got, "REDLATCH_LOCK=old") {
		t.Errorf("with --no-env the command sees %q", got)
	}
}

func TestHoldAtLeast(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, store string) {
		start(t, store, "run", "--hold-at-least", "1m", "x", "--", "true").want(0)
		p := start(t, store, "run", "x", "--", "true").want(codeHeld)
		has(t, p.err.String(), "x is closed for", "--hold-at-least")
		has(t, start(t, store, "who", "x").want(0).out.String(), "x is closed for")
		start(t, store, "is-held", "x").want(0)
		if doc := document(t, start(t, store, "who", "--json", "x").want(0).out.String()); doc["state"] != "sealed" || doc["seal"] == nil {
			t.Errorf("who says %v", doc)
		}
	})
}

func TestOddNames(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, store string) {
		for _, name := range []string{"a b", "{", "}", "a{}b", "a%2Fb", "a/b", "é", "é", "..", ".", "*", "[x]", `'"$(id)`, strings.Repeat("n", 200), "日本/語"} {
			holder := start(t, store, "run", name, "sh", "-c", "echo started; read x")
			_ = holder // ends by itself: its input is empty
			holder.want(1)
			if holder.out.String() != "started\n" {
				t.Errorf("%q: %q", name, holder.err.String())
			}
			start(t, store, "is-held", name).want(codeFree)
		}
		for _, name := range []string{"", "/a", "a/", " a", "a\n", "a\x1b[2J", "a\u202eb", "\xff", strings.Repeat("n", 201)} {
			p := start(t, store, "run", name, "--", "true").want(codeUsage)
			if strings.ContainsAny(p.err.String(), "\x1b\u202e") || !utf8.ValidString(p.err.String()) {
				t.Errorf("%q is printed as it is: %q", name, p.err.String())
			}
		}
	})
}
