package drivertest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/lease"
)

var sealSubjects = []subject{
	{file: "seal", says: "a seal closes the name until its time is over", play: sealCloses, needs: seals},
	{file: "seal", says: "who is told to fail at a seal is not queued", play: sealFails, needs: seals},
	{file: "seal", says: "all who wait are told of a seal, and keep their places", play: sealTellsWaiters, needs: seals},
	{file: "seal", says: "a seal's value comes back as it was", play: sealValue, needs: seals},
	{file: "seal", says: "only a holder can seal", play: onlyHoldersSeal, needs: seals},
	{file: "seal", says: "leaving again neither lifts a seal nor makes it longer", play: sealReplayed, needs: seals},
	{file: "seal", says: "a broken hold is sealed until its holder answers", play: brokenHolderAnswers, needs: seals},
	{file: "seal", says: "a broken hold is sealed until its lease is over", play: brokenHolderSilent, needs: seals},
	{file: "seal", says: "the holder of a broken hold is told by whom and why", play: brokenHolderTold, needs: tells},
	{file: "seal", says: "a break that is not to wait closes nothing", play: brokenAtOnce, needs: seals},
	{file: "seal", says: "whoever waits can be broken and seals nothing", play: brokenWaiter, needs: seals},
	{file: "seal", says: "a sealed name is listed until its seal ends", play: sealedListed, needs: seals},
	{file: "seal", says: "a store without seals refuses them", play: sealRefused, needs: func(f driver.Features) bool { return !f.Seal }},
}

func sealCloses(w *world) {
	a, b := w.process(), w.process()
	mine, other := w.claim(), w.claim()
	a.holds(w.name(), mine)
	sent := time.Now()
	if st := a.seals(w.name(), mine, lease.Seal{For: short, Value: "done"}); st.State != lease.Held {
		w.Fatalf("the holder left as %v", st.State)
	}
	if q := a.inspect(w.name()); len(q.Claims) != 0 || q.Seal().Value != "done" || q.Seal().For > short {
		if time.Since(sent) < short {
			w.Errorf("sealed for %v with %q: inspect finds %d claims, a seal for %v with %q", short, "done", len(q.Claims), q.Seal().For, q.Seal().Value)
		}
	}
	st := b.join(w.name(), other)
	if st.State == lease.Held && time.Since(sent) > short {
		return // the machine slept
	}
	if st.State != lease.Waiting || st.Seal.Value != "done" || st.Seal.For <= 0 || st.Seal.For > short {
		w.Errorf("joined a sealed name: %v, the seal is for %v with %q", st.State, st.Seal.For, st.Seal.Value)
	}
	b.granted(w.name(), other, st)
	if lasted := time.Since(sent); lasted < short-tolerance(short) {
		w.Errorf("a seal for %v was over after %v", short, lasted)
	}
	if q := a.inspect(w.name()); q.Seal().Closed() {
		w.Errorf("the seal still lasts for %v when the lock is held again", q.Seal().For)
	}
}

func sealFails(w *world) {
	a, b := w.process(), w.process()
	mine := w.claim()
	a.holds(w.name(), mine)
	a.seals(w.name(), mine, lease.Seal{For: long, Value: "done"})
	for _, c := range []lease.Claim{w.claim(sealFail), w.claim(noWait), w.claim(noWait, sealFail)} {
		st := b.joins(w.name(), c, lease.Busy)
		if st.Seal.Value != "done" || st.Seal.For <= 0 || st.Seal.For > long || st.Holder != nil {
			w.Errorf("busy with a seal for %v with %q and holder %v", st.Seal.For, st.Seal.Value, st.Holder)
		}
	}
	a.finds(w.name(), nil, nil)
}

func sealTellsWaiters(w *world) {
	a, b, c := w.process(), w.process(), w.process()
	mine, first, second := w.claim(), w.claim(), w.claim(sealFail)
	a.holds(w.name(), mine)
	sts := []lease.Standing{b.queues(w.name(), first), c.queues(w.name(), second)}
	sealed := func(st lease.Standing) bool { return st.State == lease.Waiting && st.Seal.Closed() }
	all(
		func() { sts[0] = b.awaits(w.name(), first, sts[0], sealed, "the seal") },
		func() { sts[1] = c.awaits(w.name(), second, sts[1], sealed, "the seal") },
		func() {
			pause(w.Context(), 30*time.Millisecond)
			a.seals(w.name(), mine, lease.Seal{For: 3 * short, Value: "v"})
		},
	)
	for _, st := range sts {
		if st.Seal.Value != "v" || st.Seal.For > 3*short {
			w.Errorf("told of a seal for %v with %q", st.Seal.For, st.Seal.Value)
		}
	}
	c.leaves(w.name(), second, lease.Waiting)
	b.granted(w.name(), first, sts[0])
}

