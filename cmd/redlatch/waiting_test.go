//go:build unix

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/redlatch/redlatch/internal/servertest"
)

// TestRetryStart has the server come only after the command was asked for.
func TestRetryStart(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t, servertest.RedisConfig{})
	server.Kill()
	for _, flags := range [][]string{
		{"--retry-start", "30"},
		{"--retry-start", "0", "--on-unavailable", "wait"},
		{"--retry-start", "0", "--on-unavailable", "wait", "-w", "30"},
	} {
		p := start(t, server.URL(), append(append([]string{"run"}, flags...), "x", "--", "sh", "-c", "exit 4")...)
		p.says(&p.err, "; trying ")
		server.Restart()
		p.want(4)
		has(t, p.err.String(), "redis://"+server.Addr()+"/0: the store is unavailable: ", "connection refused")
		server.Kill()
	}
}

func TestRunWhereTheStoreIsAway(t *testing.T) {
	t.Parallel()
	away := "redis://127.0.0.1:1"
	p := start(t, away, "run", "--retry-start", "0.7", "x", "--", "echo", "ran").want(codeUnavailable)
	has(t, p.err.String(), "trying for 700ms", "nothing was run")
	p = start(t, away, "run", "-w", "0.5", "x", "--", "echo", "ran").want(codeUnavailable)
	has(t, p.err.String(), "trying for 10s", "nothing was run")

	file := filepath.Join(t.TempDir(), "result")
	p = start(t, away, "run", "--retry-start", "0", "--on-unavailable", "run", "--result-file", file, "-c", `echo "ran ${REDLATCH_HELD-without}"; exit 6`, "x").want(6)
	has(t, p.out.String(), "ran without")
	has(t, p.err.String(), "running WITHOUT THE LOCK")
	text, err := os.ReadFile(file)
	if doc := document(t, string(text)); err != nil || doc["outcome"] != "unlocked_run" || doc["exit_code"] != 6.0 || doc["error"] != nil {
		t.Errorf("the result is %q, %v", text, err)
	}
	p = start(t, away, "run", "--retry-start", "0", "--on-unavailable", "panic", "x", "--", "true").want(codeUsage)
	has(t, p.err.String(), "none of fail, wait and run")
}

// TestAServerThatHangs does not answer, and does not refuse.
func TestAServerThatHangs(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t, servertest.RedisConfig{})
	server.Stop()
	p := start(t, server.URL(), "run", "--retry-start", "1", "x", "--", "echo", "ran").want(codeUnavailable)
	has(t, p.err.String(), "nothing was run")
	if p.out.String() != "" {
		t.Error("it ran")
	}
	server.Continue()
}

// TestDeniedIsNotAway: a password does not become right by trying.
func TestDeniedIsNotAway(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t, servertest.RedisConfig{Password: "right"})
	for _, action := range []string{"fail", "wait", "run"} {
		p := start(t, "redis://:wrong@"+server.Addr(), "run", "--retry-start", "0", "--on-unavailable", action, "x", "--", "echo", "ran").want(codeDenied)
		if p.out.String() != "" {
			t.Error("it ran")
		}
	}
}

// TestWhatCannotRunIsFoundBeforeTheLock: the store is not even asked.
func TestWhatCannotRunIsFoundBeforeTheLock(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	script := filepath.Join(dir, "script")
	if err := os.WriteFile(script, []byte("#!"+dir+"/none -x\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for command, code := range map[string]int{"no-such-command-here": 127, dir: 126, script: 126} {
		start(t, "redis://127.0.0.1:1", "run", "x", "--", command).want(code)
	}
}
