package drivertest

import (
	"slices"
	"strings"
	"testing"

	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/lease"
	"github.com/redlatch/redlatch/memstore"
)

func TestFeaturesAreComparedWithTheTable(t *testing.T) {
	weaker := memstore.New().Features()
	weaker.Seal = false
	other := memstore.New().Features()
	other.Modes = other.Modes[:1]
	tests := []struct {
		what, name string
		features   driver.Features
		want       string
	}{
		{"the store is as promised", "memstore", memstore.New().Features(), ""},
		{"it can do less", "memstore", weaker, "are not those"},
		{"it has fewer modes", "memstore", other, "are not those"},
		{"nobody knows it", "nostore", weaker, "no line"},
	}
	for _, test := range tests {
		t.Run(test.what, func(t *testing.T) {
			r := &recorder{ctx: t.Context()}
			checkTable(r, test.name, test.features)
			got := strings.Join(r.faults, "\n")
			if (test.want == "") != (got == "") || !strings.Contains(got, test.want) {
				t.Errorf("found %q, want %q", got, test.want)
			}
		})
	}
}

func TestTheTableIsSorted(t *testing.T) {
	if lines := slices.Collect(strings.Lines(table)); !slices.IsSorted(lines) {
		t.Error("testdata/features.golden is not sorted")
	}
}

// What a store cannot do is left out, and that it refuses is put in.
func TestSubjectsFollowTheFeatures(t *testing.T) {
	says := func(f driver.Features) string {
		var all []string
		for _, s := range subjects(f) {
			all = append(all, s.says)
		}
		return strings.Join(all, "\n")
	}
	everything := says(memstore.New().Features())
	plain := says(driver.Features{Modes: []lease.Mode{lease.Exclusive}})
	for _, refusal := range []string{"without shared claims refuses", "without permits refuses", "without seals refuses"} {
		if strings.Contains(everything, refusal) || !strings.Contains(plain, refusal) {
			t.Errorf("%q is asked of the wrong stores", refusal)
		}
	}
	for _, ability := range []string{"readers hold together", "permits are given", "a seal closes", "tickets grow", "in the order of their tickets"} {
		if !strings.Contains(everything, ability) || strings.Contains(plain, ability) {
			t.Errorf("%q is asked of the wrong stores", ability)
		}
	}
}
