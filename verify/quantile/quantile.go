// Package quantile tells how measured times are spread: by the times themselves, and not
// by an average, which hides the ones that hurt.
package quantile

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Spread is measured times in ascending order. The zero value is none.
type Spread []time.Duration

// Of sorts a copy of the times.
func Of(times []time.Duration) Spread { return slices.Sorted(slices.Values(times)) }

// At returns the smallest time that at least that part (0 to 1) of the times do not
// exceed: At(0.99) of 200 times is the 198th.
func (s Spread) At(part float64) time.Duration {
	if len(s) == 0 {
		return 0
	}
	n := int(math.Ceil(part * float64(len(s))))
	return s[min(max(n, 1), len(s))-1]
}

func (s Spread) String() string {
	at := func(part float64) time.Duration { return s.At(part).Round(10 * time.Microsecond) }
	return fmt.Sprintf("n %d, min %v, p1 %v, p50 %v, p99 %v, max %v", len(s), at(0), at(0.01), at(0.5), at(0.99), at(1))
}
