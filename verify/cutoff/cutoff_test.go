//go:build unix

package cutoff

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/lease"
)

func TestAHolderThatIsCutOffStopsBeforeTheNextOneBegins(t *testing.T) {
	cfg := Config{Rounds: 40, Lanes: 8, TTL: 300 * time.Millisecond, Seed: rand.Uint64()}
	r, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatalf("seed %d: %v", cfg.Seed, err)
	}
	t.Logf("seed %d: %v", cfg.Seed, r.Margins)
	for _, f := range r.Faults {
		t.Errorf("seed %d: %s", cfg.Seed, f)
	}
}

// hopeful takes a renewal without an answer for one that was carried out.
type hopeful struct{ driver.Store }

func (h hopeful) Renew(ctx context.Context, refs []driver.Ref) []driver.Outcome {
	outs := h.Store.Renew(ctx, refs)
	for i, out := range outs {
		if out.Err != nil {
			outs[i] = driver.Outcome{Standing: lease.Standing{State: lease.Held, Lease: refs[i].TTL}}
		}
	}
	return outs
}

func TestAHolderThatTrustsTooLongIsFoundOut(t *testing.T) {
	cfg := Config{
		Rounds: 8, Lanes: 8, TTL: 300 * time.Millisecond, Seed: rand.Uint64(),
		wrap: func(s driver.Store) driver.Store { return hopeful{s} },
	}
	r, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatalf("seed %d: %v", cfg.Seed, err)
	}
	if len(r.Faults) < cfg.Rounds {
		t.Errorf("seed %d: %d faults in %d rounds: %q", cfg.Seed, len(r.Faults), cfg.Rounds, r.Faults)
	}
}
