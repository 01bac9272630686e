// Package growth tells whether a long run left more behind the longer it ran: goroutines,
// memory, files, connections, keys.
package growth

import (
	"fmt"
	"slices"
	"strings"
)

// Sample is how much there is of everything at one moment.
type Sample map[string]float64

// Slack is how much more of one thing there may be at the end: a part of what there was, and
// something for chance.
type Slack struct {
	Part  float64
	Least float64
}

// Grown is one thing of which there is more.
type Grown struct {
	What         string
	Before, Then float64
}

func (g Grown) String() string {
	return fmt.Sprintf("%s grew from %.0f to %.0f", g.What, g.Before, g.Then)
}

// Judge compares the middle third of the samples with the last, by their medians: the first
// third is the warm-up.
func Judge(samples []Sample, slacks map[string]Slack) ([]Grown, error) {
	third := len(samples) / 3
	if third < 3 {
		return nil, fmt.Errorf("%d samples are too few to judge by, 9 are the least: run it for longer", len(samples))
	}
	var grown []Grown
	for what, slack := range slacks {
		before, then := median(samples[third:2*third], what), median(samples[2*third:], what)
		if then > before+max(before*slack.Part, slack.Least) {
			grown = append(grown, Grown{what, before, then})
		}
	}
	slices.SortFunc(grown, func(a, b Grown) int { return strings.Compare(a.What, b.What) })
	return grown, nil
}

func median(samples []Sample, what string) float64 {
	var values []float64
	for _, s := range samples {
		values = append(values, s[what])
	}
	slices.Sort(values)
	return values[len(values)/2]
}
