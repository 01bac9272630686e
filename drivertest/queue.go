package drivertest

import (
	"errors"
	"strings"

	"github.com/redlatch/redlatch/lease"
)

var queueSubjects = []subject{
	{file: "queue", says: "one holds and the others wait", play: oneHolds},
	{file: "queue", says: "claims are granted in the order of their tickets", play: inOrder, needs: queues},
	{file: "queue", says: "a claim that does not wait is never queued", play: noWaitIsNotQueued},
	{file: "queue", says: "a claim that does not wait passes no queue", play: noWaitPassesNobody, needs: queues},
	{file: "queue", says: "the same join again is the same claim", play: sameAgain},
	{file: "queue", says: "the same join many times at once is one claim", play: sameAtOnce},
	{file: "queue", says: "a claim ID means nothing on another name", play: idsByName},
	{file: "queue", says: "who withdraws from the middle holds nobody up", play: withdrawInTheMiddle},
	{file: "queue", says: "a bound of waiters is kept", play: boundOfWaiters},
	{file: "queue", says: "a mutex is no semaphore", play: modeConflict, needs: has(lease.Permit)},
	{file: "queue", says: "an answer names the holder", play: namesTheHolder},
	{file: "queue", says: "every legal name is a lock of its own", play: oddNames},
}

func oneHolds(w *world) {
	a, b := w.process(), w.process()
	mine, other := w.claim(), w.claim()
	st := a.holds(w.name(), mine)
	if st.Ticket == 0 || st.Lease <= 0 || st.Lease > mine.TTL {
		w.Errorf("held with ticket %d for %v of a TTL of %v", st.Ticket, st.Lease, mine.TTL)
	}
	b.queues(w.name(), other)
	b.finds(w.name(), claims(mine), claims(other))
	if got := a.leaves(w.name(), mine, lease.Held); got.Ticket != st.Ticket {
		w.Errorf("left with ticket %d, held with %d", got.Ticket, st.Ticket)
	}
}

func inOrder(w *world) {
	ps := []*process{w.process(), w.process(), w.process()}
	holder := w.claim()
	first := ps[0].holds(w.name(), holder)
	line := []lease.Claim{holder}
	standings := []lease.Standing{first}
	for i := 1; i <= 6; i++ {
		c := w.claim()
		st := ps[i%3].queues(w.name(), c)
		if last := standings[i-1].Ticket; st.Ticket <= last {
			w.Errorf("ticket %d after %d", st.Ticket, last)
		}
		if st.Ahead != i {
			w.Errorf("the claim behind %d others has %d ahead", i, st.Ahead)
		}
		line, standings = append(line, c), append(standings, st)
	}
	for i := 1; i < len(line); i++ {
		ps[(i-1)%3].leaves(w.name(), line[i-1], lease.Held)
		ps[i%3].granted(w.name(), line[i], standings[i])
		ps[0].finds(w.name(), line[i:i+1], line[i+1:])
	}
}

func noWaitIsNotQueued(w *world) {
	a, b := w.process(), w.process()
	mine, other := w.claim(), w.claim(noWait)
	a.holds(w.name(), mine)
	b.joins(w.name(), other, lease.Busy)
	b.joins(w.name(), other, lease.Busy)
	a.finds(w.name(), claims(mine), nil)
	a.leaves(w.name(), mine, lease.Held)
	a.finds(w.name(), nil, nil)
	b.holds(w.name(), other)
}

func noWaitPassesNobody(w *world) {
	a, b, c := w.process(), w.process(), w.process()
	mine, next, hasty := w.claim(), w.claim(), w.claim(noWait)
	a.holds(w.name(), mine)
	st := b.queues(w.name(), next)
	c.joins(w.name(), hasty, lease.Busy)
	a.leaves(w.name(), mine, lease.Held)
	c.joins(w.name(), hasty, lease.Busy) // nobody has told next yet that it is its turn
	b.granted(w.name(), next, st)
	c.joins(w.name(), hasty, lease.Busy)
	b.finds(w.name(), claims(next), nil)
}

