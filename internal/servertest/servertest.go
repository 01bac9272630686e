//go:build unix

// Package servertest starts the real servers that tests and soak commands run against, one process each on a free port of the loopback
// device, with a directory of its own. It knows how to hurt them (stop, kill, restart) and leaves faults of the network to package relay.
// It speaks just enough of a server's protocol to ask it things, so that what is under test is never what checks it.
package servertest

import (
	"testing"
	"time"
)

// Eventually waits until the condition holds, and fails the test when that takes longer than within. It is for what happens in another
// process: what happens in this one is awaited on a channel, or under testing/synctest.
func Eventually(t testing.TB, within time.Duration, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(within)
	for pause := time.Millisecond; !condition(); pause = min(2*pause, 20*time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("still waiting after %v for: %s", within, what)
		}
		time.Sleep(pause)
	}
}
