package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// plan is what kind of game a seed plays: a few things go wrong in each, not everything in
// all, or nothing would ever be proved about the rest.
type plan struct {
	processes, workers, names, foreign int

	delay, jitter time.Duration // of a message
	lost          float64       // calls of which the request or the reply is lost
	late          float64       // lost calls of which a copy comes later
	polls         float64       // processes that have no pub/sub
	ttls          []time.Duration
	maxTTL        time.Duration
	gaps          bool // Options.Foreign
	shares        bool // the store is a lease.Queue: readers and writers, and permits

	lossy     bool // the server may forget, fail over, and put its clock forward
	faults    int
	faultsEnd time.Duration
	end       time.Duration // nothing is begun any more
}

func newPlan(r *rand.Rand) plan {
	p := plan{
		processes: 2 + r.IntN(3), workers: 1 + r.IntN(3), names: 1 + r.IntN(2),
		delay:  time.Duration(100+r.IntN(3000)) * time.Microsecond,
		lossy:  r.IntN(3) == 0,
		faults: r.IntN(14),
	}
	p.jitter = p.delay / 2
	if r.IntN(3) == 0 {
		p.jitter = 20 * time.Millisecond
	}
	switch r.IntN(4) {
	case 0:
		p.lost, p.late = .01, .5
	case 1:
		p.lost, p.late = .08, .3
	}
	if r.IntN(5) == 0 {
		p.polls = .5
	}
	if r.IntN(4) == 0 {
		p.foreign = 1 + r.IntN(2)
		p.gaps = r.IntN(4) > 0
	}
	all := []time.Duration{600 * time.Millisecond, 2 * time.Second, 10 * time.Second, 30 * time.Second}
	first := r.IntN(len(all))
	p.ttls = all[first : first+1+r.IntN(len(all)-first)]
	p.maxTTL = slices.Max(p.ttls)
	if r.IntN(6) == 0 {
		p.shares, p.foreign, p.gaps, p.polls = true, 0, false, 0
	}
	p.faultsEnd = 40*time.Second + 2*p.maxTTL
	p.end = p.faultsEnd + 20*time.Second + 2*p.maxTTL
	return p
}

// fault is something that goes wrong at a time.
type fault struct {
	at     time.Duration
	what   string
	lasts  time.Duration
	proc   int
	silent bool
	happen func(w *world)
}

func (f fault) String() string {
	return fmt.Sprintf("at %.3f s: %s, process %d, %v, silently %v", f.at.Seconds(), f.what, f.proc, f.lasts.Round(time.Millisecond), f.silent)
}

func newFaults(r *rand.Rand, p plan) []fault {
	var all []fault
	for range p.faults {
		f := fault{
			at: time.Duration(r.Int64N(int64(p.faultsEnd - 20*time.Second))), proc: r.IntN(p.processes), silent: r.IntN(2) == 0,
			lasts: time.Duration(r.Int64N(int64([]time.Duration{time.Second, 6 * time.Second, 20 * time.Second}[r.IntN(3)]))),
		}
		// A clock that is put back and a counter that is lost are not survived together.
		kinds := []string{"pause", "pause", "pause", "suspend", "cut", "cut", "subscription dies", "crash", "slow", "restart", "hang at a call", "hang at a renewal"}
		if !p.lossy {
			kinds = append(kinds, "clock back")
		} else {
			kinds = append(kinds, "forget", "clock forward")
			if !p.shares {
				kinds = append(kinds, "fail over", "queue evicted", "fail over", "counter evicted")
			}
		}
		f.what = kinds[r.IntN(len(kinds))]
		f.happen = f.deed()
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b fault) int { return int(a.at - b.at) })
	return all
}

func (f fault) deed() func(w *world) {
	return func(w *world) {
		w.note("FAULT %v", f)
		p, s := w.procs[f.proc], w.server
		switch f.what {
		case "pause":
			p.pause(f.lasts)
		case "suspend":
			p.suspend(f.lasts)
		case "cut":
			p.cut(f.lasts)
		case "subscription dies":
			p.killSubscription(f.silent)
		case "crash":
			p.crash(f.silent)
		case "hang at a call":
			p.snare = w.between(0, w.plan.maxTTL)
		case "hang at a renewal":
			p.snareRenewal = w.between(0, w.plan.maxTTL)
		case "slow":
			p.slow(f.lasts)
		case "clock back":
			s.step(-f.lasts / 4)
		case "restart":
			s.restart(false, f.lasts/20)
		case "forget":
			s.restart(true, f.lasts/20)
		case "fail over":
			s.failOver(f.lasts/10, f.silent)
		case "clock forward":
			s.step(f.lasts)
		case "queue evicted":
			s.evict(true)
		case "counter evicted":
			s.evict(false)
		}
	}
}
