package vote

import (
	"testing"
	"time"

	"github.com/redlatch/redlatch/lease"
)

func TestABreakerProbesAServerThatFails(t *testing.T) {
	var b Breaker
	now := lease.Instant(-1 << 40)
	for range patience {
		if !b.Allow(now) {
			t.Fatal("held back before it has failed so often")
		}
		b.Report(now, false)
	}
	if b.Allow(now) || !b.Open() {
		t.Error("not held back")
	}
	// A probe at a time, seldom, and never seldomer than once a second.
	probes := 0
	for range 10_000 {
		now = now.Add(time.Millisecond)
		if b.Allow(now) {
			probes++
			if b.Allow(now) {
				t.Fatal("two probes at a time")
			}
			b.Report(now, false)
		}
	}
	if probes < 9 || probes > 16 {
		t.Errorf("%d probes in 10 s", probes)
	}
	if s := b.Silent(now); s != 10*time.Second {
		t.Errorf("silent for %v, want 10s", s)
	}
	b.Report(now, true)
	if !b.Allow(now) || b.Open() || b.Silent(now) != 0 {
		t.Error("held back after an answer")
	}
}

func TestPoll(t *testing.T) {
	for what, c := range map[string]struct {
		n, yes, no, failed int
		state              State
		complete, answered bool
	}{
		"none":                      {n: 3, state: Open},
		"a majority":                {n: 3, yes: 2, state: Won, answered: true},
		"a majority cannot":         {n: 3, no: 2, state: Lost, answered: true},
		"one no of three":           {n: 3, yes: 1, no: 1, state: Open, answered: true},
		"half of four says yes":     {n: 4, yes: 2, state: Open},
		"half of four says no":      {n: 4, no: 2, state: Lost},
		"all in, and nothing known": {n: 5, yes: 2, no: 2, failed: 1, state: Open, complete: true, answered: true},
		"all failed":                {n: 3, failed: 3, state: Open, complete: true},
	} {
		p := NewPoll(c.n)
		for range c.yes {
			p.Yes()
		}
		for range c.no {
			p.No()
		}
		for range c.failed {
			p.Failed()
		}
		if p.State() != c.state || p.Complete() != c.complete || p.Answered() != c.answered {
			t.Errorf("%s: %v, complete %v, answered %v", what, p.State(), p.Complete(), p.Answered())
		}
	}
}
