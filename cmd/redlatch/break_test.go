//go:build unix

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redlatch/redlatch/internal/servertest"
)

// fenceOf is the fence of the lock's holder.
func fenceOf(t *testing.T, store, name string) string {
	t.Helper()
	doc := document(t, start(t, store, "who", "--json", name).want(0).out.String())
	return fmt.Sprintf("%.0f", doc["holders"].([]any)[0].(map[string]any)["fence"])
}

func TestBreakInAScript(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, store string) {
		log := filepath.Join(t.TempDir(), "audit")
		has(t, start(t, store, "break", "--yes", "--reason", "r", "x").want(0).err.String(), "x is already free")
		token := acquired(t, store, "--ttl", "1h", "--owner", evil, "x")
		for _, c := range []struct {
			args []string
			says string
		}{
			{[]string{"x"}, "--fence or --yes is missing"},
			{[]string{"x", "--yes"}, "--reason is missing"},
			{[]string{"x", "--fence", "1"}, "--reason is missing"},
			{[]string{"x", "--now", "--take", "--yes", "--reason", "r"}, "exclude each other"},
			{[]string{"x", "--for", "1h", "--yes", "--reason", "r"}, "--take is missing"},
			{[]string{"x", "--yes", "--reason", strings.Repeat("r", 2000)}, "1000 is the most"},
			{[]string{"x", "--yes", "--reason", "r", "--audit-log", "/nowhere/x"}, "nothing was done"},
		} {
			has(t, start(t, store, append([]string{"break"}, c.args...)...).want(codeUsage).err.String(), c.says)
		}
		other := start(t, store, "break", "--fence", "1", "--reason", "r", "x").want(codeHeld)
		has(t, other.err.String(), "no hold of x has fence 1; now held by me", "nothing was done")
		has(t, start(t, store, "break", "--dry-run", "x").want(0).err.String(), "nothing was done (--dry-run)")
		start(t, store, "renew", "--ttl", "1h", "x", token).want(0)

		fence := fenceOf(t, store, "x")
		p := start(t, store, "break", "--fence", fence, "--reason", "dead\x1b mount", "--owner", "ops", "--audit-log", log, "x").want(0)
		has(t, p.err.String(), "broken: x, fence "+fence+", audit ", "its holder has up to")
		has(t, start(t, store, "who", "x").want(0).out.String(), "broken by ops (dead")
		has(t, start(t, store, "break", "--yes", "--reason", "r", "x").want(codeHeld).err.String(), "nobody holds x, but it is closed for", "nothing was done")
		has(t, start(t, store, "renew", "x", token).want(codeLost).err.String(), "broken by ops", "dead")
		start(t, store, "run", "x", "--", "true").want(codeHeld)
		start(t, store, "release", "x", token).want(0) // the answer
		start(t, store, "run", "x", "--", "true").want(0)

		acquired(t, store, "--ttl", "1h", "x")
		doc := document(t, start(t, store, "break", "--json", "--yes", "--now", "--reason", "r", "--audit-log", log, "x").want(0).out.String())
		if doc["schema"] != "redlatch.audit/v1" || doc["outcome"] != "broken" || doc["mode"] != "now" || doc["may_work_ms"].(float64) < 3500_000 {
			t.Errorf("break says %v", doc)
		}
		start(t, store, "run", "x", "--", "true").want(0)
		acquired(t, store, "--ttl", "1h", "x")
		has(t, start(t, store, "break", "--yes", "--now", "--reason", "r", "x").want(0).err.String(), "possible overlap: the holder may be at work for")

		lines, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		records := strings.Split(strings.TrimSpace(string(lines)), "\n")
		if len(records) != 2 {
			t.Fatalf("the audit log has %q", lines)
		}
		first := document(t, records[0])
		old := first["old"].(map[string]any)
		if first["reason"] != "dead\x1b mount" || first["mode"] != "answer" || old["owner"] != evil || first["by"].(map[string]any)["user"] != "ops" || first["via"] != "cli" || first["id"] == "" {
			t.Errorf("the record is %v", first)
		}
		if info, err := os.Stat(log); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the audit log is %v, %v", info.Mode(), err)
		}
		for _, text := range []string{p.err.String(), other.err.String()} {
			if strings.ContainsAny(text, "\x1b\u202e") || strings.Contains(text, token[:22]) {
				t.Errorf("it prints %q", text)
			}
		}
	})
}