func sameAgain(w *world) {
	a, b := w.process(), w.process()
	mine, other, last := w.claim(), w.claim(), w.claim()
	held := a.holds(w.name(), mine)
	waits := b.queues(w.name(), other)
	a.queues(w.name(), last)
	for range 3 {
		if st := a.holds(w.name(), mine); st.Ticket != held.Ticket || st.Room != held.Room {
			w.Errorf("held with ticket %d and room %d, asked again %d and %d", held.Ticket, held.Room, st.Ticket, st.Room)
		}
		if st := b.queues(w.name(), other); st.Ticket != waits.Ticket || st.Ahead != waits.Ahead {
			w.Errorf("queued with ticket %d behind %d, asked again %d behind %d", waits.Ticket, waits.Ahead, st.Ticket, st.Ahead)
		}
	}
	// Another process can know the ID too: the same hold goes on there.
	if st := b.holds(w.name(), mine); st.Ticket != held.Ticket {
		w.Errorf("held with ticket %d, in another process %d", held.Ticket, st.Ticket)
	}
	a.finds(w.name(), claims(mine), claims(other, last))
}

func sameAtOnce(w *world) {
	a, b := w.process(), w.process()
	mine, other := w.claim(), w.claim()
	for _, c := range []struct {
		claim lease.Claim
		state lease.State
	}{{mine, lease.Held}, {other, lease.Waiting}} {
		tickets := make([]uint64, 8)
		var fs []func()
		for i := range tickets {
			fs = append(fs, func() {
				p := a
				if c.state == lease.Held && i%2 == 1 {
					p = b
				}
				tickets[i] = p.joins(w.name(), c.claim, c.state).Ticket
			})
		}
		all(fs...)
		for _, ticket := range tickets {
			if ticket != tickets[0] {
				w.Errorf("one claim, %v, has the tickets %v", c.state, tickets)
				break
			}
		}
	}
	a.finds(w.name(), claims(mine), claims(other))
}

func idsByName(w *world) {
	a := w.process()
	mine := w.claim()
	a.holds(w.name()+"/a", mine)
	a.holds(w.name()+"/b", mine)
	a.leaves(w.name()+"/a", mine, lease.Held)
	a.finds(w.name()+"/b", claims(mine), nil)
	a.leaves(w.name()+"/c", mine, lease.Gone)
	a.holds(w.name()+"/b", mine)
}

func withdrawInTheMiddle(w *world) {
	a, b, c := w.process(), w.process(), w.process()
	holder, first, middle, last := w.claim(), w.claim(), w.claim(), w.claim()
	a.holds(w.name(), holder)
	firstSt := a.queues(w.name(), first)
	middleSt := b.queues(w.name(), middle)
	lastSt := c.queues(w.name(), last)
	if st := b.leaves(w.name(), middle, lease.Waiting); st.Ticket != middleSt.Ticket {
		w.Errorf("withdrew ticket %d, queued with %d", st.Ticket, middleSt.Ticket)
	}
	a.finds(w.name(), claims(holder), claims(first, last))
	a.leaves(w.name(), holder, lease.Held)
	a.granted(w.name(), first, firstSt)
	a.leaves(w.name(), first, lease.Held)
	c.granted(w.name(), last, lastSt)
	a.finds(w.name(), claims(last), nil)
}

func boundOfWaiters(w *world) {
	a, b := w.process(), w.process()
	atMost := func(n int) func(*lease.Claim) { return func(c *lease.Claim) { c.MaxWaiters = n } }
	holder, first, second, third := w.claim(atMost(2)), w.claim(atMost(2)), w.claim(atMost(2)), w.claim(atMost(2))
	a.holds(w.name(), holder)
	b.queues(w.name(), first)
	b.queues(w.name(), second)
	ctx, cancel := b.call()
	defer cancel()
	if st, err := b.Join(ctx, w.name(), third); !errors.Is(err, lease.ErrQueueFull) {
		w.Errorf("the third of two waiters: %v, error %v, want lease.ErrQueueFull", st.State, err)
	}
	a.finds(w.name(), claims(holder), claims(first, second))
	b.queues(w.name(), second) // it is in already
	b.leaves(w.name(), first, lease.Waiting)
	b.queues(w.name(), third)
	a.finds(w.name(), claims(holder), claims(second, third))
}

