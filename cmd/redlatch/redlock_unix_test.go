//go:build unix

package main

import (
	"strings"
	"testing"

	"github.com/redlatch/redlatch/internal/servertest"
)

// redlockURL is that of servers which vote at once, because they keep what they acknowledge.
func redlockURL(t *testing.T, n int) (string, []*servertest.RedisServer) {
	t.Helper()
	var hosts []string
	var servers []*servertest.RedisServer
	for range n {
		s := servertest.Redis(t, servertest.RedisConfig{Args: []string{"--appendonly", "yes", "--appendfsync", "always"}})
		servers, hosts = append(servers, s), append(hosts, s.Addr())
	}
	return "redlock://" + strings.Join(hosts, ","), servers
}

func TestRedlock(t *testing.T) {
	t.Parallel()
	store, servers := redlockURL(t, 3)
	start(t, store, "run", "x", "--", "sh", "-c", "exit 7").want(7)
	holder := start(t, store, "run", "--note", "why", "job", "--", "sh", "-c", "echo started; exec sleep 100")
	holder.says(&holder.out, "started")
	p := start(t, store, "run", "job", "--", "true").want(codeHeld)
	has(t, p.err.String(), "job is held by ")
	has(t, start(t, store, "who", "job").want(0).out.String(), "job is HELD", "why")
	has(t, start(t, store, "keys", "job").want(0).out.String(), "lock:job")
	servertest.Eventually(t, patience, "the list", func() bool {
		return strings.Contains(start(t, store, "ls").want(0).out.String(), "job")
	})

	// One of three may go.
	servers[0].Kill()
	start(t, store, "run", "job", "--", "true").want(codeHeld)
	start(t, store, "run", "x", "--", "true").want(0)
	p = start(t, store, "ls").want(0)
	has(t, p.out.String(), "job")
	has(t, p.err.String(), "some servers did not answer", servers[0].Addr())
	if doc := document(t, start(t, store, "ls", "--json").want(0).out.String()); doc["partial"] != true {
		t.Errorf("the list is %v, want it partial", doc)
	}

	// Two may not.
	servers[1].Kill()
	p = start(t, store, "run", "--retry-start", "0", "x", "--", "true").want(codeUnavailable)
	has(t, p.err.String(), "no quorum, 2 of 3 servers", servers[0].Addr()+": ", servers[1].Addr()+": ", "nothing was run")
	start(t, store, "who", "job").want(codeUnavailable)
}

// Servers that have just started do not vote, and that is what is said.
func TestRedlockOnServersThatJustStarted(t *testing.T) {
	t.Parallel()
	var hosts []string
	for range 3 {
		hosts = append(hosts, servertest.Redis(t, servertest.RedisConfig{}).Addr())
	}
	store := "redlock://" + strings.Join(hosts, ",")
	p := start(t, store+"?longest_ttl=1h", "run", "--retry-start", "0", "x", "--", "true").want(codeUnavailable)
	has(t, p.err.String(), "it votes when it has been up for 1h0m0s")
	p = start(t, store, "run", "--ttl", "2m", "x", "--", "true").want(codeUsage)
	has(t, p.err.String(), "the longest of this quorum, 1m0s")
}
