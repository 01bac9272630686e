//go:build unix

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/servertest"
)

// acquired takes a lock and returns its token.
func acquired(t *testing.T, store string, args ...string) string {
	t.Helper()
	p := start(t, store, append([]string{"acquire"}, args...)...).want(0)
	token := strings.TrimSuffix(p.out.String(), "\n")
	if token == "" || strings.ContainsAny(token, " \n") || p.err.String() != "" {
		t.Fatalf("acquire prints %q and says %q", p.out.String(), p.err.String())
	}
	return token
}

// withInput runs redlatch with something on its standard input.
func withInput(t *testing.T, store, input string, args ...string) *proc {
	t.Helper()
	p := &proc{t: t, cmd: exec.Command(binary, args...), ended: make(chan struct{})}
	p.cmd.Env, p.cmd.Stdin = environ(urlVariable+"="+store), strings.NewReader(input)
	p.run()
	return p
}

func withToken(t *testing.T, store, token string, args ...string) *proc {
	t.Helper()
	return startEnv(t, environ(urlVariable+"="+store, tokenVariable+"="+token), args...)
}

func TestAcquireRenewRelease(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, store string) {
		token := acquired(t, store, "--ttl", "1h", "--owner", "me", "--note", "by hand", "jobs/x")
		has(t, start(t, store, "who", "jobs/x").want(0).out.String(), "jobs/x is HELD", "holder   me", "note     by hand", fmt.Sprintf("pid %d", os.Getpid()))
		has(t, start(t, store, "acquire", "jobs/x").want(codeHeld).err.String(), "jobs/x is held by me", "-w 10m")
		start(t, store, "acquire", "-E", "3", "jobs/x").want(3)
		waited := start(t, store, "acquire", "-w", "0.4", "jobs/x").want(codeHeld)
		has(t, waited.err.String(), "waiting for jobs/x - held by me", "gave up after 400ms")

		for _, renew := range []*proc{
			start(t, store, "renew", "--ttl", "2h", "jobs/x", token),
			withToken(t, store, token, "renew", "jobs/x"),
			withInput(t, store, token+"\n", "renew", "jobs/x", "-"),
		} {
			if renew.want(0); renew.out.String()+renew.err.String() != "" {
				t.Errorf("renew prints %q and %q", renew.out.String(), renew.err.String())
			}
		}
		doc := document(t, start(t, store, "renew", "--json", "--ttl", "30m", "jobs/x", token).want(0).out.String())
		if doc["schema"] != "redlatch.hold/v1" || doc["name"] != "jobs/x" || doc["owner"] != "me" || doc["token"] != nil || doc["fence"].(float64) < 1e15 {
			t.Errorf("renew says %v", doc)
		}
		h := document(t, start(t, store, "who", "--json", "jobs/x").want(0).out.String())["holders"].([]any)[0].(map[string]any)
		if left := h["ttl_left_ms"].(float64); left < 1.9*3600_000 {
			t.Errorf("a shorter renewal has shortened the lease to %v ms", left)
		}

		if p := start(t, store, "release", "jobs/x", token).want(0); p.out.String()+p.err.String() != "" {
			t.Errorf("release prints %q and %q", p.out.String(), p.err.String())
		}
		start(t, store, "is-held", "jobs/x").want(codeFree)
		again := start(t, store, "release", "jobs/x", token).want(0)
		has(t, again.err.String(), "was not held any more")
		doc = document(t, start(t, store, "release", "--json", "jobs/x", token).want(0).out.String())
		if doc["schema"] != "redlatch.release/v1" || doc["outcome"] != "not_held" {
			t.Errorf("release says %v", doc)
		}
		lost := start(t, store, "renew", "jobs/x", token).want(codeLost)
		has(t, lost.err.String(), "lost", "redlatch who jobs/x")

		other := acquired(t, store, "--owner", "other", "jobs/x")
		has(t, start(t, store, "renew", "jobs/x", token).want(codeLost).err.String(), "other")
		p := start(t, store, "release", "jobs/x", token).want(codeHeld)
		has(t, p.err.String(), "not held with this token, but by other", "nothing was released")
		if said := lost.err.String() + p.err.String(); strings.Contains(said, token[:22]) || strings.Contains(said, other[:22]) {
			t.Errorf("a message has a token: %q", said)
		}
		withToken(t, store, other, "release", "jobs/x").want(0)
		start(t, store, "is-held", "jobs/x").want(codeFree)
	})
}

