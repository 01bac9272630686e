//go:build unix

package herd

import (
	"testing"
	"time"

	"github.com/redlatch/redlatch/verify/client"
)

func init() { client.Silence() }

// What each waiter does when the server is back does not depend on how many there are:
// connect twice, subscribe, join, and look once when the subscription is up.
func TestWaitersComeBackWithAFewCommandsEach(t *testing.T) {
	const waiters, most = 100, 40
	r, err := Run(t.Context(), Config{Waiters: waiters, Names: 5, TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	t.Log(r)
	if r.Failed > 0 {
		t.Errorf("%d gave up", r.Failed)
	}
	if r.Commands > most*waiters {
		t.Errorf("%d commands of %d waiters", r.Commands, waiters)
	}
	if r.PeakOpen > 3*waiters+20 {
		t.Errorf("%d connections of %d waiters", r.PeakOpen, waiters)
	}
}

func TestEachHoldHasOneVerdictAndFewCommands(t *testing.T) {
	const holds = 1000
	r, err := Run(t.Context(), Config{Holds: holds, TTL: 9 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Log(r)
	if r.Twice > 0 || r.Failed > 0 {
		t.Errorf("%d verdicts too many, %d failed", r.Twice, r.Failed)
	}
	if r.Commands > 20*holds { // counted inside the script, too: about six each
		t.Errorf("%d commands about %d holds", r.Commands, holds)
	}
	if r.PeakOpen > 30 {
		t.Errorf("%d connections of one process", r.PeakOpen)
	}
}
