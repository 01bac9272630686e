package growth

import (
	"math/rand/v2"
	"testing"
)

// series is 60 samples that begin at base, vary by chance by a tenth, and grow by slope each.
func series(base, slope float64) []Sample {
	dice := rand.New(rand.NewPCG(1, 2))
	var all []Sample
	for i := range 60 {
		all = append(all, Sample{"x": base*(0.95+dice.Float64()/10) + slope*float64(i), "other": 7})
	}
	return all
}

func TestJudge(t *testing.T) {
	slacks := map[string]Slack{"x": {Part: 0.1, Least: 10}, "other": {Least: 1}}
	for what, c := range map[string]struct {
		samples []Sample
		grown   int
	}{
		"steady":                         {series(1000, 0), 0},
		"a leak":                         {series(1000, 10), 1},
		"a small leak of little":         {series(20, 1), 1},
		"less and less":                  {series(1000, -10), 0},
		"grown in the warm-up only":      {append(series(10, 20)[:20], series(400, 0)[:40]...), 0},
		"some of what is none at a time": {series(0, 0), 0},
	} {
		grown, err := Judge(c.samples, slacks)
		if err != nil || len(grown) != c.grown {
			t.Errorf("%s: %v, error %v, want %d", what, grown, err, c.grown)
		}
	}
	if _, err := Judge(series(1, 1)[:8], slacks); err == nil {
		t.Error("judged by 8 samples")
	}
}