// TestTheBrokenCommandStopsBeforeOthersStart: break keeps the promise of no overlap.
func TestTheBrokenCommandStopsBeforeOthersStart(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, store string) {
		marks := filepath.Join(t.TempDir(), "marks")
		holder := start(t, store, "run", "--ttl", "6s", "--grace", "1s", "x", "--", "sh", "-c", "trap 'echo stopped >>"+marks+"; exit 3' TERM; echo started; while :; do sleep 0.05; done")
		holder.says(&holder.out, "started")
		waiter := start(t, store, "run", "-w", "1m", "x", "--", "sh", "-c", "echo next >>"+marks)
		waiter.says(&waiter.err, "waiting for x")
		start(t, store, "break", "--yes", "--reason", "it hangs", "--owner", "ops", "x").want(0)
		holder.want(codeLost)
		has(t, holder.err.String(), "broken by ops")
		waiter.want(0)
		if text, err := os.ReadFile(marks); err != nil || string(text) != "stopped\nnext\n" {
			t.Errorf("it went %q, %v", text, err)
		}
	})
}

func TestBreakAndTake(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, store string) {
		token := acquired(t, store, "--ttl", "8s", "x") // longer than what is looked at before it ends
		waiter := start(t, store, "run", "-w", "1m", "x", "--", "true")
		waiter.says(&waiter.err, "waiting for x")
		p := start(t, store, "break", "--take", "--for", "1h", "--yes", "--reason", "mine", "--owner", "ann", "x").want(0)
		has(t, p.err.String(), "x is closed to everybody for 1h", "redlatch hold --end x")
		has(t, start(t, store, "renew", "x", token).want(codeLost).err.String(), "broken by ann")
		has(t, start(t, store, "hold", "--end", "--owner", "ann", "x").want(codeHeld).err.String(), "may still be at work for")
		has(t, start(t, store, "hold", "--end", "--owner", "bob", "x").want(codeHeld).err.String(), "no reservation of bob", "by ann (mine)")
		servertest.Eventually(t, patience, "the broken lease to end", func() bool {
			return start(t, store, "hold", "--end", "--owner", "ann", "x").code() == 0
		})
		waiter.want(0)
		start(t, store, "is-held", "x").want(codeFree)
	})
}

func TestBreakOfAReservationLetsOthersIn(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, store string) {
		start(t, store, "hold", "--for", "2h", "--owner", "ann", "x").want(0)
		start(t, store, "break", "--yes", "--reason", "she has left", "x").want(0)
		start(t, store, "run", "x", "--", "true").want(0)
	})
}

func TestBreakOfAForeignHolder(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t, servertest.RedisConfig{})
	if _, err := server.Do("SET", "lock:x", "0123456789abcdef", "PX", "60000"); err != nil {
		t.Fatal(err)
	}
	p := start(t, server.URL(), "break", "--yes", "--reason", "r", "x").want(codeUsage)
	has(t, p.err.String(), "redlatch keys x")
	if strings.Contains(p.err.String(), "0123456789abcdef") {
		t.Errorf("it prints the other's token: %q", p.err.String())
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t, servertest.RedisConfig{})
	token := acquired(t, server.URL(), "--ttl", "1h", "a{b}c")
	doc := document(t, start(t, server.URL(), "keys", "--json", "a{b}c").want(0).out.String())
	keys := doc["keys"].([]any)
	if doc["schema"] != "redlatch.keys/v1" || len(keys) != 5 {
		t.Fatalf("keys says %v", doc)
	}
	if value, err := server.Do("GET", keys[0].(map[string]any)["key"].(string)); err != nil || value != token {
		t.Errorf("the first key has %v, %v", value, err)
	}
	waiter := start(t, server.URL(), "run", "-w", "1m", "a{b}c", "--", "true")
	waiter.says(&waiter.err, "waiting for")
	for i, want := range []string{"string", "zset", "hash", "string"} {
		if kind, err := server.Do("TYPE", keys[i].(map[string]any)["key"].(string)); err != nil || kind != want || want != keys[i].(map[string]any)["type"] {
			t.Errorf("%v is a %v, %v", keys[i], kind, err)
		}
	}
	has(t, start(t, server.URL(), "keys", "a{b}c").want(0).out.String(), `"lock:a{b}c\x01q"`)
	start(t, "redis://127.0.0.1:1", "keys", "x").want(0) // no server is asked

	dir := t.TempDir()
	acquired(t, "file:"+dir, "--ttl", "1h", "A/b")
	out := start(t, "file:"+dir, "keys", "--json", "A/b").want(0).out.String()
	path := document(t, out)["keys"].([]any)[0].(map[string]any)["key"].(string)
	if _, err := os.Stat(path); err != nil {
		t.Errorf("%v, from %q", err, out)
	}
}
