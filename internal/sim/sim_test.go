package sim

import (
	"flag"
	"testing"
)

var (
	from  = flag.Uint64("seed", 1, "the first seed")
	seeds = flag.Int("seeds", 1000, "how many seeds")
)

func TestSeeds(t *testing.T) {
	Search(*from, *seeds, 2, func(r Result) bool {
		if r.Failure != "" {
			t.Errorf("%s", r)
			return false
		}
		return true
	})
}
