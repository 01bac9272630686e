//go:build unix

// Package soak lets many processes fight for a few names on a real Redis server while
// they are killed and stopped and their connections cut, and judges what they wrote about
// it with package history. The processes are this program, started again (see [Worker]).
//
// It leaves out faults of the server: what a restart or a fail-over loses is another
// promise. The choice of faults comes from a seed, but what meets what does not: a seed
// makes a failure likely again, not certain.
package soak

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/servertest"
	"github.com/redlatch/redlatch/verify/history"
)

// Config is the size of a run. Every field must be set, but for those that say what else.
type Config struct {
	Duration   time.Duration
	TTL        time.Duration // of every lock
	Processes  int
	Goroutines int // in each
	Names      int
	Seed       uint64

	Limit  time.Duration // a name with a running waiter may be without a holder for so long; default: TTL + 1 s
	Broken Broken        // how the product is broken on purpose; default: not
	Dir    string        // of the record, which is then left there; default: a temporary one

	Until history.FaultKind // end as soon as the record shows such a fault; default: do not look
}

// Result is what came of a run.
type Result struct {
	history.Verdict

	Done map[string]int // what was done to the processes
	Ends map[string]int // how holds and calls ended
	Odd  []string       // those that must not end so
	Left []string       // names still locked when all processes had ended and their leases too
}

func (r Result) String() string {
	var b strings.Builder
	fmt.Fprintln(&b, r.Summary())
	fmt.Fprintf(&b, "done: %s\nended: %s\n", counts(r.Done), counts(r.Ends))
	var lines []string
	for _, f := range r.Faults {
		lines = append(lines, f.String())
	}
	for _, name := range r.Left {
		lines = append(lines, fmt.Sprintf("left locked: %q", name))
	}
	lines = append(lines, r.Odd...)
	const most = 20
	for _, line := range lines[:min(len(lines), most)] {
		fmt.Fprintln(&b, line)
	}
	if len(lines) > most {
		fmt.Fprintf(&b, "and %d more\n", len(lines)-most)
	}
	return b.String()
}

// Bad reports whether something was seen that must not be.
func (r Result) Bad() bool { return len(r.Faults)+len(r.Odd)+len(r.Left) > 0 }

func counts(m map[string]int) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, fmt.Sprintf("%d %s", m[k], k))
	}
	return strings.Join(parts, ", ")
}

// run is one run on its way.
type run struct {
	cfg    Config
	dir    string
	names  []string
	server *servertest.RedisServer
	log    *history.Log
	group  *servertest.Group
	slots  []*slot
	work   sync.WaitGroup
	cancel context.CancelCauseFunc

	mu   sync.Mutex
	done map[string]int
}

var errFound = errors.New("a fault was found")

// Run runs a soak. The error says that the run itself did not work; what it found out
// about the product is in the result.
func Run(ctx context.Context, cfg Config) (Result, error) {
	cfg.Limit = cmp.Or(cfg.Limit, cfg.TTL+time.Second)
	r := &run{cfg: cfg, dir: cfg.Dir, done: make(map[string]int), names: namesOf(cfg.Names)}
	if r.dir == "" {
		dir, err := os.MkdirTemp("", "redlatch-soak")
		if err != nil {
			return Result{}, err
		}
		defer os.RemoveAll(dir)
		r.dir = dir
	}
	var err error
	if r.server, err = servertest.StartRedis(ctx, servertest.RedisConfig{}); err != nil {
		return Result{}, err
	}
	defer r.server.Close()
	if r.group, err = servertest.NewGroup(); err != nil {
		return Result{}, err
	}
	defer r.group.End()
	if r.log, err = history.OpenLog(r.dir, "director"); err != nil {
		return Result{}, err
	}
	if err := r.fight(ctx); err != nil {
		return Result{}, err
	}
	return r.judge()
}

func namesOf(n int) []string {
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("orders/%d", i))
	}
	return names
}

func (r *run) fight(ctx context.Context) error {
	ctx, r.cancel = context.WithCancelCause(ctx)
	defer r.cancel(nil)
	ctx, stop := context.WithTimeout(ctx, r.cfg.Duration)
	defer stop()

	for i := range r.cfg.Processes {
		s := &slot{run: r, number: i + 1}
		r.slots = append(r.slots, s)
		if err := s.start(); err != nil {
			return err
		}
	}
	r.work.Go(func() { r.fails(r.watch(ctx)) })
	if r.cfg.Until != "" {
		r.work.Go(func() { r.fails(r.look(ctx)) })
	}
	r.fails(r.disturb(ctx, rand.New(rand.NewPCG(r.cfg.Seed, 0))))
	r.work.Wait()

	// What comes now, the end, is not what is judged.
	over := history.Now()
	r.log.Add(history.Record{Kind: history.Over, At: over})
	for _, s := range r.slots {
		r.work.Go(func() { r.fails(s.end()) })
	}
	r.work.Wait()
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errFound), errors.Is(cause, context.DeadlineExceeded):
		return nil
	default:
		return cause
	}
}

// fails ends the run with an error of the run itself.
func (r *run) fails(err error) {
	if err != nil {
		r.cancel(err)
	}
}

// look ends the run once the record shows what is looked for.
func (r *run) look(ctx context.Context) error {
	for pause(ctx, time.Second) {
		now := history.Now()
		records, err := history.Read(r.dir)
		if err != nil {
			return err
		}
		v, err := history.Check(append(records, history.Record{Kind: history.Over, At: now}), r.cfg.Limit)
		if err != nil {
			return err
		}
		if v.Count(r.cfg.Until) > 0 {
			return errFound
		}
	}
	return nil
}

func (r *run) judge() (Result, error) {
	left, err := r.left()
	if err != nil {
		return Result{}, err
	}
	if err := r.log.Close(); err != nil {
		return Result{}, err
	}
	records, err := history.Read(r.dir)
	if err != nil {
		return Result{}, err
	}
	v, err := history.Check(records, r.cfg.Limit)
	if err != nil {
		return Result{}, err
	}
	res := Result{Verdict: v, Done: r.done, Ends: make(map[string]int), Left: left}
	for _, rec := range records {
		if rec.Kind == history.Gave || rec.Kind == history.Ended {
			what, _, _ := strings.Cut(rec.Note, ":")
			res.Ends[what]++
			if what == lostEarly || what == unheardOf {
				res.Odd = append(res.Odd, rec.Note)
			}
		}
	}
	return res, nil
}

// left returns the names that are locked still when every lease must be over.
func (r *run) left() ([]string, error) {
	for deadline := time.Now().Add(r.cfg.Limit); ; {
		var left []string
		for _, name := range r.names {
			value, err := r.server.Do("GET", keyOf(name))
			if err != nil {
				return nil, err
			}
			if value != nil {
				left = append(left, name)
			}
		}
		if len(left) == 0 || time.Now().After(deadline) {
			return left, nil
		}
	}
}

// keyOf is where redisstore keeps a name, with the default prefix.
func keyOf(name string) string { return "lock:" + name }

// pause reports whether that time passed before ctx ended.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