func sealValue(w *world) {
	a, b := w.process(), w.process()
	var every strings.Builder
	for i := range 256 {
		every.WriteByte(byte(i))
	}
	for i, value := range []string{"", "ü→🔒", "a\nb\x00c", every.String(), strings.Repeat("x", lease.MaxSealValue)} {
		name := fmt.Sprintf("%s/%d", w.name(), i)
		mine := w.claim()
		a.holds(name, mine)
		a.seals(name, mine, lease.Seal{For: long, Value: value})
		if st := b.joins(name, w.claim(sealFail), lease.Busy); st.Seal.Value != value || !st.Seal.Closed() {
			w.Errorf("sealed with %q for %v, found %q for %v", value, long, st.Seal.Value, st.Seal.For)
		}
		if q := b.inspect(name); q.Seal().Value != value {
			w.Errorf("sealed with %q, inspect finds %q", value, q.Seal().Value)
		}
	}
}

// Nobody has the name any more, and what was kept of who had it may be gone.
func sealedListed(w *world) {
	a, b, operator := w.process(), w.process(), w.process()
	names := []string{w.name() + "/broken", w.name() + "/left", w.name() + "/short"}
	broken, left, brief := w.claim(), w.claim(), w.claim()
	a.holds(names[0], broken)
	a.holds(names[1], left)
	a.holds(names[2], brief)
	operator.seals(names[0], broken, lease.Seal{For: long, Victim: broken.ID, By: "ops"})
	a.seals(names[1], left, lease.Seal{For: long, Value: "done"})
	a.seals(names[2], brief, lease.Seal{For: 3 * short, Value: "done"})
	sent := time.Now()
	if listed := b.list(w.name()); time.Since(sent) < short && !slices.Contains(listed, names[2]) {
		w.Errorf("a name that is sealed for %v is not listed", 3*short)
	}
	b.lists(w.name(), names[:2]...)
	pause(w.Context(), time.Second) // longer than a store keeps in mind what was held
	b.lists(w.name(), names[:2]...)
	a.leaves(names[0], broken, lease.Gone) // answers the break
	b.lists(w.name(), names[1])
}

func onlyHoldersSeal(w *world) {
	a, b := w.process(), w.process()
	mine, other := w.claim(), w.claim()
	a.holds(w.name(), mine)
	b.queues(w.name(), other)
	b.seals(w.name(), other, lease.Seal{For: long, Value: "waiter"})
	b.seals(w.name(), w.claim(), lease.Seal{For: long, Value: "stranger"})
	if s := a.inspect(w.name()); s.Seal().Closed() {
		w.Errorf("sealed with %q by a claim that was not held", s.Seal().Value)
	}
	a.leaves(w.name(), mine, lease.Held)
	b.seals(w.name(), w.claim(), lease.Seal{For: long, Value: "stranger"})
	b.holds(w.name(), w.claim(noWait))
}

func sealReplayed(w *world) {
	a := w.process()
	mine := w.claim()
	a.holds(w.name(), mine)
	a.seals(w.name(), mine, lease.Seal{For: long, Value: "v"})
	a.seals(w.name(), mine, lease.Seal{For: 3 * long, Value: "w"})
	a.seals(w.name(), mine, lease.Seal{})
	q := a.inspect(w.name())
	if s := q.Seal(); s.Value != "v" || s.For <= long-4*patience || s.For > long {
		w.Errorf("sealed for %v with %q, after more leaves for %v with %q", long, "v", s.For, s.Value)
	}
}

// broken is a name whose holder an operator has broken; other waits for it.
func (w *world) broken(ttls time.Duration) (victim, other *process, mine, waits lease.Claim, held, queued lease.Standing) {
	w.Helper()
	victim, other, operator := w.process(), w.process(), w.process()
	mine, waits = w.claim(ttl(ttls)), w.claim()
	held = victim.holds(w.name(), mine)
	queued = other.queues(w.name(), waits)
	by := lease.Seal{For: ttls, Victim: mine.ID, By: "ops@web-1", Reason: "it hangs: ü\n\"quote\""}
	if st := operator.seals(w.name(), mine, by); st.State != lease.Held {
		w.Fatalf("broken as %v", st.State)
	}
	operator.seals(w.name(), mine, by) // again: the reply was lost
	return victim, other, mine, waits, held, queued
}

