//go:build unix

package main

import (
	"strings"
	"testing"

	"github.com/redlatch/redlatch/internal/servertest"
)

// evil is what somebody may call himself to play tricks on a terminal.
const evil = "me\x1b[31m\nroot\u202e"

func TestWhoAndLs(t *testing.T) {
	t.Parallel()
	eachQueue(t, func(t *testing.T, store string) {
		holder := start(t, store, "run", "--owner", evil, "--note", "no\x07te", "--label", "team=bi\x1b", "jobs/x", "--", "sh", "-c", "echo started; exec sleep 100")
		holder.says(&holder.out, "started")
		waiter := start(t, store, "run", "-w", "forever", "--owner", "second", "jobs/x", "--", "true")
		waiter.says(&waiter.err, "waiting for jobs/x")

		page := start(t, store, "who", "jobs/x").want(0)
		has(t, page.out.String(), "jobs/x is HELD\n", "holder   me", "pid ", "since ", "fence ", "labels team=bi", "note ", "waiting  second (")
		doc := document(t, start(t, store, "show", "--json", "jobs/x").want(0).out.String())
		if doc["schema"] != "redlatch.lock/v1" || doc["state"] != "held" || doc["mode"] != "exclusive" || doc["slots"] != 1.0 || doc["slots_used"] != 1.0 {
			t.Errorf("who says %v", doc)
		}
		h := doc["holders"].([]any)[0].(map[string]any)
		if h["owner"] != evil || h["command"] != "sh" || h["labels"].(map[string]any)["team"] != "bi\x1b" {
			t.Errorf("the holder is %v", h)
		}
		for _, field := range []string{"host", "pid", "acquired_at", "age_ms", "renewed_at", "expires_at", "ttl_left_ms", "ttl_ms", "fence"} {
			if _, ok := h[field]; !ok {
				t.Errorf("the holder lacks %s: %v", field, h)
			}
		}
		w := doc["waiters"].([]any)[0].(map[string]any)
		if w["owner"] != "second" || w["position"] != 1.0 || w["since"] == nil {
			t.Errorf("the waiter is %v", w)
		}

		// What a store lists may be half a second old.
		var table *proc
		servertest.Eventually(t, patience, "the lock in the list", func() bool {
			table = start(t, store, "ls", "jobs/").want(0)
			return strings.Contains(table.out.String(), "jobs/x")
		})
		has(t, table.out.String(), "NAME", "STATE", "HOLDER", "PID", "AGE", "TTL LEFT", "FENCE", "WAIT", "NOTE")
		has(t, table.err.String(), "1 lock, 1 waiter")
		list := document(t, start(t, store, "ls", "--json").want(0).out.String())
		if list["schema"] != "redlatch.locks/v1" || len(list["locks"].([]any)) != 1 {
			t.Errorf("ls says %v", list)
		}
		has(t, start(t, store, "ls", "other/").want(0).err.String(), "no locks are held under other/")
		start(t, store, "is-held", "jobs/x").want(0)

		conflict := start(t, store, "run", "jobs/x", "--", "true").want(codeHeld)
		for _, text := range []string{page.out.String(), table.out.String(), conflict.err.String(), waiter.err.String()} {
			if strings.ContainsAny(text, "\x1b\x07\u202e") || strings.Contains(text, "\nroot") {
				t.Errorf("what a stranger wrote is printed as it is: %q", text)
			}
		}
	})
}

func TestQueriesOfAFreeLock(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, store string) {
		if out := start(t, store, "who", "x").want(0).out.String(); out != "x is free\n" {
			t.Errorf("who says %q", out)
		}
		doc := document(t, start(t, store, "is-held", "--json", "x").want(codeFree).out.String())
		if doc["state"] != "free" || doc["mode"] != nil || len(doc["holders"].([]any)) != 0 || len(doc["waiters"].([]any)) != 0 {
			t.Errorf("is-held says %v", doc)
		}
		p := start(t, store, "ls").want(0)
		if p.out.String() != "" {
			t.Errorf("ls prints %q", p.out.String())
		}
		if doc := document(t, start(t, store, "ls", "--json").want(0).out.String()); len(doc["locks"].([]any)) != 0 {
			t.Errorf("ls says %v", doc)
		}
	})
}

