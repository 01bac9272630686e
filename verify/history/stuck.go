//go:build unix

package history

import (
	"fmt"
	"slices"
	"time"
)

// process is when a process ran.
type process struct {
	runs []span // in order; the last one may be open
}

type span struct {
	from, to Instant // to 0: open
}

// processAt takes in that a process was started, stopped, resumed or killed.
func (h *past) processAt(r Record) error {
	p := h.processes[r.Process]
	if (p == nil) != (r.Kind == Started) {
		return fmt.Errorf("a process that is not started once, first: %+v", r)
	}
	switch r.Kind {
	case Started:
		h.processes[r.Process] = &process{runs: []span{{from: r.At}}}
	case Resumed:
		p.runs = append(p.runs, span{from: r.At})
	default:
		if last := &p.runs[len(p.runs)-1]; last.to == 0 {
			last.to = r.At
		}
	}
	return nil
}

// runsThrough reports whether the process ran all that time.
func (p *process) runsThrough(from, to Instant) bool {
	return p != nil && slices.ContainsFunc(p.runs, func(s span) bool { return s.from <= from && (s.to == 0 || to <= s.to) })
}

// atOnce is how long a process that is given a lock may take to say so. One that is
// stopped or killed before that has perhaps not learned of it.
const atOnce = 250 * time.Millisecond

// stuck finds calls that waited longer than limit while nobody held the name. It also
// returns the longest such wait.
func (h *past) stuck(name string, n *name, limit time.Duration) (time.Duration, []Fault) {
	var longest time.Duration
	var faults []Fault
	for _, free := range h.free(n) {
		var worst *call
		var most time.Duration
		for _, c := range n.calls {
			if d := h.waits(c, free); d > most {
				most, worst = d, c
			}
		}
		longest = max(longest, most)
		if most > limit {
			faults = append(faults, Fault{Stuck, name, fmt.Sprintf(
				"nobody held it for %v from %d on while %s/%d waited for it in a running process",
				most.Round(time.Millisecond), free.from, worst.process, worst.call)})
		}
	}
	return longest, faults
}

// free returns the times in which nobody held the name, each cut where the service gave
// the lock to a process that could not take it.
func (h *past) free(n *name) []span {
	var cuts []Instant
	for _, r := range n.given {
		if r.Process != "" && !h.processes[r.Process].runsThrough(r.At, r.At+Instant(atOnce)) {
			cuts = append(cuts, r.At)
		}
	}
	slices.Sort(cuts)
	var spans []span
	add := func(from, to Instant) {
		for _, cut := range cuts {
			if from < cut && cut < to {
				spans = append(spans, span{from, cut})
				from = cut
			}
		}
		if from < to {
			spans = append(spans, span{from, to})
		}
	}
	var from Instant
	for _, c := range n.holds {
		add(from, min(c.first, h.over))
		from = max(from, c.last)
	}
	add(from, h.over)
	return spans
}

// waits is how long the call waited without a break within the span, in a running process.
func (h *past) waits(c *call, within span) time.Duration {
	p := h.processes[c.process]
	if p == nil {
		return 0
	}
	ended := h.over
	if c.done {
		ended = min(ended, c.ended)
	}
	if c.began >= within.to || ended <= within.from {
		return 0
	}
	var most Instant
	for _, run := range p.runs {
		from, to := max(c.began, within.from, run.from), min(ended, within.to)
		if run.to != 0 {
			to = min(to, run.to)
		}
		most = max(most, to-from)
	}
	return time.Duration(most)
}
