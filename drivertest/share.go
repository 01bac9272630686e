package drivertest

import (
	"fmt"
	"time"

	"github.com/redlatch/redlatch/lease"
)

var shareSubjects = []subject{
	{file: "share", says: "readers hold together and a writer alone", play: readersTogether, needs: has(lease.Exclusive, lease.Shared)},
	{file: "share", says: "a writer does not starve behind readers who come later", play: writerDoesNotStarve, needs: has(lease.Exclusive, lease.Shared)},
	{file: "share", says: "who waits behind a writer that withdraws gets in at once", play: writerWithdraws, needs: has(lease.Exclusive, lease.Shared)},
	{file: "share", says: "one reader's end is not the others'", play: readersExpireAlone, needs: has(lease.Shared)},
	{file: "share", says: "permits are given as long as they fit", play: permitsFit, needs: has(lease.Permit)},
	{file: "share", says: "a small claim does not pass a large one", play: smallDoesNotPass, needs: has(lease.Permit)},
	{file: "share", says: "a store without shared claims refuses them", play: refuses(shared), needs: lacks(lease.Shared)},
	{file: "share", says: "a store without permits refuses them", play: refuses(permits(1, 2)), needs: lacks(lease.Permit)},
	{file: "share", says: "a store without exclusive claims refuses them", play: refuses(func(*lease.Claim) {}), needs: lacks(lease.Exclusive)},
}

func readersTogether(w *world) {
	a, b := w.process(), w.process()
	r1, r2, writer := w.claim(shared), w.claim(shared), w.claim()
	a.holds(w.name(), r1)
	b.holds(w.name(), r2)
	st := b.queues(w.name(), writer)
	a.leaves(w.name(), r1, lease.Held)
	a.finds(w.name(), claims(r2), claims(writer))
	b.soonAfter(func() { b.leaves(w.name(), r2, lease.Held) }, w.name(), writer, st)
	r3, r4 := w.claim(shared), w.claim(shared)
	st3, st4 := a.queues(w.name(), r3), b.queues(w.name(), r4)
	a.joins(w.name(), w.claim(shared, noWait), lease.Busy)
	b.leaves(w.name(), writer, lease.Held)
	all(
		func() { a.granted(w.name(), r3, st3) },
		func() { b.granted(w.name(), r4, st4) },
	)
	a.finds(w.name(), claims(r3, r4), nil)
}

func writerDoesNotStarve(w *world) {
	a, b := w.process(), w.process()
	r1, writer, r2 := w.claim(shared), w.claim(), w.claim(shared)
	a.holds(w.name(), r1)
	st := b.queues(w.name(), writer)
	st2 := a.queues(w.name(), r2)
	a.joins(w.name(), w.claim(shared, noWait), lease.Busy)
	a.finds(w.name(), claims(r1), claims(writer, r2))
	a.leaves(w.name(), r1, lease.Held)
	b.granted(w.name(), writer, st)
	a.finds(w.name(), claims(writer), claims(r2))
	b.leaves(w.name(), writer, lease.Held)
	a.granted(w.name(), r2, st2)
}

func writerWithdraws(w *world) {
	a, b := w.process(), w.process()
	r1, writer, r2 := w.claim(shared), w.claim(), w.claim(shared)
	a.holds(w.name(), r1)
	b.queues(w.name(), writer)
	st := a.queues(w.name(), r2)
	a.soonAfter(func() { b.leaves(w.name(), writer, lease.Waiting) }, w.name(), r2, st)
	a.finds(w.name(), claims(r1, r2), nil)
}

func readersExpireAlone(w *world) {
	a, b := w.process(), w.process()
	stays, goes := w.claim(shared), w.claim(shared, ttl(short))
	a.holds(w.name(), stays)
	sent := time.Now()
	held := b.holds(w.name(), goes)
	w.eventually(func() error {
		if st := b.inspect(w.name()); len(st.Claims) != 1 {
			return fmt.Errorf("%d claims", len(st.Claims))
		}
		return nil
	})
	if lasted := time.Since(sent); lasted < short-tolerance(short) {
		w.Errorf("a lease of %v was over after %v", short, lasted)
	}
	a.finds(w.name(), claims(stays), nil)
	if st := b.renew(w.name(), goes, held.Ticket, long); st.State != lease.Gone {
		w.Errorf("a lease that was over is %v when it is renewed", st.State)
	}
	a.finds(w.name(), claims(stays), nil)
}

func permitsFit(w *world) {
	a, b := w.process(), w.process()
	one, two, third := w.claim(permits(0, 3)), w.claim(permits(2, 3)), w.claim(permits(1, 3))
	a.holds(w.name(), one)
	b.holds(w.name(), two)
	a.joins(w.name(), w.claim(permits(1, 3), noWait), lease.Busy)
	st := a.queues(w.name(), third)
	a.soonAfter(func() { a.leaves(w.name(), one, lease.Held) }, w.name(), third, st)
	a.finds(w.name(), claims(two, third), nil)
	whole := w.claim(permits(3, 3))
	st = b.queues(w.name(), whole)
	b.leaves(w.name(), two, lease.Held)
	b.queues(w.name(), whole)
	a.leaves(w.name(), third, lease.Held)
	b.granted(w.name(), whole, st)
}

func smallDoesNotPass(w *world) {
	a, b := w.process(), w.process()
	one, whole, small := w.claim(permits(1, 3)), w.claim(permits(3, 3)), w.claim(permits(1, 3))
	a.holds(w.name(), one)
	st := b.queues(w.name(), whole)
	stSmall := a.queues(w.name(), small)
	a.joins(w.name(), w.claim(permits(1, 3), noWait), lease.Busy)
	a.leaves(w.name(), one, lease.Held)
	b.granted(w.name(), whole, st)
	a.finds(w.name(), claims(whole), claims(small))
	b.leaves(w.name(), whole, lease.Held)
	a.granted(w.name(), small, stSmall)
}

func refuses(mode func(*lease.Claim)) func(w *world) {
	return func(w *world) {
		a := w.process()
		c := w.claim(mode)
		ctx, cancel := a.call()
		defer cancel()
		_, err := a.Join(ctx, w.name(), c)
		w.refused(err, c.Mode.String()+" claim")
		if q := a.inspect(w.name()); len(q.Claims) != 0 {
			w.Errorf("refused, and there are %d claims", len(q.Claims))
		}
	}
}
