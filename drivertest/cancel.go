package drivertest

import (
	"fmt"

	"github.com/redlatch/redlatch/lease"
)

var cancelSubjects = []subject{
	{file: "cancel", says: "a join that its own leave overtook finds that out", play: leaveBeforeJoin},
	{file: "cancel", says: "a leave that came early concerns that claim only", play: earlyLeaveIsItsOwn},
	{file: "cancel", says: "a turn that nobody noticed is handed on", play: unnoticedTurn},
	{file: "cancel", says: "leaving twice is leaving once", play: leaveTwice},
	{file: "cancel", says: "leaving without having joined disturbs nobody", play: leaveOfStranger},
	{file: "cancel", says: "a join after the leave is late or new, never the old claim", play: joinAfterLeave},
	{file: "cancel", says: "a leave with a ticket is that hold's alone", play: leaveWithTicket},
	{file: "cancel", says: "giving up in the moment of the grant leaves nothing behind", play: giveUpAtGrant},
}

func leaveBeforeJoin(w *world) {
	a, b := w.process(), w.process()
	mine := w.claim()
	a.leaves(w.name(), mine, lease.Gone)
	for _, p := range []*process{a, b, a} {
		p.joins(w.name(), mine, lease.Left)
		a.finds(w.name(), nil, nil)
	}
	// Also where somebody holds it, and the late one would have to wait.
	late := w.claim()
	a.leaves(w.name()+"/held", late, lease.Gone)
	mine = w.claim()
	b.holds(w.name()+"/held", mine)
	a.joins(w.name()+"/held", late, lease.Left)
	b.finds(w.name()+"/held", claims(mine), nil)
}

func earlyLeaveIsItsOwn(w *world) {
	a := w.process()
	mine := w.claim()
	a.leaves(w.name(), mine, lease.Gone)
	a.holds(w.name()+"/other", mine) // the same ID on another name
	a.holds(w.name(), w.claim())     // another ID on the same name
	a.joins(w.name(), mine, lease.Left)
}

func unnoticedTurn(w *world) {
	a, b, c := w.process(), w.process(), w.process()
	mine, next, last := w.claim(), w.claim(), w.claim()
	a.holds(w.name(), mine)
	b.queues(w.name(), next)
	st := c.queues(w.name(), last)
	a.leaves(w.name(), mine, lease.Held)
	if st := b.seals(w.name(), next, lease.Seal{}); st.State == lease.Waiting && w.features.FIFO {
		w.Errorf("a claim whose turn it was left as %v", st.State)
	}
	c.granted(w.name(), last, st)
	a.finds(w.name(), claims(last), nil)
}

func leaveTwice(w *world) {
	a, b := w.process(), w.process()
	mine, other := w.claim(), w.claim()
	a.holds(w.name(), mine)
	st := b.queues(w.name(), other)
	a.leaves(w.name(), mine, lease.Held)
	a.leaves(w.name(), mine, lease.Gone)
	b.granted(w.name(), other, st)
	got := a.leaves(w.name(), mine, lease.Gone)
	if got.Holder == nil || got.Holder.ID != other.ID {
		w.Errorf("a leave that came too late names %v, want the holder %s", got.Holder, other.ID)
	}
	a.finds(w.name(), claims(other), nil)
}

func leaveOfStranger(w *world) {
	a, b := w.process(), w.process()
	mine, other := w.claim(), w.claim()
	a.leaves(w.name(), w.claim(), lease.Gone)
	a.holds(w.name(), mine)
	b.queues(w.name(), other)
	b.leaves(w.name(), w.claim(), lease.Gone)
	a.finds(w.name(), claims(mine), claims(other))
}

// joinAfterLeave: a store need not remember who was here and has left. What it must not
// do is to give the old hold back.
func joinAfterLeave(w *world) {
	a := w.process()
	mine := w.claim()
	held := a.holds(w.name(), mine)
	a.leaves(w.name(), mine, lease.Held)
	switch st := a.join(w.name(), mine); {
	case st.State == lease.Left:
		a.finds(w.name(), nil, nil)
	case st.State != lease.Held || st.Ticket <= held.Ticket:
		w.Errorf("left with ticket %d; joined again it is %v with ticket %d", held.Ticket, st.State, st.Ticket)
	}
}

// leaveWithTicket: a late copy of such a leave must find nothing to harm, and what it does
// not find it must not remember.
func leaveWithTicket(w *world) {
	a, b := w.process(), w.process()
	leave := func(p *process, c lease.Claim, ticket uint64, want lease.State) {
		w.Helper()
		ctx, cancel := p.call()
		defer cancel()
		st, err := p.Leave(ctx, w.name(), c.ID, ticket, lease.Seal{})
		if err != nil || st.State != want {
			w.Fatalf("a leave with ticket %d: %v, error %v, want %v; %s", ticket, st.State, err, want, p.picture(w.name()))
		}
	}
	mine, other := w.claim(), w.claim()
	leave(a, mine, 1<<40, lease.Gone)
	st := a.holds(w.name(), mine)
	leave(a, mine, st.Ticket-1, lease.Gone)
	leave(b, mine, st.Ticket+1, lease.Gone)
	a.finds(w.name(), claims(mine), nil)
	queued := b.queues(w.name(), other)
	leave(b, other, max(queued.Ticket, 1), lease.Gone)
	b.finds(w.name(), claims(mine), claims(other))

	leave(b, mine, st.Ticket, lease.Held)
	got := b.granted(w.name(), other, queued)
	leave(a, mine, st.Ticket, lease.Gone)
	leave(b, other, got.Ticket, lease.Held)
	a.finds(w.name(), nil, nil)
}

func giveUpAtGrant(w *world) {
	a, b, c := w.process(), w.process(), w.process()
	for i := range 15 {
		name := fmt.Sprintf("%s/%d", w.name(), i)
		mine, quitter, last := w.claim(), w.claim(), w.claim()
		a.holds(name, mine)
		b.queues(name, quitter)
		st := c.queues(name, last)
		all(
			func() { a.leaves(name, mine, lease.Held) },
			func() { b.seals(name, quitter, lease.Seal{}) },
		)
		c.granted(name, last, st)
		c.finds(name, claims(last), nil)
	}
}
