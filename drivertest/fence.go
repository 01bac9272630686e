package drivertest

import (
	"fmt"
	"time"

	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/lease"
)

var fenceSubjects = []subject{
	{file: "fence", says: "tickets grow over releases, expiries, withdrawals and processes", play: ticketsGrow, needs: fences},
	{file: "fence", says: "a new ticket comes with the one before it", play: prevTicket, needs: fences},
	{file: "fence", says: "a place in the queue comes with the ticket before it", play: prevTicketQueued, needs: func(f driver.Features) bool { return f.Fence && f.FIFO }},
	{file: "fence", says: "a proposed ticket is taken if it is higher", play: proposedTicket, needs: fences},
	{file: "fence", says: "a renewal of a held claim can raise the last ticket", play: renewalRaises, needs: fences},
	{file: "fence", says: "the room below a ticket is nobody else's", play: room, needs: fences},
}

func fences(f driver.Features) bool { return f.Fence }

func ticketsGrow(w *world) {
	ps := []*process{w.process(), w.process()}
	var last uint64
	grows := func(st lease.Standing, how string) {
		w.Helper()
		if st.Ticket <= last {
			w.Errorf("ticket %d %s, after %d", st.Ticket, how, last)
		}
		last = st.Ticket
	}
	for i := range 30 {
		p, c := ps[i%2], w.claim()
		st := p.holds(w.name(), c)
		grows(st, "after a release")
		if i%3 == 0 {
			other := w.claim()
			if st := ps[(i+1)%2].queues(w.name(), other); w.features.FIFO {
				grows(st, "in the queue")
			}
			ps[(i+1)%2].leaves(w.name(), other, lease.Waiting)
		}
		if got := p.leaves(w.name(), c, lease.Held); got.Ticket != st.Ticket {
			w.Errorf("held with ticket %d, left with %d", st.Ticket, got.Ticket)
		}
	}
	grows(ps[0].holds(w.name(), w.claim(ttl(w.features.MinTTL*2))), "before an expiry")
	ps[0].expires(w.name())
	grows(ps[1].holds(w.name(), w.claim()), "after an expiry")
	if q := ps[0].inspect(w.name()); q.Last != last {
		w.Errorf("the name's last ticket is %d, want %d", q.Last, last)
	}
}

func prevTicket(w *world) {
	a, b := w.process(), w.process()
	mine, other := w.claim(), w.claim()
	first := a.holds(w.name(), mine)
	if first.Prev >= first.Ticket {
		w.Errorf("the first ticket is %d, the one before it %d", first.Ticket, first.Prev)
	}
	a.leaves(w.name(), mine, lease.Held)
	w.follows(b.holds(w.name(), other), first)
}

func prevTicketQueued(w *world) {
	a, b := w.process(), w.process()
	mine, other := w.claim(), w.claim()
	first := a.holds(w.name(), mine)
	queued := b.queues(w.name(), other)
	if queued.Prev != first.Ticket {
		w.Errorf("the ticket before is %d, want %d", queued.Prev, first.Ticket)
	}
	b.leaves(w.name(), other, lease.Waiting)
	a.leaves(w.name(), mine, lease.Held)
	w.follows(b.holds(w.name(), w.claim()), queued)
}

// follows: a name that nobody uses may be forgotten as long as its tickets go on growing.
// Then the one before is not known (0), or only that it was not higher than this.
func (w *world) follows(st, before lease.Standing) {
	w.Helper()
	if st.Prev < before.Ticket && st.Prev != 0 || st.Prev >= st.Ticket || st.Ticket <= before.Ticket {
		w.Errorf("ticket %d, the one before is %d, want %d", st.Ticket, st.Prev, before.Ticket)
	}
}

