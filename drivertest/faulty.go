package drivertest

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/lease"
)

// ErrLost is what a [Faulty] answers instead of a reply, inside a *driver.Fault that
// says Unavailable.
var ErrLost = errors.New("the call was lost")

// Faults are the chances, of 1, of what a [Faulty] does to a call; the first three
// exclude each other.
type Faults struct {
	LoseRequest float64 // it does not reach the service
	LoseReply   float64 // it takes effect, and the caller does not learn it
	Late        float64 // the caller is told that it is lost, and then it takes effect
	Twice       float64 // it is carried out twice, and the second reply counts

	Delay time.Duration // each call takes up to that much longer
	Lag   time.Duration // how late a late one is, at most
}

// Faulty is a Store on a bad network: it loses, delays and repeats the calls of the
// Store within. Names and Features are left alone. It is safe for concurrent use; of
// calls at once, chance and not the seed decides which one is hit.
//
// It does what any store must do on such a network: if a join of a claim got no answer,
// a copy of it may come even after a second one was answered and the claim has left.
//
//	join   ------------ late ------------------.
//	join   -> held                              |
//	leave  -> was held                          v
//	                            the lock is taken, and nobody knows
//
// The service cannot know of the copy. So Leave is then carried out again until it finds
// nothing, which is remembered: with two copies under way the second leave may find what
// the first copy took, and the other copy is still to come.
type Faulty struct {
	driver.Store

	mu     sync.Mutex
	faults Faults
	rand   *rand.Rand
	doubt  map[string]bool // by claim ID: a join of it was not answered
	late   sync.WaitGroup
}

// NewFaulty returns a Faulty that takes its dice from the seed.
func NewFaulty(s driver.Store, seed uint64, f Faults) *Faulty {
	return &Faulty{Store: s, faults: f, rand: rand.New(rand.NewPCG(seed, 1)), doubt: make(map[string]bool)}
}

// Set changes the faults from the next call on.
func (f *Faulty) Set(faults Faults) {
	f.mu.Lock()
	defer f.mu.Unlock()

	f.faults = faults
}

// Settle returns when every late call has been carried out. No call may be begun
// meanwhile.
func (f *Faulty) Settle() { f.late.Wait() }

// Close settles and closes the Store within.
func (f *Faulty) Close() error {
	f.Settle()
	return f.Store.Close()
}

func (f *Faulty) Join(ctx context.Context, name string, c lease.Claim) (lease.Standing, error) {
	var st lease.Standing
	var err error
	fault := f.call(ctx, func(ctx context.Context) { st, err = f.Store.Join(ctx, name, c) })
	if fault != nil {
		f.doubts(c.ID, true)
		return lease.Standing{}, fault
	}
	return st, err
}

// doubts reports whether a join of the claim was left unanswered, or is now.
func (f *Faulty) doubts(id string, now bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()

	f.doubt[id] = f.doubt[id] || now
	return f.doubt[id]
}

func (f *Faulty) Renew(ctx context.Context, refs []driver.Ref) []driver.Outcome {
	var out []driver.Outcome
	refs = slices.Clone(refs) // the caller's again when this returns
	fault := f.call(ctx, func(ctx context.Context) { out = f.Store.Renew(ctx, refs) })
	if fault == nil {
		return out
	}
	lost := make([]driver.Outcome, len(refs))
	for i := range lost {
		lost[i].Err = fault
	}
	return lost
}

func (f *Faulty) Leave(ctx context.Context, name, id string, ticket uint64, s lease.Seal) (lease.Standing, error) {
	var st lease.Standing
	var err error
	again := ticket == 0 && f.doubts(id, false)
	fault := f.call(ctx, func(ctx context.Context) {
		st, err = f.Store.Leave(ctx, name, id, ticket, s)
		for found := again; found && err == nil; {
			var there lease.Standing
			there, err = f.Store.Leave(ctx, name, id, ticket, s)
			found = there.State == lease.Held || there.State == lease.Waiting
		}
	})
	if fault != nil {
		return lease.Standing{}, fault
	}
	st.Once = false
	return st, err
}

func (f *Faulty) Wait(ctx context.Context, name, id string, rev uint64) (st lease.Standing, err error) {
	fault := f.once(ctx, func(ctx context.Context) { st, err = f.Store.Wait(ctx, name, id, rev) })
	if fault != nil {
		return lease.Standing{}, fault
	}
	return st, err
}

func (f *Faulty) Inspect(ctx context.Context, name string) (q lease.Queue, err error) {
	fault := f.once(ctx, func(ctx context.Context) { q, err = f.Store.Inspect(ctx, name) })
	if fault != nil {
		return lease.Queue{}, fault
	}
	return q, err
}

func (f *Faulty) Node(ctx context.Context) (n lease.Node, err error) {
	fault := f.once(ctx, func(ctx context.Context) { n, err = f.Store.Node(ctx) })
	if fault != nil {
		return lease.Node{}, fault
	}
	return n, err
}

// once is for calls that change nothing: when they come, or how often, is nobody's matter.
func (f *Faulty) once(ctx context.Context, do func(context.Context)) error {
	return f.play(ctx, do, func(n *Faults) { n.LoseRequest, n.Late, n.Twice = n.LoseRequest+n.Late, 0, 0 })
}

func (f *Faulty) call(ctx context.Context, do func(context.Context)) error {
	return f.play(ctx, do, func(*Faults) {})
}

func (f *Faulty) play(ctx context.Context, do func(context.Context), change func(*Faults)) error {
	f.mu.Lock()
	odds := f.faults
	change(&odds)
	dice, twice := f.rand.Float64(), f.rand.Float64() < odds.Twice
	delay, lag := f.below(odds.Delay), f.below(odds.Lag)
	f.mu.Unlock()

	lost := &driver.Fault{Kind: driver.Unavailable, Err: ErrLost}
	if delay > 0 {
		pause(ctx, delay)
	}
	switch {
	case dice < odds.LoseRequest:
		return lost
	case dice < odds.LoseRequest+odds.Late:
		// Its caller has gone on, and what it writes its answer to is nobody's any more.
		f.late.Go(func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
			defer cancel()
			pause(ctx, lag)
			do(ctx)
		})
		return lost
	}
	do(ctx)
	if twice {
		do(ctx)
	}
	if dice < odds.LoseRequest+odds.Late+odds.LoseReply {
		return lost
	}
	return nil
}

func (f *Faulty) below(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return time.Duration(f.rand.Int64N(int64(d)))
}
