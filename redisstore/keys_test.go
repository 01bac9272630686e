//go:build unix

package redisstore

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/redlatch/redlatch/internal/servertest"
	"github.com/redlatch/redlatch/lease"
)

var oddNames = []string{
	"a", "orders/42", "{}", "a{}b", "{a", "a}b", "}{", "{}{a}", "{{a}}", "{a}{b}", "{a}", "}x{y}", "a{b}c", "{}}", "{{}", "é{ü}", "1}2",
}

var prefixes = []string{"lock:", "", "{app}:", "a}b:", "app/é "}

// checkKeys asks a real server whether all keys of the name have one slot.
func checkKeys(t *testing.T, conn *servertest.Conn, k keyspace, name string) {
	t.Helper()
	keys := k.keys(name, "k3Jw0000000000000000x9")
	want := -1
	for _, key := range keys {
		reply, err := conn.Do("CLUSTER", "KEYSLOT", key)
		if err != nil {
			t.Fatal(err)
		}
		got := int(reply.(int64))
		if want < 0 {
			want = got
		}
		if got != want || got != int(slot(key)) {
			t.Errorf("name %q, prefix %q: %q has slot %d, the lock key %d, we say %d", name, k.prefix, key, got, want, slot(key))
		}
		if !strings.HasPrefix(key, k.prefix) {
			t.Errorf("%q does not begin with the prefix %q", key, k.prefix)
		}
	}
	if back, ok := k.name(keys[0]); !ok || back != name {
		t.Errorf("the name of %q is %q, want %q", keys[0], back, name)
	}
	for _, key := range keys[1:] {
		if rest, _ := k.name(key); lease.CheckName(rest) == nil {
			t.Errorf("%q could be the lock key of a name", key)
		}
	}
}

// braces are names that differ in where their braces are.
func braces(n int) []string {
	random := rand.New(rand.NewPCG(1, 2))
	names := make(map[string]bool)
	for len(names) < n {
		name := make([]byte, 1+random.IntN(8))
		for i := range name {
			name[i] = "{}{}ab"[random.IntN(6)]
		}
		names[string(name)] = true
	}
	return slices.Collect(maps.Keys(names))
}

func slotServer(t testing.TB) *servertest.Conn {
	t.Helper()
	server := servertest.Redis(t, servertest.RedisConfig{Args: []string{"--cluster-enabled", "yes"}})
	conn, err := servertest.Dial(server.Socket())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func TestAllKeysOfANameShareItsSlot(t *testing.T) {
	conn := slotServer(t)
	seen := make(map[string]string)
	for _, prefix := range prefixes {
		k, err := newKeyspace(prefix)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range append(braces(500), oddNames...) {
			checkKeys(t, conn, k, name)
			for _, key := range k.keys(name, "x")[1:] {
				if whose, ok := seen[key]; ok && whose != k.lock(name) {
					t.Errorf("%q belongs to %q and %q", key, whose, k.lock(name))
				}
				seen[key] = k.lock(name)
			}
		}
	}
}

func FuzzKeys(f *testing.F) {
	conn := slotServer(f)
	for _, name := range oddNames {
		f.Add("lock:", name, "lock:{a}")
	}
	f.Add("", "lock:a", "{lock:a}")
	f.Add("lock:", "a", "{lock:a}")
	f.Fuzz(func(t *testing.T, prefix, name, other string) {
		k, err := newKeyspace(prefix)
		if err != nil || lease.CheckName(name) != nil || len(prefix) > 100 {
			return
		}
		checkKeys(t, conn, k, name)
		if lease.CheckName(other) != nil || other == name {
			return
		}
		theirs := make(map[string]bool)
		for _, key := range k.keys(other, "x") {
			theirs[key] = true
		}
		for _, key := range k.keys(name, "x") {
			if theirs[key] {
				t.Errorf("%q belongs to %q and %q", key, name, other)
			}
		}
	})
}

func TestPrefixesThatAreRefused(t *testing.T) {
	for _, prefix := range []string{"lock{", "{}:", "a\x01", "\n"} {
		if _, err := newKeyspace(prefix); err == nil {
			t.Errorf("the prefix %q is accepted", prefix)
		}
	}
}