func modeConflict(w *world) {
	a, b := w.process(), w.process()
	for i, tt := range []struct{ have, want func(*lease.Claim) }{
		{permits(1, 3), func(*lease.Claim) {}},
		{func(*lease.Claim) {}, permits(1, 3)},
		{permits(1, 3), permits(1, 5)},
	} {
		name := w.name() + "/" + string(rune('a'+i))
		mine, other := w.claim(tt.have), w.claim(tt.want)
		a.holds(name, mine)
		ctx, cancel := b.call()
		defer cancel()
		st, err := b.Join(ctx, name, other)
		var conflict *lease.ModeError
		if !errors.As(err, &conflict) {
			w.Errorf("%v of %d on a name in use as %v of %d: %v, error %v, want a *lease.ModeError",
				other.Mode, other.Slots, mine.Mode, mine.Slots, st.State, err)
		} else if conflict.Have != mine.Mode || conflict.Want != other.Mode || conflict.HasSlots != mine.Slots || conflict.WantSlots != other.Slots {
			w.Errorf("the error says %+v", *conflict)
		}
		a.finds(name, claims(mine), nil)
		a.leaves(name, mine, lease.Held)
		b.holds(name, other) // once it is free it can become the other
	}
}

func namesTheHolder(w *world) {
	a, b := w.process(), w.process()
	owner := lease.Owner{
		Name: "deploy@web-3", Host: "web-3 ü", PID: 4711, Command: "a b.sh", Note: "50 % of \"x\" & y\n= \x00{}",
		Labels: map[string]string{"ring": "1", "ü.=": "…"},
	}
	mine := w.claim(func(c *lease.Claim) { c.Owner = owner })
	held := a.holds(w.name(), mine)
	for _, other := range []lease.Claim{w.claim(noWait), w.claim()} {
		st := b.join(w.name(), other)
		if st.Holder == nil {
			w.Fatalf("%v, and nobody is named", st.State)
		}
		h := st.Holder
		if h.ID != mine.ID || h.Ticket != held.Ticket || h.Foreign != "" || ownerText(h.Owner) != ownerText(owner) {
			w.Errorf("the holder is %+v, want %s with ticket %d: %+v", *h, mine.ID, held.Ticket, owner)
		}
		if st.Left <= long-patience*4 || st.Left > long {
			w.Errorf("the holder's lease of %v still has %v", long, st.Left)
		}
	}
}

// ownerText is a form of the owner that can be compared.
func ownerText(o lease.Owner) string { return lease.TokenTail(o) }

func oddNames(w *world) {
	a, b := w.process(), w.process()
	names := []string{
		"{}" + w.tag, w.tag + "{}", "{" + w.tag + "}", "{" + w.tag, w.tag + "}", "a{}b" + w.tag, "{a" + w.tag, "a}b" + w.tag,
		"}{" + w.tag, "{}{" + w.tag + "}", w.tag + "{{}}", w.tag + " with  spaces", w.tag + "/slash/es", w.tag + "/slash",
		w.tag + "ü→🔒", w.tag + "U→🔒", w.tag + "*?[a]%s%%\\\"'`$", "lock:" + w.tag, w.tag + ":queue", w.tag + ".", w.tag + "..",
		w.tag + strings.Repeat("x", lease.MaxName-len(w.tag)), w.tag + strings.Repeat("x", lease.MaxName-len(w.tag)-1),
		strings.Repeat("ü", (lease.MaxName-len(w.tag))/2) + w.tag,
		strings.ToUpper(w.tag) + "ß", strings.ToLower(w.tag) + "ß",
	}
	mine := make([]lease.Claim, len(names))
	for i, name := range names {
		if err := lease.CheckName(name); err != nil {
			w.Fatalf("the test's own name: %v", err)
		}
		mine[i] = w.claim(noWait)
		a.holds(name, mine[i])
	}
	for i, name := range names {
		other := w.claim()
		st := b.queues(name, other)
		if st.Holder == nil || st.Holder.ID != mine[i].ID {
			w.Errorf("%q is held by %v, want %s", name, st.Holder, mine[i].ID)
		}
		a.leaves(name, mine[i], lease.Held)
		b.granted(name, other, st)
		b.leaves(name, other, lease.Held)
		a.finds(name, nil, nil)
	}
}