func proposedTicket(w *world) {
	a := w.process()
	mine := w.claim()
	natural := a.holds(w.name(), mine)
	a.leaves(w.name(), mine, lease.Held)

	propose := func(f uint64) func(*lease.Claim) { return func(c *lease.Claim) { c.Fence = f } }
	const second = 1_000_000 // tickets follow the clock, in microseconds

	// A name that was free for a while may be forgotten; what it gave may not be given again.
	pause(w.Context(), 20*time.Millisecond)
	late := w.claim(propose(natural.Ticket - second))
	st := a.holds(w.name(), late)
	if st.Ticket <= natural.Ticket {
		w.Errorf("ticket %d, proposed was %d after %d", st.Ticket, natural.Ticket-second, natural.Ticket)
	}
	a.leaves(w.name(), late, lease.Held)

	high := natural.Ticket + 3600*second
	c := w.claim(propose(high))
	if st := a.holds(w.name(), c); st.Ticket != high {
		w.Errorf("ticket %d, proposed was %d after %d", st.Ticket, high, natural.Ticket)
	}
	a.leaves(w.name(), c, lease.Held)
	low := w.claim(propose(natural.Ticket))
	if st := a.holds(w.name(), low); st.Ticket <= high {
		w.Errorf("ticket %d, proposed was %d after %d: tickets grow", st.Ticket, natural.Ticket, high)
	}
	a.leaves(w.name(), low, lease.Held)
	if st := a.holds(w.name(), w.claim()); st.Ticket <= high+1 {
		w.Errorf("ticket %d after %d", st.Ticket, high+1)
	}
}

func renewalRaises(w *world) {
	a, b := w.process(), w.process()
	mine, waits := w.claim(), w.claim()
	held := a.holds(w.name(), mine)
	queued := b.queues(w.name(), waits)
	const hour = 3_600_000_000
	high := held.Ticket + hour

	if st := a.raise(w.name(), mine, held.Ticket, long, high); st.State != lease.Held || st.Ticket != held.Ticket {
		w.Errorf("raised while held: %v with ticket %d, want it held with %d", st.State, st.Ticket, held.Ticket)
	}
	if st := a.raise(w.name(), mine, held.Ticket, long, held.Ticket+1); st.State != lease.Held {
		w.Errorf("raised to less: %v", st.State)
	}
	// Neither a waiting claim nor one that is gone may raise it.
	b.raise(w.name(), waits, queued.Ticket, long, high+2*hour)
	b.raise(w.name(), w.claim(), held.Ticket, long, high+2*hour)
	a.raise(w.name(), mine, held.Ticket-1, long, high+2*hour)
	if q := a.inspect(w.name()); q.Last != high {
		w.Errorf("the last ticket is %d, want it raised to %d", q.Last, high)
	}
	a.leaves(w.name(), mine, lease.Held)
	b.granted(w.name(), waits, queued)
	b.leaves(w.name(), waits, lease.Held)
	if st := b.holds(w.name(), w.claim()); st.Ticket <= high || st.Ticket > high+hour {
		w.Errorf("ticket %d after one raised to %d", st.Ticket, high)
	}
}

func room(w *world) {
	a, b := w.process(), w.process()
	asks := func(n int) func(*lease.Claim) { return func(c *lease.Claim) { c.Room = n } }
	var last uint64
	var owned string
	check := func(c lease.Claim, st lease.Standing) {
		w.Helper()
		if st.Room < 0 || st.Room > c.Room {
			w.Errorf("asked for room for %d, got %d", c.Room, st.Room)
		}
		if low := st.Ticket - uint64(max(st.Room, 0)); low <= last {
			w.Errorf("tickets %d to %d are one claim's, %s", low, st.Ticket, owned)
		}
		last, owned = st.Ticket, fmt.Sprintf("%d to %d another's", st.Ticket-uint64(max(st.Room, 0)), st.Ticket)
	}
	for i := range 60 {
		c := w.claim(asks([]int{0, lease.MaxRoom, 1, 17}[w.rand.IntN(4)]))
		st := a.holds(w.name(), c)
		check(c, st)
		if again := a.holds(w.name(), c); again.Room != st.Room || again.Ticket != st.Ticket {
			w.Errorf("ticket %d with room %d, asked again %d with %d", st.Ticket, st.Room, again.Ticket, again.Room)
		}
		if i%10 != 0 {
			a.leaves(w.name(), c, lease.Held)
			continue
		}
		next := w.claim(asks(lease.MaxRoom))
		waits := b.queues(w.name(), next)
		if w.features.FIFO {
			check(next, waits)
		}
		a.leaves(w.name(), c, lease.Held)
		switch got := b.granted(w.name(), next, waits); {
		case !w.features.FIFO:
			check(next, got)
		case got.Room != waits.Room:
			w.Errorf("queued with room %d, granted with %d", waits.Room, got.Room)
		}
		b.leaves(w.name(), next, lease.Held)
	}
}
