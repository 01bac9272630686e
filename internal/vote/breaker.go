package vote

import (
	"time"

	"github.com/redlatch/redlatch/lease"
)

// Breaker leaves a server alone that does not answer, but for a probe every now and then:
// what it would cost to wait for it is paid by one call in a while, not by each. The zero
// Breaker lets everything pass.
type Breaker struct {
	fails int
	since lease.Instant // the first of them
	probe lease.Instant // when the next call may pass
}

const (
	patience  = 3 // failures in a row
	probeFrom = 50 * time.Millisecond
	probeMost = time.Second
)

// Open reports that calls are held back.
func (b *Breaker) Open() bool { return b.fails >= patience }

// Allow reports whether a call may pass now. Of those held back one passes when it is time
// for a probe.
func (b *Breaker) Allow(now lease.Instant) bool {
	if !b.Open() {
		return true
	}
	if now < b.probe {
		return false
	}
	b.probe = now.Add(b.pause())
	return true
}

// Report says how a call ended.
func (b *Breaker) Report(now lease.Instant, answered bool) {
	if answered {
		*b = Breaker{}
		return
	}
	if b.fails == 0 {
		b.since = now
	}
	b.fails++
	if b.Open() {
		b.probe = now.Add(b.pause())
	}
}

// Silent is for how long there has been no answer.
func (b *Breaker) Silent(now lease.Instant) time.Duration {
	if b.fails == 0 {
		return 0
	}
	return now.Sub(b.since)
}

func (b *Breaker) pause() time.Duration {
	return min(probeFrom<<min(b.fails-patience, 10), probeMost)
}
