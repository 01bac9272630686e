//go:build !linux

package elapsed

import "time"

// asleep is how much further the wall clock has come than the monotonic one. Without
// a clock that counts through suspend this is the nearest there is: a wall clock set
// forward looks like sleep and ends trust early, one set back is not seen. Both err
// to the safe side for as long as nobody sets the clock back during a suspend.
func asleep() time.Duration {
	now := time.Now()
	wall := now.Round(0).Sub(wallOrigin)
	return max(wall-now.Sub(monoOrigin), 0)
}

var (
	monoOrigin = time.Now()
	wallOrigin = monoOrigin.Round(0)
)
