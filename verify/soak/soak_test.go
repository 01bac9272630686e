//go:build unix

package soak

import (
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/redlatch/redlatch/verify/history"
)

func TestMain(m *testing.M) {
	Worker()
	os.Exit(m.Run())
}

// The short form of the command: few processes, and the same faults.
func TestNobodyOverlapsWhileProcessesAreKilledAndStopped(t *testing.T) {
	cfg := Config{
		Duration: 15 * time.Second, TTL: 500 * time.Millisecond,
		Processes: 4, Goroutines: 20, Names: 8, Seed: rand.Uint64(),
	}
	r, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatalf("seed %d: %v", cfg.Seed, err)
	}
	t.Logf("seed %d: %v", cfg.Seed, r)
	if r.Bad() {
		t.Errorf("seed %d: something was seen that must not be", cfg.Seed)
	}
	if r.Holds < 50 {
		t.Errorf("seed %d: only %d holds: this proves little", cfg.Seed, r.Holds)
	}
	for _, what := range []history.Kind{history.Killed, history.Stopped} {
		if r.Done[string(what)] == 0 {
			t.Errorf("seed %d: no process was %s", cfg.Seed, what)
		}
	}
}

// A product that is broken must be found out, by what is broken in it.
func TestABrokenProductIsFoundOut(t *testing.T) {
	for broken, want := range map[Broken]history.FaultKind{
		PlainDelete: history.Overlap,
		Trusting:    history.Overlap,
		Deaf:        history.Stuck,
		Unordered:   history.Fence,
	} {
		t.Run(string(broken), func(t *testing.T) {
			cfg := Config{
				Duration: time.Minute, TTL: 300 * time.Millisecond,
				Processes: 4, Goroutines: 20, Names: 6, Seed: rand.Uint64(), Broken: broken, Until: want,
			}
			r, err := Run(t.Context(), cfg)
			if err != nil {
				t.Fatalf("seed %d: %v", cfg.Seed, err)
			}
			if r.Count(want) == 0 {
				t.Errorf("seed %d: no %s was found within %v: %v", cfg.Seed, want, cfg.Duration, r)
			}
		})
	}
}