// TestAForeignHolder has another library hold the lock.
func TestAForeignHolder(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t, servertest.RedisConfig{})
	if _, err := server.Do("SET", "lock:x", "0123456789abcdef0123456789abcdef", "PX", "60000"); err != nil {
		t.Fatal(err)
	}
	p := start(t, server.URL(), "run", "x", "--", "true").want(codeHeld)
	has(t, p.err.String(), "held by a program that does not use redlatch (value 01234567...)")
	who := start(t, server.URL(), "who", "x").want(0)
	doc := document(t, start(t, server.URL(), "who", "--json", "x").want(0).out.String())
	if h := doc["holders"].([]any)[0].(map[string]any); h["foreign"] != true {
		t.Errorf("the holder is %v", h)
	}
	for _, text := range []string{p.err.String(), who.out.String()} {
		if strings.Contains(text, "0123456789abcdef") {
			t.Errorf("it prints the other's token, with which its lock can be released: %q", text)
		}
	}
}

// A server that refuses scripts: the message says both ways out, and the one that lies
// with the caller is one parameter.
func TestAServerThatRefusesScripts(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t, servertest.RedisConfig{})
	if _, err := server.Do("ACL", "SETUSER", "default", "-@scripting"); err != nil {
		t.Fatal(err)
	}
	p := start(t, server.URL(), "run", "x", "--", "true").want(codeDenied)
	has(t, p.err.String(), "refuses scripts", "+eval and +evalsha", "?plain=true")
	start(t, server.URL()+"?plain=true", "run", "x", "--", "true").want(0)
	start(t, server.URL()+"?plain=true", "is-held", "x").want(1)
}

func TestErrorsAsJSON(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		store, kind string
		code        int
	}{
		{"redis://127.0.0.1:1", "unavailable", codeUnavailable},
		{"mysql://h", "usage", codeUsage},
	} {
		p := start(t, c.store, "who", "--json", "x").want(c.code)
		doc := document(t, p.err.String())
		if e, ok := doc["error"].(map[string]any); !ok || doc["schema"] != "redlatch.error/v1" || e["code"] != c.kind || e["message"] == "" {
			t.Errorf("%s: %v", c.store, doc)
		}
		if p.out.String() != "" {
			t.Errorf("%s: stdout has %q", c.store, p.out.String())
		}
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	doc := document(t, start(t, "", "version", "--json").want(0).out.String())
	if doc["schema"] != "redlatch.version/v1" || doc["version"] == "" || doc["go"] == "" || len(doc["stores"].([]any)) != 3 {
		t.Errorf("version says %v", doc)
	}
	for _, args := range [][]string{{"version"}, {"--version"}} {
		has(t, start(t, "", args...).want(0).out.String(), "redlatch dev (", "go1.")
	}
}

func TestCompletion(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		has(t, start(t, "", "completion", shell).want(0).out.String(), "redlatch")
	}
	start(t, "", "completion", "ksh").want(codeUsage)

	store := redisURL(t)
	holder := start(t, store, "run", "jobs/x", "--", "sh", "-c", "echo started; exec sleep 100")
	holder.says(&holder.out, "started")
	servertest.Eventually(t, patience, "the name among the completions", func() bool {
		return strings.Contains(start(t, store, "__complete", "who", "jo").want(0).out.String(), "jobs/x\n")
	})
	if out := start(t, "redis://127.0.0.1:1", "__complete", "who", "jo").want(0).out.String(); !strings.HasPrefix(out, ":") {
		t.Errorf("without a store it completes %q", out)
	}
}
