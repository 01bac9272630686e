//go:build unix

package history

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Verdict is what a history shows.
type Verdict struct {
	Faults []Fault

	Calls     int           // for a lock
	Holds     int           // those that were stamped at least once
	Processes int           // that were started
	Longest   time.Duration // that a running call waited for a name that nobody held
}

// Fault is something that must not be.
type Fault struct {
	Kind FaultKind
	Name string
	What string
}

// FaultKind is which rule was broken.
type FaultKind string

const (
	Overlap FaultKind = "overlap"
	Fence   FaultKind = "fence"
	Stuck   FaultKind = "stuck"
)

func (f Fault) String() string { return fmt.Sprintf("%s on %q: %s", f.Kind, f.Name, f.What) }

// Count is how many faults of that kind there are.
func (v Verdict) Count(kind FaultKind) int {
	n := 0
	for _, f := range v.Faults {
		if f.Kind == kind {
			n++
		}
	}
	return n
}

// Check judges a whole history. A name with a running waiter may be without a holder
// for limit. The error says that the history cannot be one.
func Check(records []Record, limit time.Duration) (Verdict, error) {
	h, err := arrange(records)
	if err != nil {
		return Verdict{}, err
	}
	v := Verdict{Calls: len(h.calls), Processes: len(h.processes)}
	for _, name := range slices.Sorted(maps.Keys(h.names)) {
		n := h.names[name]
		v.Holds += len(n.holds)
		v.Faults = append(v.Faults, overlaps(name, n.holds)...)
		v.Faults = append(v.Faults, fences(name, n.holds)...)
		longest, stuck := h.stuck(name, n, limit)
		v.Longest = max(v.Longest, longest)
		v.Faults = append(v.Faults, stuck...)
	}
	return v, nil
}

// past is a history by what it is about.
type past struct {
	calls     map[place]*call
	processes map[string]*process
	names     map[string]*name
	over      Instant
}

type place struct {
	process string
	call    uint64
}

// call is one call for a lock and the hold that came of it.
type call struct {
	place

	name  string
	began Instant
	ended Instant // the waiting
	done  bool    // with waiting

	fence       uint64
	stamped     bool
	first, last Instant // stamps
	how         string  // how it ended
}

func (c *call) String() string {
	return fmt.Sprintf("%s/%d with fence %d, trusted from %d to %d (%s)",
		c.process, c.call, c.fence, c.first, c.last, cmp.Or(c.how, "end unknown"))
}

type name struct {
	calls []*call
	holds []*call // in the order of their first stamps
	given []Record
}

func arrange(records []Record) (*past, error) {
	h := &past{calls: make(map[place]*call), processes: make(map[string]*process), names: make(map[string]*name)}
	// Each process has written its own in order; the others' order is the clock's.
	records = slices.Clone(records)
	slices.SortStableFunc(records, func(a, b Record) int { return cmp.Compare(a.At, b.At) })
	for _, r := range records {
		if err := h.add(r); err != nil {
			return nil, err
		}
	}
	if h.over == 0 {
		return nil, errors.New("the history has no end")
	}
	return h, nil
}

func (h *past) add(r Record) error {
	switch r.Kind {
	case Over:
		h.over = r.At
		return nil
	case Cut:
		return nil
	case Started, Stopped, Resumed, Killed:
		return h.processAt(r)
	case Seen:
		h.name(r.Name).given = append(h.name(r.Name).given, r)
		return nil
	case Want:
		c := &call{place: place{r.Process, r.Call}, name: r.Name, began: r.At}
		if h.calls[c.place] != nil {
			return fmt.Errorf("two calls with one number: %+v", r)
		}
		h.calls[c.place] = c
		h.name(r.Name).calls = append(h.name(r.Name).calls, c)
		return nil
	}
	c := h.calls[place{r.Process, r.Call}]
	switch {
	case c == nil:
		return fmt.Errorf("no call that this could be about: %+v", r)
	case c.name != r.Name:
		return fmt.Errorf("a call for %q: %+v", c.name, r)
	}
	return c.add(h, r)
}

func (c *call) add(h *past, r Record) error {
	if !c.done {
		c.done, c.ended = true, r.At
	}
	switch r.Kind {
	case Gave, Ended:
		c.how = r.Note
	case Hold:
		if !c.stamped {
			c.stamped, c.first, c.fence = true, r.At, r.Fence
			h.name(c.name).holds = append(h.name(c.name).holds, c)
		}
		if r.Fence != c.fence {
			return fmt.Errorf("a hold whose fence changes from %d: %+v", c.fence, r)
		}
		c.last = r.At
	default:
		return fmt.Errorf("unknown kind: %+v", r)
	}
	return nil
}

func (h *past) name(text string) *name {
	n := h.names[text]
	if n == nil {
		n = &name{}
		h.names[text] = n
	}
	return n
}

// overlaps finds holds that were trusted at one time. Each is compared to all that began
// before it and are not over, so that a long hold which covers many others is found with
// each of them.
func overlaps(name string, holds []*call) []Fault {
	var faults []Fault
	var open []*call
	for _, b := range holds {
		open = slices.DeleteFunc(open, func(a *call) bool { return a.last <= b.first })
		for _, a := range open {
			shared := time.Duration(min(a.last, b.last) - b.first)
			faults = append(faults, Fault{Overlap, name, fmt.Sprintf("for %v at least: %v; %v", shared, a, b)})
		}
		open = append(open, b)
	}
	return faults
}

// fences finds holds whose fence is not above those of all that began before.
func fences(name string, holds []*call) []Fault {
	var faults []Fault
	var highest *call
	for _, b := range holds {
		if highest != nil && b.fence <= highest.fence && highest.first < b.first {
			faults = append(faults, Fault{Fence, name, fmt.Sprintf("%v after %v", b, highest)})
		}
		if highest == nil || b.fence > highest.fence {
			highest = b
		}
	}
	return faults
}

// Summary is the verdict in one line.
func (v Verdict) Summary() string {
	parts := []string{
		fmt.Sprintf("%d processes", v.Processes), fmt.Sprintf("%d calls", v.Calls), fmt.Sprintf("%d holds", v.Holds),
		fmt.Sprintf("%d overlaps", v.Count(Overlap)), fmt.Sprintf("%d fences out of order", v.Count(Fence)),
		fmt.Sprintf("%d stuck", v.Count(Stuck)), fmt.Sprintf("longest wait for a name without a holder %v", v.Longest.Round(time.Millisecond)),
	}
	return strings.Join(parts, ", ")
}