func TestAnAcquiredLockEndsWithItsTTL(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, store string) {
		token := acquired(t, store, "--ttl", "700ms", "x")
		start(t, store, "is-held", "x").want(0)
		next := acquired(t, store, "-w", "20", "--ttl", "1m", "-q", "x")
		has(t, start(t, store, "renew", "x", token).want(codeLost).err.String(), "lost", "taken")
		withInput(t, store, next, "release", "x", "-").want(0)
	})
}

func TestWhoWaitsForAnAcquireAndIsToldToEnd(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, store string) {
		token := acquired(t, store, "--ttl", "1h", "x")
		p := start(t, store, "acquire", "-w", "forever", "x")
		p.says(&p.err, "waiting for x").signal(syscall.SIGTERM)
		if p.want(128 + int(syscall.SIGTERM)); p.out.String() != "" {
			t.Errorf("it prints %q", p.out.String())
		}
		start(t, store, "release", "x", token).want(0)
		start(t, store, "is-held", "x").want(codeFree)
	})
}

// TestAShellEvaluatesAcquire is the script that people write.
func TestAShellEvaluatesAcquire(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, store string) {
		script := `
			eval "$("$REDLATCH" acquire --export --ttl 1h --owner "o'brien" "a b")" || exit
			echo "$REDLATCH_LOCK|$REDLATCH_OWNER|$REDLATCH_HELD|$REDLATCH_TTL_MS|$REDLATCH_FENCE"
			"$REDLATCH" renew "a b" && echo renewed
			"$REDLATCH" release other; echo "other $?"
			(eval "$("$REDLATCH" acquire --export "a b" 2>/dev/null)") ; echo "second $?"
			"$REDLATCH" release "a b"; echo "released $?"
			"$REDLATCH" is-held "a b"; echo "held $?"`
		out := shellRun(t, store, script)
		has(t, out, "a b|o'brien|1|3600000|", "renewed\n", "other 64\n", "second 75\n", "released 0\n", "held 1\n")
	})
}

func shellRun(t *testing.T, store, script string) string {
	t.Helper()
	cmd := exec.Command("sh", "-c", script)
	cmd.Env = environ(urlVariable+"="+store, "REDLATCH="+binary)
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("%v, having printed %q", err, out)
	}
	return string(out)
}

// TestTheKeeperEndsWithTheProcess: it renews past the TTL, and releases at once when the
// process has ended, however that was.
func TestTheKeeperEndsWithTheProcess(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, store string) {
		user := exec.Command("sleep", "1000")
		if err := user.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = user.Process.Kill() }()
		pid := strconv.Itoa(user.Process.Pid)
		doc := document(t, start(t, store, "acquire", "--json", "--for-pid", pid, "--ttl", "1s", "x").want(0).out.String())
		keeper := int(doc["keeper_pid"].(float64))
		defer func() {
			if stillRuns(keeper) {
				_ = syscall.Kill(keeper, syscall.SIGKILL)
			}
		}()
		args, err := exec.Command("ps", "-ww", "-o", "args=", "-p", strconv.Itoa(keeper)).Output()
		if err != nil || strings.Contains(string(args), doc["token"].(string)[:22]) || !strings.Contains(string(args), "keep") {
			t.Errorf("ps shows %q, %v", args, err)
		}
		until := time.Now().Add(2 * time.Second)
		servertest.Eventually(t, patience, "two TTLs to pass", func() bool {
			start(t, store, "is-held", "x").want(0)
			return time.Now().After(until)
		})
		has(t, start(t, store, "who", "x").want(0).out.String(), "pid "+pid)
		_ = user.Process.Kill()
		_, _ = user.Process.Wait()
		servertest.Eventually(t, patience, "the lock to be free", func() bool { return start(t, store, "is-held", "x").code() == codeFree })
		servertest.Eventually(t, patience, "the keeper to end", func() bool { return !stillRuns(keeper) })
	})
}

