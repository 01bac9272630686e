package verify

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Stamp is one line of a worker's record. A worker stamps a name while it holds it:
// when it has got the lock, again and again while it has it, and when it gives it up.
//
// A stamp of Kind Holds is taken like this: the time is read, then the hold's context
// is asked, and only if it has not ended the stamp is written. So at that time the
// holder trusted its lock, and was running. Whoever is stopped or killed writes
// nothing, so what stands in the record is what trusted, running holders did.
//
// The time is CLOCK_MONOTONIC, which all processes of a host share.
type Stamp struct {
	Kind    Kind
	At      time.Duration
	Name    string
	Fence   uint64
	Process int
}

// Kind is what a stamp says.
type Kind byte

const (
	Holds Kind = 'H' // at that time the holder trusted its lock
	Waits Kind = 'W' // at that time somebody who runs waits for the name
)

// Verdict is what a record says.
type Verdict struct {
	Holds    int // holds with at least one stamp
	Overlaps []string
	Stuck    []string
	Fences   []string
}

// OK reports whether nothing is wrong.
func (v Verdict) OK() bool { return len(v.Overlaps)+len(v.Stuck)+len(v.Fences) == 0 }

func (v Verdict) String() string {
	s := fmt.Sprintf("%d holds, %d overlaps, %d stuck, %d fences out of order", v.Holds, len(v.Overlaps), len(v.Stuck), len(v.Fences))
	for _, list := range [][]string{v.Overlaps, v.Stuck, v.Fences} {
		for _, line := range list[:min(len(list), 3)] {
			s += "\n  " + line
		}
	}
	return s
}

// Judge reads a record.
//
//   - Overlap: between the first and the last stamp of a hold stands one of another
//     hold of the same name. Both trusted the lock before and after that moment, so
//     both had it at once.
//   - Fences: holds of a name in the order of their first stamps have growing fences.
//   - Stuck: somebody waited all the time for longer than patience, and nobody held.
//     Gaps in which no running process stamped anything say nothing: they are cut out
//     by asking for a Waits stamp in each slice of a second.
func Judge(stamps []Stamp, patience time.Duration) Verdict {
	byName := map[string][]Stamp{}
	for _, s := range stamps {
		byName[s.Name] = append(byName[s.Name], s)
	}
	var v Verdict
	for name, list := range byName {
		slices.SortStableFunc(list, func(a, b Stamp) int { return cmp.Compare(a.At, b.At) })
		v.judgeHolds(name, list)
		v.judgeStuck(name, list, patience)
	}
	return v
}

type hold struct {
	fence       uint64
	process     int
	first, last time.Duration
}

func (v *Verdict) judgeHolds(name string, list []Stamp) {
	holds := map[[2]uint64]*hold{} // by fence and process: a broken product may give one fence twice
	var order []*hold
	for _, s := range list {
		if s.Kind != Holds {
			continue
		}
		key := [2]uint64{s.Fence, uint64(s.Process)}
		h := holds[key]
		if h == nil {
			h = &hold{fence: s.Fence, process: s.Process, first: s.At}
			holds[key] = h
			order = append(order, h)
		}
		h.last = s.At
	}
	v.Holds += len(order)
	for i, h := range order {
		if i == 0 {
			continue
		}
		if before := order[i-1]; before.fence >= h.fence {
			v.Fences = append(v.Fences, fmt.Sprintf("%s: fence %d at %v after %d", name, h.fence, h.first, before.fence))
		}
	}
	var open *hold // the one whose last stamp is the latest so far
	for _, h := range order {
		if open != nil && h.first < open.last {
			v.Overlaps = append(v.Overlaps, fmt.Sprintf("%s: process %d with fence %d from %v, while process %d with fence %d until %v",
				name, h.process, h.fence, h.first, open.process, open.fence, open.last))
		}
		if open == nil || h.last > open.last {
			open = h
		}
	}
}

func (v *Verdict) judgeStuck(name string, list []Stamp, patience time.Duration) {
	const slice = time.Second
	var from, last time.Duration // since when it has been waited for without a hold; the last stamp
	waiting := false
	for _, s := range list {
		if s.Kind == Holds || !waiting || s.At-last > slice {
			waiting, from, last = s.Kind == Waits, s.At, s.At
			continue
		}
		last = s.At
		if s.At-from > patience {
			v.Stuck = append(v.Stuck, fmt.Sprintf("%s: waited for from %v to %v, nobody got it", name, from, s.At))
			waiting = false
		}
	}
}
