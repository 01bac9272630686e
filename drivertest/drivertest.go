// Package drivertest is the specification of [driver.Store] in code. Every store runs
// it, on a real service:
//
//	func TestConformance(t *testing.T) {
//		drivertest.Run(t, "redisstore", func(t *testing.T) func() driver.Store {
//			server := servertest.Redis(t)
//			return func() driver.Store { return redisstore.New(client(t, server), redisstore.Options{}) }
//		})
//	}
//
// A store has no say in what is asked of it but through its Features, which stand in a
// table here: what a store cannot do it refuses, and that is tested instead.
//
// For tests of what lies above stores there is [Faulty].
package drivertest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/lease"
)

// Run holds a store against the specification.
//
// name is the store's line in the table of features. service is called once, with the
// outer test; it starts the service and returns a function that opens one more client
// process's view of it, which is called often and from several goroutines. Run closes
// the Stores, service cleans up the rest with t.Cleanup. The service may have other
// users: every test uses names of its own.
//
// The environment variable DRIVERTEST_SEED repeats the random parts of a run.
func Run(t *testing.T, name string, service func(t *testing.T) func() driver.Store) {
	open := service(t)
	store := open()
	features := store.Features()
	if err := store.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	t.Run("features/are those of the table", func(t *testing.T) { checkTable(t, name, features) })
	seed := newSeed(t)
	for _, s := range subjects(features) {
		t.Run(s.file+"/"+s.says, func(t *testing.T) {
			t.Parallel()
			s.play(newWorld(t, open, features, seed))
		})
	}
}

func newSeed(t *testing.T) uint64 {
	text := os.Getenv("DRIVERTEST_SEED")
	if text == "" {
		return rand.Uint64()
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("DRIVERTEST_SEED: %v", err)
	}
	return seed
}

// T is what a subject needs of a *testing.T. It is that narrow so that this package's
// own tests can stand in for it and see that a broken store fails.
type T interface {
	Helper()
	Cleanup(f func())
	Context() context.Context
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// subject is one thing that is said about stores.
type subject struct {
	file  string
	says  string // a sentence
	play  func(w *world)
	needs func(f driver.Features) bool // nil: every store
}

// subjects returns those that apply.
func subjects(f driver.Features) []subject {
	all := slices.Concat(queueSubjects, waitSubjects, expirySubjects, fenceSubjects, sealSubjects,
		cancelSubjects, shareSubjects, inspectSubjects, faultSubjects, modelSubjects)
	return slices.DeleteFunc(all, func(s subject) bool { return s.needs != nil && !s.needs(f) })
}

func has(modes ...lease.Mode) func(driver.Features) bool {
	return func(f driver.Features) bool {
		return !slices.ContainsFunc(modes, func(m lease.Mode) bool { return !slices.Contains(f.Modes, m) })
	}
}

func lacks(mode lease.Mode) func(driver.Features) bool {
	return func(f driver.Features) bool { return !slices.Contains(f.Modes, mode) }
}

func seals(f driver.Features) bool  { return f.Seal }
func queues(f driver.Features) bool { return f.FIFO }

const (
	// long outlasts every test, also on a machine that has much else to do.
	long = 2 * time.Minute

	// short is a lease that a test sees end. A store that hands a lock over for less
	// than its TTL gives that much.
	short = 400 * time.Millisecond

	// patience is how long a test waits for what should happen at once. A busy machine
	// must not fail it; a store that polls must not either.
	patience = 5 * time.Second
)

// world is one subject's own: its names, its processes, its dice.
type world struct {
	T
	features driver.Features
	seed     uint64
	rand     *rand.Rand
	open     func() driver.Store
	tag      string // in every name of this world
}

func newWorld(t T, open func() driver.Store, f driver.Features, seed uint64) *world {
	return &world{
		T: t, features: f, seed: seed, rand: rand.New(rand.NewPCG(seed, 0)), open: open,
		tag: lease.NewID()[:8],
	}
}

func (w *world) Errorf(format string, args ...any) {
	w.Helper()
	w.T.Errorf("%s (seed %d)", fmt.Sprintf(format, args...), w.seed)
}

func (w *world) Fatalf(format string, args ...any) {
	w.Helper()
	w.T.Fatalf("%s (seed %d)", fmt.Sprintf(format, args...), w.seed)
}

// name is the lock's that most subjects are about.
func (w *world) name() string { return "test/" + w.tag }

// claim is a new claim. The IDs are no part of what a seed repeats: a service may
// remember those of the run before.
func (w *world) claim(changes ...func(c *lease.Claim)) lease.Claim {
	c := lease.Claim{ID: lease.NewID(), TTL: long, Owner: lease.Owner{Name: "drivertest", PID: 42}}
	for _, change := range changes {
		change(&c)
	}
	return c
}

func ttl(d time.Duration) func(*lease.Claim) { return func(c *lease.Claim) { c.TTL = d } }
func noWait(c *lease.Claim)                  { c.NoWait = true }
func sealFail(c *lease.Claim)                { c.OnSeal = lease.SealFail }
func shared(c *lease.Claim)                  { c.Mode = lease.Shared }
func permits(need, slots int) func(*lease.Claim) {
	return func(c *lease.Claim) { c.Mode, c.Need, c.Slots = lease.Permit, need, slots }
}

// eventually looks until f is content, and fails with what f last found wrong.
func (w *world) eventually(f func() error) {
	w.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			w.Fatalf("after %v still: %v", patience, err)
		}
		pause(w.Context(), 5*time.Millisecond)
	}
}

// pause is the time between two looks.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// all runs the functions at once and returns when they have.
func all(fs ...func()) {
	done := make(chan struct{}, len(fs))
	for _, f := range fs {
		go func() {
			defer func() { done <- struct{}{} }() // also after a Fatalf in it
			f()
		}()
	}
	for range fs {
		<-done
	}
}