func brokenHolderAnswers(w *world) {
	victim, other, mine, waits, held, queued := w.broken(long)
	other.finds(w.name(), nil, claims(waits))
	other.queues(w.name(), waits)
	other.joins(w.name(), w.claim(noWait), lease.Busy)

	st := victim.renew(w.name(), mine, held.Ticket, long)
	if st.State != lease.Gone || st.Seal.Victim != mine.ID || st.Seal.By != "ops@web-1" || st.Seal.Reason != "it hangs: ü\n\"quote\"" {
		w.Errorf("the broken holder renews: %v, broken by %q: %q (victim %s)", st.State, st.Seal.By, st.Seal.Reason, st.Seal.Victim)
	}
	other.soonAfter(func() { victim.leaves(w.name(), mine, lease.Gone) }, w.name(), waits, queued)
}

func brokenHolderSilent(w *world) {
	sent := time.Now()
	_, other, _, waits, _, queued := w.broken(3 * short)
	other.granted(w.name(), waits, queued)
	if lasted := time.Since(sent); lasted < 3*short-tolerance(3*short) {
		w.Errorf("a hold of %v was broken, and after %v another one had the lock", 3*short, lasted)
	}
}

func tells(f driver.Features) bool { return f.Seal && f.Push }

// brokenHolderTold breaks with a seal, with none (then nothing but the notice says why),
// and with one whose end is not the holder's answer. A store may begin to listen only for holds that last, so they last longer and
// longer.
func brokenHolderTold(w *world) {
	victim, operator := w.process(), w.process()
	told := make(chan driver.Notice, 64)
	defer victim.Notify(func(n driver.Notice) {
		if strings.HasPrefix(n.Name, w.name()) {
			told <- n
		}
	})()
	for _, seal := range []lease.Seal{{For: long}, {}, {For: long, Victim: lease.NewID(), Value: "taken"}} {
		seal.By, seal.Reason = "ops@web-1", "it hangs: ü\n\"quote\""
		tries := 0
		w.eventually(func() error {
			tries++
			name, mine := fmt.Sprintf("%s/%v/%sx/%d", w.name(), seal.For, seal.Value, tries), w.claim()
			victim.holds(name, mine)
			pause(w.Context(), time.Duration(tries-1)*patience/20)
			by := seal
			by.Victim = cmp.Or(seal.Victim, mine.ID)
			operator.seals(name, mine, by)
			for waited := time.After(patience / 10); ; {
				select {
				case n := <-told:
					if n.ID != mine.ID {
						continue // an earlier try's
					}
					if n.Name != name || n.Seal.By != seal.By || n.Seal.Reason != seal.Reason {
						w.Errorf("told that %q was broken by %q: %q", n.Name, n.Seal.By, n.Seal.Reason)
					}
					return nil
				case <-waited:
					return fmt.Errorf("the holder is not told that it was broken")
				}
			}
		})
	}
}

func brokenAtOnce(w *world) {
	victim, other, operator := w.process(), w.process(), w.process()
	mine, waits := w.claim(), w.claim()
	victim.holds(w.name(), mine)
	queued := other.queues(w.name(), waits)
	other.soonAfter(func() {
		if st := operator.seals(w.name(), mine, lease.Seal{Victim: mine.ID, By: "ops"}); st.State != lease.Held {
			w.Errorf("the holder was %v when it was broken", st.State)
		}
	}, w.name(), waits, queued)
	if q := operator.inspect(w.name()); q.Seal().Closed() {
		w.Errorf("closed for %v", q.Seal().For)
	}
}

func brokenWaiter(w *world) {
	a, b, operator := w.process(), w.process(), w.process()
	mine, other := w.claim(), w.claim()
	a.holds(w.name(), mine)
	queued := b.queues(w.name(), other)
	was := lease.Waiting
	if !w.features.FIFO {
		was = lease.Gone // the operator cannot see it
	}
	if st := operator.seals(w.name(), other, lease.Seal{For: long, Victim: other.ID, By: "ops"}); st.State != was {
		w.Errorf("a waiting claim is broken as %v", st.State)
	}
	if !w.features.FIFO {
		b.awaits(w.name(), other, queued, func(st lease.Standing) bool { return st.State == lease.Gone }, "its end")
	}
	a.finds(w.name(), claims(mine), nil)
	if st := b.renew(w.name(), other, queued.Ticket, long); st.State != lease.Gone {
		w.Errorf("the broken claim is %v when it is renewed", st.State)
	}
	a.leaves(w.name(), mine, lease.Held)
	a.holds(w.name(), w.claim(noWait))
}

func sealRefused(w *world) {
	a := w.process()
	mine := w.claim()
	a.holds(w.name(), mine)
	ctx, cancel := a.call()
	defer cancel()
	_, err := a.Leave(ctx, w.name(), mine.ID, 0, lease.Seal{For: long})
	w.refused(err, "leave with a seal")
	a.finds(w.name(), claims(mine), nil)
}
