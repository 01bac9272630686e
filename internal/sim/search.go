package sim

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Search plays that many seeds from the first on, some at a time, and hands the results to
// seen until that says no. A game that fails is shrunk and told with its last events.
func Search(first uint64, seeds, workers int, seen func(Result) bool) {
	var next atomic.Uint64
	var stop atomic.Bool
	var mu sync.Mutex
	var work sync.WaitGroup
	for range workers {
		work.Go(func() {
			for !stop.Load() {
				n := next.Add(1) - 1
				if n >= uint64(seeds) {
					return
				}
				r := Play(Game{Seed: first + n})
				if r.Failure != "" {
					r = Shrink(r)
				}
				mu.Lock()
				if !stop.Load() && !seen(r) {
					stop.Store(true)
				}
				mu.Unlock()
			}
		})
	}
	work.Wait()
}

// Shrink leaves out of a failed game what it fails without, and plays it once more with its
// last events.
func Shrink(r Result) Result {
	g := r.Game
	calm := g
	calm.Calm = true
	if Play(calm).Kind == r.Kind {
		g = calm
	}
	for i := range r.Faults {
		if without(g.Without, i) {
			continue
		}
		less := g
		less.Without = append(append([]int{}, g.Without...), i)
		if Play(less).Kind == r.Kind {
			g = less
		}
	}
	g.Trace = 60
	return Play(g)
}

func (r Result) String() string {
	var b strings.Builder
	if r.Failure == "" {
		fmt.Fprintf(&b, "seed %d: %d steps, %.0f s, %d holds, %d lost, %d acquires ended without", r.Game.Seed, r.Steps, r.Virtual.Seconds(), r.Holds, r.Lost, r.Gone)
		return b.String()
	}
	fmt.Fprintf(&b, "seed %d: after %.6f s and %d steps: %s\n", r.Game.Seed, r.At.Seconds(), r.Steps, r.Failure)
	fmt.Fprintf(&b, "again: go run ./internal/sim/cmd/sim -seed %d -calm=%v -without %q -trace 1000\n", r.Game.Seed, r.Game.Calm, list(r.Game.Without))
	for i, f := range r.Faults {
		if !without(r.Game.Without, i) {
			fmt.Fprintf(&b, "fault %s\n", f)
		}
	}
	for _, line := range r.Trace {
		fmt.Fprintln(&b, line)
	}
	return b.String()
}

func list(all []int) string { return strings.Trim(strings.ReplaceAll(fmt.Sprint(all), " ", ","), "[]") }

// Sum is what many games come to.
type Sum struct {
	Games, Steps, Holds, Lost, Gone, Overlaps, Revived int
	Virtual                                            time.Duration
}

// Add adds a game.
func (s *Sum) Add(r Result) {
	s.Games++
	s.Steps += r.Steps
	s.Holds += r.Holds
	s.Lost += r.Lost
	s.Gone += r.Gone
	s.Overlaps += r.Overlaps
	s.Revived += r.Revived
	s.Virtual += r.Virtual
}

// In says so, for games that took that long.
func (s *Sum) In(d time.Duration) string {
	return fmt.Sprintf("%d seeds in %.1f s: %.1f million steps a minute, %.0f hours of time; %d holds, %d lost, %d acquires without; "+
		"over losses of data and clocks put forward %d overlaps, %d fences that a fail-over brought back",
		s.Games, d.Seconds(), float64(s.Steps)/d.Minutes()/1e6, s.Virtual.Hours(), s.Holds, s.Lost, s.Gone, s.Overlaps, s.Revived)
}
