package drivertest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redlatch/redlatch/lease"
)

var inspectSubjects = []subject{
	{file: "inspect", says: "everything about a name is there to see", play: inspectShows},
	{file: "inspect", says: "a name that nobody uses is empty and has the time", play: inspectFree},
	{file: "inspect", says: "what was inspected is the caller's own", play: inspectCopies},
	{file: "inspect", says: "names in use are listed, and no others", play: namesListed},
	{file: "inspect", says: "a list of names can be left half-way", play: namesLeft},
	{file: "inspect", says: "a node says who it is", play: nodeSays},
	{file: "inspect", says: "a store that is closed leaves its claims alone", play: closeLeavesClaims},
}

func inspectShows(w *world) {
	a, b := w.process(), w.process()
	owner := func(note string) func(*lease.Claim) {
		return func(c *lease.Claim) {
			c.Owner = lease.Owner{Name: "ü@h", PID: 7, Note: note, Labels: map[string]string{"k": "v"}}
		}
	}
	mine, other := w.claim(owner("one")), w.claim(owner("two"))
	held := a.holds(w.name(), mine)
	queued := b.queues(w.name(), other)
	q := b.inspect(w.name())
	hs, ws := q.Holders(), q.Waiters()
	waiters, last := claims(other), queued.Ticket
	if !w.features.FIFO {
		waiters, last = nil, held.Ticket
	}
	if len(hs) != 1 || len(ws) != len(waiters) {
		w.Fatalf("inspect finds %s", sketch(hs, ws))
	}
	h := hs[0]
	if h.Token().String() != (lease.Token{ID: mine.ID, Ticket: held.Ticket, Owner: mine.Owner}).String() {
		w.Errorf("the holder's token is %q", h.Token())
	}
	for i, c := range waiters {
		if got := ws[i].Token(); got.String() != (lease.Token{ID: c.ID, Ticket: queued.Ticket, Owner: c.Owner}).String() {
			w.Errorf("the waiter's token is %q", got)
		}
	}
	if left := h.Expires.Sub(q.Now); left <= long-4*patience || left > long {
		w.Errorf("a lease of %v has %v left", long, left)
	}
	if since := q.Now.Sub(h.Granted); since < -time.Second || since > 4*patience {
		w.Errorf("held for %v", since)
	}
	if q.Last != last {
		w.Errorf("the last ticket is %d, want %d", q.Last, last)
	}
}

func inspectFree(w *world) {
	a := w.process()
	check := func() {
		w.Helper()
		q := a.inspect(w.name())
		if len(q.Claims) != 0 || q.Seal().Closed() || q.Now.IsZero() {
			w.Errorf("%s, sealed %v, the time is %v", sketch(q.Holders(), q.Waiters()), q.Seal().Closed(), q.Now)
		}
	}
	check()
	mine := w.claim()
	a.holds(w.name(), mine)
	a.leaves(w.name(), mine, lease.Held)
	check()
}

func inspectCopies(w *world) {
	a := w.process()
	mine, other := w.claim(), w.claim()
	held := a.holds(w.name(), mine)
	a.queues(w.name(), other)
	q := a.inspect(w.name())
	for i := range q.Claims {
		q.Claims[i].Ticket = 1
	}
	q.Claims = append(q.Claims[:0], q.Claims[1:]...)
	if st := a.holds(w.name(), mine); st.Ticket != held.Ticket {
		w.Errorf("ticket %d was %d", st.Ticket, held.Ticket)
	}
	a.finds(w.name(), claims(mine), claims(other))
}

