package drivertest

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/lease"
)

var waitSubjects = []subject{
	{file: "wait", says: "a release wakes the next one", play: wokenByRelease},
	{file: "wait", says: "a lease that ends wakes the next one", play: wokenByExpiry},
	{file: "wait", says: "a withdrawal wakes whoever has its turn by it", play: wokenByWithdrawal},
	{file: "wait", says: "no change is missed between join and wait", play: noChangeMissed},
	{file: "wait", says: "an old Rev is answered at once", play: oldRevAtOnce},
	{file: "wait", says: "who was told once is told of the next change only", play: toldOnce},
	{file: "wait", says: "a claim that leaves ends its wait", play: leaveEndsWait},
	{file: "wait", says: "an unknown claim is gone", play: unknownIsGone},
	{file: "wait", says: "a wait ends with its ctx and leaves the claim in its place", play: waitEndsWithCtx},
	{file: "wait", says: "no call outlives its ctx", play: callsEndWithCtx},
	{file: "wait", says: "a grant dates from before it was asked for", play: grantIsDated},
	{file: "wait", says: "many who come and go exclude each other and all get their turn", play: crowd},
}

// soonAfter does f while the claim waits, and returns where the claim stands then.
func (p *process) soonAfter(f func(), name string, c lease.Claim, st lease.Standing) (got lease.Standing) {
	p.w.Helper()
	all(
		func() { got = p.granted(name, c, st) },
		func() {
			pause(p.w.Context(), 30*time.Millisecond) // the others sleep by then; if not, the test is only easier
			f()
		},
	)
	return got
}

func wokenByRelease(w *world) {
	a, b := w.process(), w.process()
	mine, other := w.claim(), w.claim()
	for range 3 {
		a.holds(w.name(), mine)
		st := b.queues(w.name(), other)
		b.soonAfter(func() { a.leaves(w.name(), mine, lease.Held) }, w.name(), other, st)
		b.leaves(w.name(), other, lease.Held)
		mine, other = w.claim(), w.claim()
	}
}

func wokenByExpiry(w *world) {
	a, b := w.process(), w.process()
	mine, other := w.claim(ttl(short)), w.claim()
	sent := time.Now()
	a.holds(w.name(), mine)
	st := b.queues(w.name(), other)
	b.granted(w.name(), other, st)
	if early := short - time.Since(sent); early > tolerance(short) {
		w.Errorf("granted %v before the end of a lease of %v", early, short)
	}
}

// wokenByWithdrawal: next has its turn but has not noticed when it withdraws.
func wokenByWithdrawal(w *world) {
	a, b, c := w.process(), w.process(), w.process()
	mine, next, last := w.claim(), w.claim(), w.claim()
	a.holds(w.name(), mine)
	b.queues(w.name(), next)
	st := c.queues(w.name(), last)
	c.soonAfter(func() {
		a.leaves(w.name(), mine, lease.Held)
		b.seals(w.name(), next, lease.Seal{}) // it may be gone: its process has seen that nobody waits any more
	}, w.name(), last, st)
}

func noChangeMissed(w *world) {
	a, b := w.process(), w.process()
	for range 10 {
		mine, other := w.claim(), w.claim()
		a.holds(w.name(), mine)
		st := b.queues(w.name(), other)
		a.leaves(w.name(), mine, lease.Held)
		b.granted(w.name(), other, st)
		b.leaves(w.name(), other, lease.Held)
	}
}

func oldRevAtOnce(w *world) {
	a, b := w.process(), w.process()
	mine, other := w.claim(), w.claim()
	a.holds(w.name(), mine)
	queued := b.queues(w.name(), other)
	ctx, cancel := b.call()
	defer cancel()
	st, err := b.Wait(ctx, w.name(), other.ID, 0)
	if err != nil {
		w.Fatalf("wait: %v", err)
	}
	if st.State != lease.Waiting || st.Ticket != queued.Ticket || st.Rev == 0 {
		w.Errorf("%v with ticket %d and Rev %d, want it waiting with ticket %d", st.State, st.Ticket, st.Rev, queued.Ticket)
	}
	if st.Holder == nil || st.Holder.ID != mine.ID {
		w.Errorf("the holder is %v, want %s", st.Holder, mine.ID)
	}
}

// toldOnce bounds early returns: a waiter that is told nothing new all the time is a
// busy loop in the caller.
func toldOnce(w *world) {
	a, b := w.process(), w.process()
	mine, other := w.claim(), w.claim()
	a.holds(w.name(), mine)
	st := b.queues(w.name(), other)
	ctx, cancel := context.WithTimeout(w.Context(), 300*time.Millisecond)
	defer cancel()
	for looks := 0; ; looks++ {
		next, err := b.Wait(ctx, w.name(), other.ID, st.Rev)
		if err != nil {
			return
		}
		if looks == 20 {
			w.Fatalf("wait has returned %d times within 300 ms and nothing has changed", looks)
		}
		st = next
	}
}

func leaveEndsWait(w *world) {
	a, b := w.process(), w.process()
	mine, other := w.claim(), w.claim()
	a.holds(w.name(), mine)
	st := b.queues(w.name(), other)
	all(
		func() {
			b.awaits(w.name(), other, st, func(st lease.Standing) bool { return st.State == lease.Gone }, "its end")
		},
		func() {
			pause(w.Context(), 30*time.Millisecond)
			b.leaves(w.name(), other, lease.Waiting)
		},
	)
}

func unknownIsGone(w *world) {
	a := w.process()
	ctx, cancel := a.call()
	defer cancel()
	st, err := a.Wait(ctx, w.name(), lease.NewID(), 0)
	if err != nil || st.State != lease.Gone {
		w.Errorf("%v, error %v, want it gone", st.State, err)
	}
}

