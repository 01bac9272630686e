package drivertest

import (
	"context"
	"errors"
	"time"

	"github.com/redlatch/redlatch/lease"
)

var faultSubjects = []subject{
	{file: "fault", says: "a join whose reply is lost is repeated", play: joinReplyLost},
	{file: "fault", says: "a join that queues and whose reply is lost keeps its place", play: queuedReplyLost, needs: queues},
	{file: "fault", says: "a leave whose reply is lost is repeated", play: leaveReplyLost},
	{file: "fault", says: "a join that comes after its leave takes nothing", play: lateJoin},
	{file: "fault", says: "who gives up on a bad network leaves nothing behind", play: giveUpOnBadNetwork},
}

// faulty is a process on a bad network.
func (w *world) faulty(f Faults) (*process, *Faulty) {
	w.Helper()
	bad := NewFaulty(w.open(), w.rand.Uint64(), f)
	w.Cleanup(func() {
		if err := bad.Close(); err != nil {
			w.Errorf("close: %v", err)
		}
	})
	return &process{Store: bad, w: w}, bad
}

func (p *process) losesJoin(name string, c lease.Claim) {
	p.w.Helper()
	ctx, cancel := p.call()
	defer cancel()
	if st, err := p.Join(ctx, name, c); !errors.Is(err, ErrLost) {
		p.w.Fatalf("the test's own fault did not happen: %v, error %v", st.State, err)
	}
}

func joinReplyLost(w *world) {
	a, bad := w.faulty(Faults{LoseReply: 1})
	b := w.process()
	mine, other := w.claim(noWait), w.claim()
	a.losesJoin(w.name(), mine)
	held := b.queues(w.name(), other).Holder
	a.losesJoin(w.name(), mine)
	bad.Set(Faults{Twice: 1})
	if st := a.holds(w.name(), mine); held == nil || held.ID != mine.ID || held.Ticket != st.Ticket {
		w.Errorf("joined with a lost reply, others saw %v, then ticket %d", held, st.Ticket)
	}
	b.finds(w.name(), claims(mine), claims(other))
}

func queuedReplyLost(w *world) {
	a, bad := w.faulty(Faults{LoseReply: 1})
	b := w.process()
	mine, other, third := w.claim(), w.claim(), w.claim()
	b.holds(w.name(), mine)
	b.queues(w.name(), other)
	a.losesJoin(w.name(), third)
	q := b.inspect(w.name())
	before := q.Waiters()
	bad.Set(Faults{})
	if st := a.queues(w.name(), third); len(before) != 2 || before[1].Ticket != st.Ticket {
		w.Errorf("queued with a lost reply as one of %d, then with ticket %d", len(before), st.Ticket)
	}
	b.finds(w.name(), claims(mine), claims(other, third))
}

func leaveReplyLost(w *world) {
	a, bad := w.faulty(Faults{})
	b := w.process()
	mine, other := w.claim(), w.claim()
	a.holds(w.name(), mine)
	st := b.queues(w.name(), other)
	bad.Set(Faults{LoseReply: 1})
	ctx, cancel := a.call()
	defer cancel()
	for range 2 {
		if _, err := a.Leave(ctx, w.name(), mine.ID, 0, lease.Seal{}); !errors.Is(err, ErrLost) {
			w.Fatalf("the test's own fault did not happen: %v", err)
		}
	}
	b.granted(w.name(), other, st)
	bad.Set(Faults{Twice: 1})
	a.leaves(w.name(), mine, lease.Gone)
	b.finds(w.name(), claims(other), nil)
}

// lateJoin holds back the join only; the leave overtakes it.
func lateJoin(w *world) {
	a, bad := w.faulty(Faults{Late: 1, Lag: 50 * time.Millisecond})
	b := w.process()
	mine := w.claim()
	a.losesJoin(w.name(), mine)
	bad.Set(Faults{})
	a.seals(w.name(), mine, lease.Seal{}) // mostly it comes first; if not, it finds the claim
	bad.Settle()
	b.finds(w.name(), nil, nil)
	b.holds(w.name(), w.claim(noWait))
}

func giveUpOnBadNetwork(w *world) {
	a, bad := w.faulty(Faults{LoseRequest: .2, LoseReply: .2, Late: .2, Twice: .2, Delay: 2 * time.Millisecond, Lag: 10 * time.Millisecond})
	b := w.process()
	for range 20 {
		mine := w.claim(func(c *lease.Claim) { c.NoWait = w.rand.IntN(2) == 0 })
		blocker := w.claim(noWait)
		blocked := w.rand.IntN(2) == 0
		if blocked {
			b.holds(w.name(), blocker)
		}
		for range 1 + w.rand.IntN(3) {
			ctx, cancel := context.WithTimeout(w.Context(), patience)
			_, err := a.Join(ctx, w.name(), mine)
			cancel()
			if err != nil && !errors.Is(err, ErrLost) {
				w.Fatalf("join: %v", err)
			}
		}
		if blocked {
			b.leaves(w.name(), blocker, lease.Held)
		}
		a.leavesAtLast(w.name(), mine, lease.Seal{})
		bad.Settle()
		b.finds(w.name(), nil, nil)
	}
}

// leavesAtLast leaves until it is acknowledged.
func (p *process) leavesAtLast(name string, c lease.Claim, s lease.Seal) lease.Standing {
	p.w.Helper()
	for range 1000 {
		ctx, cancel := p.call()
		st, err := p.Leave(ctx, name, c.ID, 0, s)
		cancel()
		if err == nil {
			return st
		}
		if !errors.Is(err, ErrLost) {
			p.w.Fatalf("leave %q: %v", name, err)
		}
	}
	p.w.Fatalf("a thousand leaves were lost")
	return lease.Standing{}
}