func (p *process) list(prefix string) []string {
	p.w.Helper()
	ctx, cancel := p.call()
	defer cancel()
	var names []string
	for name, err := range p.Names(ctx, prefix) {
		if err != nil {
			p.w.Fatalf("names %q: %v", prefix, err)
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// lists looks until the names are there: a store may be late with that list.
func (p *process) lists(prefix string, want ...string) {
	p.w.Helper()
	want = slices.Sorted(slices.Values(want))
	p.w.eventually(func() error {
		if got := p.list(prefix); !slices.Equal(got, want) {
			return fmt.Errorf("names %q: %q, want %q", prefix, got, want)
		}
		return nil
	})
}

func namesListed(w *world) {
	a, b := w.process(), w.process()
	root := w.name() + "*?[x]{}%ü"
	names := []string{root + "/a", root + "/a/b", root + "/b", root + " c", root + "/{a}"}
	cs := make([]lease.Claim, len(names))
	for i, name := range names {
		cs[i] = w.claim()
		[]*process{a, b}[i%2].holds(name, cs[i])
	}
	waits := w.claim()
	b.queues(names[0], waits) // no second entry
	b.lists(root, names...)
	a.lists(root+"/a", names[0], names[1])
	a.lists(root+"/a/b", names[1])
	a.lists(w.name()+"*?[x]{}%", names...)
	a.lists(w.name() + "**")
	a.lists(w.name() + "?")
	for i := range names[1:] {
		[]*process{a, b}[(i+1)%2].leaves(names[i+1], cs[i+1], lease.Held)
	}
	b.lists(root, names[0])
	if all := a.list(""); !slices.Contains(all, names[0]) {
		w.Errorf("all names: %q is not among %d", names[0], len(all))
	}
}

func namesLeft(w *world) {
	a := w.process()
	for i := range 5 {
		a.holds(fmt.Sprintf("%s/%d", w.name(), i), w.claim())
	}
	w.eventually(func() error {
		if n := len(a.list(w.name())); n != 5 {
			return fmt.Errorf("%d names of 5", n)
		}
		return nil
	})
	ctx, cancel := a.call()
	defer cancel()
	seen := 0
	for _, err := range a.Names(ctx, w.name()) {
		if err != nil {
			w.Fatalf("names: %v", err)
		}
		if seen++; seen == 2 {
			break
		}
	}
	cancel()
	for _, err := range a.Names(ctx, w.name()) {
		if err == nil {
			w.Errorf("names with a ctx that has ended: no error")
		}
		return
	}
	w.Errorf("names with a ctx that has ended: neither a name nor an error")
}

func nodeSays(w *world) {
	a, b := w.process(), w.process()
	ctx, cancel := a.call()
	defer cancel()
	first, err := a.Node(ctx)
	second, err2 := b.Node(ctx)
	if err := errors.Join(err, err2); err != nil {
		w.Fatalf("node: %v", err)
	}
	if first.ID == "" || first.ID != second.ID {
		w.Errorf("one service is the nodes %q and %q", first.ID, second.ID)
	}
	if first.Uptime < 0 || second.Clock.Before(first.Clock) {
		w.Errorf("up for %v, at %v and then %v", first.Uptime, first.Clock, second.Clock)
	}
	c := w.claim(func(c *lease.Claim) { c.Vote = true })
	if st := a.holds(w.name(), c); st.Node.ID != first.ID || st.Node.Clock.IsZero() || st.Node.Uptime < 0 || st.Node.Durable != first.Durable {
		w.Errorf("a vote is from %+v, the node says %+v", st.Node, first)
	}
	if st := a.holds(w.name()+"/silent", w.claim()); st.Node != (lease.Node{}) {
		w.Errorf("a claim that asked for no vote got %+v", st.Node)
	}
}

func closeLeavesClaims(w *world) {
	a, b := w.process(), w.process()
	mine := w.claim()
	a.holds(w.name(), mine)
	for range 2 {
		if err := a.Close(); err != nil {
			w.Errorf("close: %v", err)
		}
	}
	b.finds(w.name(), claims(mine), nil)
	b.joins(w.name(), w.claim(noWait), lease.Busy)
	b.leaves(w.name(), mine, lease.Held)
}
