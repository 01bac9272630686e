// Package elapsed is the clock that trust is counted on: it never steps, and it goes
// on while the machine sleeps.
//
// Go's monotonic clock stands still during suspend (golang/go#24595), so a laptop or
// a virtual machine that sleeps through a lease would wake up believing that it holds
// it. The time asleep is therefore added to it. Adding it, instead of reading another
// clock, keeps the rest drivable by testing/synctest, where time.Now is virtual.
package elapsed

import (
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/lease"
)

var (
	origin = time.Now()
	before = asleep() // that much sleep lay before the origin

	// extra is more sleep that a test adds.
	extra atomic.Int64
)

// Now is the time on this process's own clock.
func Now() lease.Instant {
	return lease.Instant(time.Since(origin) + asleep() - before + time.Duration(extra.Load()))
}

// Sleep lets a test put the machine to sleep for d: all clocks go on but Go's.
func Sleep(d time.Duration) { extra.Add(int64(d)) }
