package lease

import (
	"math"
	"time"
)

// Instant is a point on one process's own clock, which never steps and goes on
// while the machine sleeps: nanoseconds since an origin that is the process's own.
// It has nothing to do with a store's time, and two processes cannot compare theirs.
type Instant int64

// Never is later than every other Instant.
const Never Instant = math.MaxInt64

// Add returns the instant d after i. Never stays Never.
func (i Instant) Add(d time.Duration) Instant {
	if i == Never {
		return Never
	}
	return i + Instant(d)
}

// Sub returns the time from j to i.
func (i Instant) Sub(j Instant) time.Duration { return time.Duration(i - j) }