// stillRuns reports whether a process runs; one that nobody has waited for does not.
func stillRuns(pid int) bool {
	stat, err := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
	return err == nil && !strings.HasPrefix(strings.TrimSpace(string(stat)), "Z")
}

func TestTheKeeperEndsWhenTheLockIsReleased(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, store string) {
		doc := document(t, start(t, store, "acquire", "--json", "--for-pid", strconv.Itoa(os.Getpid()), "--ttl", "1s", "x").want(0).out.String())
		keeper := int(doc["keeper_pid"].(float64))
		withToken(t, store, doc["token"].(string), "release", "x").want(0)
		servertest.Eventually(t, patience, "the keeper to end", func() bool { return !stillRuns(keeper) })
		start(t, store, "is-held", "x").want(codeFree)
	})
}

func TestAKilledKeeperLeavesTheLockToItsTTL(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, store string) {
		doc := document(t, start(t, store, "acquire", "--json", "--for-pid", strconv.Itoa(os.Getpid()), "--ttl", "2s", "x").want(0).out.String())
		if err := syscall.Kill(int(doc["keeper_pid"].(float64)), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		start(t, store, "acquire", "x").want(codeHeld)
		acquired(t, store, "-w", "20", "-q", "x")
	})
}

// TestCommandSubstitutionDoesNotWaitForTheKeeper: it has neither of its pipes.
func TestCommandSubstitutionDoesNotWaitForTheKeeper(t *testing.T) {
	t.Parallel()
	store := "file:" + t.TempDir()
	out := shellRun(t, store, `
		eval "$("$REDLATCH" acquire --for-pid $$ --export x 2>&1)" || exit
		"$REDLATCH" is-held x && echo held
		"$REDLATCH" who x | grep -c "pid $$"`)
	if out != "held\n1\n" {
		t.Errorf("it prints %q", out)
	}
	servertest.Eventually(t, patience, "the lock to be free", func() bool { return start(t, store, "is-held", "x").code() == codeFree })
}

// TestATokenThatCannotBePrintedIsNoHold: nobody could release it.
func TestATokenThatCannotBePrintedIsNoHold(t *testing.T) {
	t.Parallel()
	store := "file:" + t.TempDir()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		full, err = os.Open(os.DevNull) // not writable does as well
	}
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	cmd := exec.Command(binary, "acquire", "--ttl", "1h", "x")
	cmd.Env, cmd.Stdout = environ(urlVariable+"="+store), full
	_ = cmd.Run()
	if code := cmd.ProcessState.ExitCode(); code != codeInternal {
		t.Errorf("exit code %d", code)
	}
	start(t, store, "is-held", "x").want(codeFree)
}

func TestHold(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, store string) {
		start(t, store, "hold", "x").want(codeUsage)
		has(t, start(t, store, "hold", "x", "--for", "2h", "--owner", "ann", "--note", "db migration").want(0).err.String(), "x is reserved for ann for 2h")
		page := start(t, store, "who", "x").want(0).out.String()
		has(t, page, "x is RESERVED", "holder   ann", "redlatch hold", "note     db migration")
		if doc := document(t, start(t, store, "who", "--json", "x").want(0).out.String()); doc["state"] != "reserved" {
			t.Errorf("who says %v", doc)
		}
		start(t, store, "run", "x", "--", "true").want(codeHeld)
		start(t, store, "hold", "x", "--for", "1h", "--owner", "bob").want(codeHeld)
		has(t, start(t, store, "hold", "--end", "--owner", "bob", "x").want(codeHeld).err.String(), "x is no reservation of bob", "ann")
		has(t, start(t, store, "hold", "--end", "--owner", "ann", "x").want(0).err.String(), "not reserved any more")
		has(t, start(t, store, "hold", "--end", "--owner", "ann", "x").want(0).err.String(), "is not reserved")
		start(t, store, "run", "x", "--", "true").want(0)
		acquired(t, store, "x")
		start(t, store, "hold", "--end", "x").want(codeHeld)
	})
}