func waitEndsWithCtx(w *world) {
	a, b := w.process(), w.process()
	mine, other := w.claim(), w.claim()
	a.holds(w.name(), mine)
	st := b.queues(w.name(), other)
	for _, begin := range []func() (context.Context, context.CancelFunc){
		func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(w.Context(), 50*time.Millisecond)
		},
		func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(w.Context())
			time.AfterFunc(50*time.Millisecond, cancel)
			return ctx, cancel
		},
	} {
		ctx, cancel := begin()
		for ctx.Err() == nil {
			_, err := b.Wait(ctx, w.name(), other.ID, st.Rev)
			if err != nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
				w.Errorf("the wait ended with %v, want its ctx's error", err)
			}
			if err == nil && ctx.Err() == nil {
				pause(ctx, time.Millisecond) // an early return
			}
		}
		cancel()
	}
	a.finds(w.name(), claims(mine), claims(other))
	if again := b.queues(w.name(), other); again.Ticket != st.Ticket {
		w.Errorf("ticket %d, after a wait that ended %d", st.Ticket, again.Ticket)
	}
	a.leaves(w.name(), mine, lease.Held)
	b.granted(w.name(), other, st)
}

func callsEndWithCtx(w *world) {
	a, b := w.process(), w.process()
	mine := w.claim()
	held := a.holds(w.name(), mine)
	ctx, cancel := context.WithCancel(w.Context())
	cancel()
	began := time.Now()
	if _, err := b.Join(ctx, w.name(), w.claim()); err == nil {
		w.Errorf("join with a ctx that has ended: no error")
	}
	if _, err := b.Wait(ctx, w.name(), mine.ID, held.Rev); err == nil {
		w.Errorf("wait with a ctx that has ended: no error")
	}
	for _, out := range b.Renew(ctx, []driver.Ref{ref(w.name(), mine, held.Ticket, mine.TTL, 0), ref(w.name(), mine, 1, mine.TTL, 0)}) {
		if out.Err == nil {
			w.Errorf("renew with a ctx that has ended: no error")
		}
	}
	if _, err := b.Leave(ctx, w.name(), lease.NewID(), 0, lease.Seal{}); err == nil {
		w.Errorf("leave with a ctx that has ended: no error")
	}
	if _, err := b.Inspect(ctx, w.name()); err == nil {
		w.Errorf("inspect with a ctx that has ended: no error")
	}
	if took := time.Since(began); took > time.Second {
		w.Errorf("calls whose ctx has ended took %v", took)
	}
	if st := a.renew(w.name(), mine, held.Ticket, mine.TTL); st.State != lease.Held {
		w.Errorf("the holder is %v after all that", st.State)
	}
}

// grantIsDated checks Asked and Lease together: no call may promise a lease that runs
// for longer than TTL from when the store can have given it. The clock of Asked is the
// process's own, so only differences say something.
func grantIsDated(w *world) {
	a, b := w.process(), w.process()
	ref := w.claim()
	before := time.Now()
	first := b.holds(w.name()+"/clock", ref)
	after := time.Now()

	mine, other := w.claim(), w.claim()
	a.holds(w.name(), mine)
	asked := time.Now()
	st := b.queues(w.name(), other)
	pause(w.Context(), 50*time.Millisecond)
	a.leaves(w.name(), mine, lease.Held)
	got := b.granted(w.name(), other, st)
	now := time.Now()
	// first was asked for between before and after, so this one between earliest and latest.
	since := got.Asked.Sub(first.Asked)
	earliest, latest := asked.Sub(after)-time.Millisecond, now.Sub(before)+time.Millisecond
	if since < earliest || since > latest {
		w.Errorf("the grant dates from %v after the first join, want %v to %v", since, earliest, latest)
	}
}

// crowd lets claims come, wait, give up and leave, and looks for two that hold at once
// and for one that is forgotten.
func crowd(w *world) {
	const rounds, each = 12, 3
	var inside, turns atomic.Int64
	var fence atomic.Uint64
	var fs []func()
	for range 3 {
		p := w.process()
		for range each {
			seed := w.rand.Uint64()
			fs = append(fs, func() {
				for i := range rounds {
					c := w.claim()
					if (seed>>i)&3 == 0 {
						// One that gives up, perhaps just when it is its turn.
						ctx, cancel := context.WithTimeout(w.Context(), time.Duration(seed>>32%7)*time.Millisecond)
						if st, err := p.Join(ctx, w.name(), c); err == nil && st.State == lease.Waiting {
							_, _ = p.Wait(ctx, w.name(), c.ID, st.Rev)
						}
						cancel()
						p.seals(w.name(), c, lease.Seal{})
						continue
					}
					st := p.join(w.name(), c)
					if st.State == lease.Waiting {
						st = p.granted(w.name(), c, st)
					}
					if st.State != lease.Held {
						w.Fatalf("a claim that waits is %v", st.State)
					}
					if n := inside.Add(1); n != 1 {
						w.Errorf("%d hold at once", n)
					}
					if last := fence.Swap(st.Ticket); st.Ticket <= last {
						w.Errorf("fence %d after %d", st.Ticket, last)
					}
					turns.Add(1)
					inside.Add(-1)
					p.leaves(w.name(), c, lease.Held)
				}
			})
		}
	}
	all(fs...)
	if turns.Load() == 0 {
		w.Errorf("nobody ever held it")
	}
	w.process().finds(w.name(), nil, nil)
}

// tolerance is by how much a clock of the service may run faster than ours.
func tolerance(d time.Duration) time.Duration { return d/100 + 2*time.Millisecond }