func TestWait(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, store string) {
		start(t, store, "wait", "x").want(0)
		token := acquired(t, store, "--ttl", "1h", "--owner", "me", "x")
		has(t, start(t, store, "wait", "--timeout", "0.1", "x").want(codeHeld).err.String(), "x is held by me", "gave up after 100ms")
		has(t, start(t, store, "wait", "--json", "--timeout", "0", "x").want(codeHeld).err.String(), `"code":"wait_timeout"`)
		p := start(t, store, "wait", "x")
		p.says(&p.err, "waiting for x - held by me")
		stopped := start(t, store, "wait", "x")
		stopped.says(&stopped.err, "waiting for x").signal(syscall.SIGINT)
		stopped.want(128 + int(syscall.SIGINT))
		start(t, store, "release", "x", token).want(0)
		p.want(0)
		start(t, store, "is-held", "x").want(codeFree)

		start(t, store, "run", "--hold-at-least", "1s", "y", "--", "true").want(0)
		has(t, start(t, store, "wait", "--timeout", "0", "y").want(codeHeld).err.String(), "y is closed for")
		start(t, store, "wait", "y").want(0)
	})
}

// TestTheStoreIsAway: each verb tells "no answer" from "held" and from "refused".
func TestTheStoreIsAway(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t, servertest.RedisConfig{Password: "Sw0rdfish-77"})
	token := acquired(t, server.URL(), "x")
	for _, c := range []struct {
		store string
		code  int
		kind  string
	}{
		{"redis://127.0.0.1:1", codeUnavailable, "unavailable"},
		{"redis://:Wr0ng@" + server.Addr(), codeDenied, "denied"},
		{"redis://" + server.Addr(), codeDenied, "denied"},
		{"file:/dev/null/x", codeUnavailable, "unavailable"},
	} {
		for _, args := range [][]string{
			{"acquire", "x"}, {"acquire", "-w", "1", "x"}, {"renew", "x", token}, {"release", "x", token}, {"wait", "x"},
			{"hold", "--for", "1m", "x"}, {"hold", "--end", "x"},
		} {
			p := start(t, c.store, append(args, "--json")...).want(c.code)
			if e, _ := document(t, p.err.String())["error"].(map[string]any); e["code"] != c.kind {
				t.Errorf("%s, %q: %v", c.store, args, e)
			}
			if p.out.String() != "" || strings.Contains(p.err.String(), token[:22]) || strings.Contains(p.err.String(), "Wr0ng") {
				t.Errorf("%s, %q: it prints %q and says %q", c.store, args, p.out.String(), p.err.String())
			}
		}
	}
}

func TestWhatIsRefusedBeforeAnythingIsSent(t *testing.T) {
	t.Parallel()
	store := "file:" + filepath.Join(t.TempDir(), "locks")
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"acquire"}, "the name of the lock is missing"},
		{[]string{"acquire", "a", "b"}, "one name is expected"},
		{[]string{"acquire", "/a"}, "/a"},
		{[]string{"acquire", "-n", "-w", "1", "a"}, "exclude each other"},
		{[]string{"acquire", "--json", "--export", "a"}, "exclude each other"},
		{[]string{"acquire", "--ttl", "soon", "a"}, "no length of time"},
		{[]string{"acquire", "-E", "600", "a"}, "from 0 to 255"},
		{[]string{"acquire", "--for-pid", "0x", "a"}, "for-pid"},
		{[]string{"acquire", "--for-pid", "-4", "a"}, "no process"},
		{[]string{"acquire", "--for-pid", "999999999", "a"}, "no such process"},
		{[]string{"acquire", "--label", "x", "a"}, "key=value"},
		{[]string{"acquire", "--ttl", "1ms", "a"}, "TTL"},
		{[]string{"renew", "a"}, "the token is missing"},
		{[]string{"renew", "a", ""}, "the token is empty"},
		{[]string{"renew", "a", "gibberish"}, "not a redlatch token"},
		{[]string{"release", "a", "gibberish"}, "not a redlatch token"},
		{[]string{"release", "a", "b", "c"}, "a name and a token are expected"},
		{[]string{"hold", "--end", "--for", "1h", "a"}, "exclude each other"},
		{[]string{"wait", "--timeout", "x", "a"}, "no length of time"},
		{[]string{"aquire", "a"}, "did you mean redlatch acquire?"},
	} {
		has(t, start(t, store, c.args...).want(codeUsage).err.String(), c.says)
	}
}
