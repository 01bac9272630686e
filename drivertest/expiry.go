package drivertest

import (
	"fmt"
	"time"

	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/lease"
)

var expirySubjects = []subject{
	{file: "expiry", says: "a lease lasts for its TTL and then ends", play: lasts},
	{file: "expiry", says: "renewals make a lease last", play: renewalsLast},
	{file: "expiry", says: "nothing shortens a lease", play: nothingShortens},
	{file: "expiry", says: "a renewal revives nothing", play: revivesNothing},
	{file: "expiry", says: "a claim that lost its lease comes back as a new one", play: comesBackAsNew},
	{file: "expiry", says: "an old ticket renews nothing", play: oldTicketRenewsNothing},
	{file: "expiry", says: "the late leave of one holder is nothing to the next", play: lateLeave},
	{file: "expiry", says: "a TTL below the shortest is refused", play: belowMinTTL},
	{file: "expiry", says: "one renewal of many answers for each", play: renewsMany},
	{file: "expiry", says: "a hold goes on in another process", play: goesOnElsewhere},
	{file: "expiry", says: "waiting claims that expire are renewed or fall out", play: waitersExpire,
		needs: func(f driver.Features) bool { return f.WaitersExpire }},
	{file: "expiry", says: "waiting claims that do not expire keep their place", play: waitersStay,
		needs: func(f driver.Features) bool { return !f.WaitersExpire }},
}

// untilFree asks again and again until somebody else gets the lock, and returns when the
// last call was answered that did not.
func (p *process) untilFree(name string) (last time.Time) {
	p.w.Helper()
	c := p.w.claim(noWait)
	deadline := time.Now().Add(patience)
	for {
		switch st := p.join(name, c); {
		case st.State == lease.Held:
			// When it was answered is what can be said of when it was granted, at the latest.
			return time.Now()
		case time.Now().After(deadline):
			p.w.Fatalf("the lock is still held %v after its lease should have ended; %s", patience, p.picture(name))
		}
		pause(p.w.Context(), 3*time.Millisecond)
	}
}

func lasts(w *world) {
	a, b := w.process(), w.process()
	sent := time.Now()
	a.holds(w.name(), w.claim(ttl(short)))
	got := b.untilFree(w.name())
	if lasted := got.Sub(sent); lasted < short-tolerance(short) {
		w.Errorf("a lease of %v was over after %v", short, lasted)
	}
}

func renewalsLast(w *world) {
	a, b := w.process(), w.process()
	mine := w.claim(ttl(short))
	sent := time.Now()
	held := a.holds(w.name(), mine)
	for range 4 {
		pause(w.Context(), short/2)
		renewed := time.Now()
		st := a.renew(w.name(), mine, held.Ticket, short)
		if st.State == lease.Gone && renewed.Sub(sent) > short {
			return // the machine slept through the lease; nothing is wrong with the store
		}
		if st.State != lease.Held || st.Ticket != held.Ticket || st.Lease <= 0 {
			w.Fatalf("the renewal says %v with ticket %d for %v", st.State, st.Ticket, st.Lease)
		}
		sent = renewed
	}
	got := b.untilFree(w.name())
	if lasted := got.Sub(sent); lasted < short-tolerance(short) {
		w.Errorf("a lease of %v was over %v after its last renewal", short, lasted)
	}
}

func nothingShortens(w *world) {
	a := w.process()
	mine := w.claim()
	held := a.holds(w.name(), mine)
	left := func() time.Duration {
		q := a.inspect(w.name())
		if hs := q.Holders(); len(hs) == 1 && hs[0].ID == mine.ID {
			return hs[0].Expires.Sub(q.Now)
		}
		w.Fatalf("the holder is lost; %s", a.picture(w.name()))
		return 0
	}
	const least = long - 4*patience
	if st := a.renew(w.name(), mine, held.Ticket, short); st.State != lease.Held || st.Lease < least {
		w.Errorf("a lease of %v, renewed for %v, is %v for %v", long, short, st.State, st.Lease)
	}
	if d := left(); d < least {
		w.Errorf("a lease of %v has %v left after a renewal for %v", long, d, short)
	}
	again := mine
	again.TTL = short
	if st := a.holds(w.name(), again); st.Lease < least {
		w.Errorf("a lease of %v, joined again for %v, is held for %v", long, short, st.Lease)
	}
	if d := left(); d < least {
		w.Errorf("a lease of %v has %v left after a join for %v", long, d, short)
	}
	longer := mine
	longer.TTL = 2 * long
	if st := a.holds(w.name(), longer); st.Lease < long+least {
		w.Errorf("joined again for %v, held for %v", longer.TTL, st.Lease)
	}
	if st := a.renew(w.name(), mine, held.Ticket, 3*long); st.Lease < 2*long+least {
		w.Errorf("renewed for %v, held for %v", 3*long, st.Lease)
	}
}

// expires waits until nobody is on the name any more.
func (p *process) expires(name string) {
	p.w.Helper()
	p.w.eventually(func() error {
		if q := p.inspect(name); len(q.Claims) > 0 {
			return fmt.Errorf("%q has %s", name, sketch(q.Holders(), q.Waiters()))
		}
		return nil
	})
}

func revivesNothing(w *world) {
	a := w.process()
	mine := w.claim(ttl(short))
	held := a.holds(w.name(), mine)
	a.expires(w.name())
	for range 2 {
		if st := a.renew(w.name(), mine, held.Ticket, long); st.State != lease.Gone {
			w.Errorf("a lease that was over is %v when it is renewed", st.State)
		}
		a.finds(w.name(), nil, nil)
	}
	// One that has left, and one that never was.
	again := w.claim()
	held = a.holds(w.name(), again)
	a.leaves(w.name(), again, lease.Held)
	for _, c := range []lease.Claim{again, w.claim()} {
		if st := a.renew(w.name(), c, held.Ticket, long); st.State != lease.Gone {
			w.Errorf("a claim that is not there is %v when it is renewed", st.State)
		}
		a.finds(w.name(), nil, nil)
	}
}

func comesBackAsNew(w *world) {
	a := w.process()
	mine := w.claim(ttl(short))
	held := a.holds(w.name(), mine)
	a.expires(w.name())
	mine.TTL = long
	again := a.holds(w.name(), mine)
	if again.Ticket <= held.Ticket {
		w.Errorf("lost with ticket %d, back with %d", held.Ticket, again.Ticket)
	}
}

func oldTicketRenewsNothing(w *world) {
	a, b := w.process(), w.process()
	mine := w.claim(ttl(short))
	old := a.holds(w.name(), mine)
	a.expires(w.name())
	mine.TTL = 2 * short // on a slow machine it is over too early, and everything is Gone
	now := a.holds(w.name(), mine)
	if st := a.renew(w.name(), mine, old.Ticket, long); st.State != lease.Gone {
		w.Errorf("renewed with the ticket of a lease that was lost: %v", st.State)
	}
	b.untilFree(w.name()) // the old ticket bought nothing
	if st := a.renew(w.name(), mine, now.Ticket, long); st.State != lease.Gone {
		w.Errorf("renewed after another one got the lock: %v", st.State)
	}
}

func lateLeave(w *world) {
	a, b := w.process(), w.process()
	mine, other := w.claim(ttl(short)), w.claim()
	held := a.holds(w.name(), mine)
	st := b.queues(w.name(), other)
	b.granted(w.name(), other, st)
	out := a.renew(w.name(), mine, held.Ticket, long)
	if out.State != lease.Gone || out.Holder == nil || out.Holder.ID != other.ID {
		w.Errorf("the late renewal says %v and names %v, want it gone, and %s", out.State, out.Holder, other.ID)
	}
	a.leaves(w.name(), mine, lease.Gone)
	a.finds(w.name(), claims(other), nil)
	b.holds(w.name(), other)
}

func belowMinTTL(w *world) {
	a := w.process()
	for _, d := range []time.Duration{w.features.MinTTL - 1, w.features.MinTTL / 2, 1} {
		c := w.claim(ttl(d))
		ctx, cancel := a.call()
		defer cancel()
		_, err := a.Join(ctx, w.name(), c)
		w.refused(err, fmt.Sprintf("join for %v", d))
		a.finds(w.name(), nil, nil)
	}
	c := w.claim(ttl(w.features.MinTTL))
	if st := a.join(w.name()+"/shortest", c); st.State != lease.Held {
		w.Errorf("the shortest TTL, %v: %v", c.TTL, st.State)
	}
	// Renewing for less than the shortest is refused or harmless.
	mine := w.claim()
	held := a.holds(w.name(), mine)
	out := a.renewAll(ref(w.name(), mine, held.Ticket, w.features.MinTTL-1, 0))[0]
	if out.Err == nil && (out.State != lease.Held || out.Lease < long/2) {
		w.Errorf("renewed for less than the shortest: %v for %v", out.State, out.Lease)
	}
	if out.Err != nil {
		w.refused(out.Err, "renewal for less than the shortest")
	}
	a.finds(w.name(), claims(mine), nil)
}

const anyState = lease.State(255)

func renewsMany(w *world) {
	a, b := w.process(), w.process()
	var refs []driver.Ref
	var want []lease.State
	waiting := lease.Waiting
	if !w.features.WaitersExpire {
		waiting = anyState // it need not be renewed, so what it is told is not said
	}
	for i := range 40 {
		name := fmt.Sprintf("%s/%d", w.name(), i)
		mine, other := w.claim(), w.claim()
		held := a.holds(name, mine)
		waits := b.queues(name, other)
		for _, r := range []struct {
			ref  driver.Ref
			want lease.State
		}{
			{ref(name, mine, held.Ticket, long, 0), lease.Held},
			{ref(name, w.claim(), held.Ticket, long, 0), lease.Gone},
			{ref(name, mine, held.Ticket-1, long, 0), lease.Gone},
			{ref(name+"/free", mine, held.Ticket, long, 0), lease.Gone},
			{ref(name, other, waits.Ticket, long, 0), waiting},
			{ref(name, other, held.Ticket, long, 0), lease.Gone},
		} {
			refs, want = append(refs, r.ref), append(want, r.want)
		}
	}
	w.rand.Shuffle(len(refs), func(i, j int) {
		refs[i], refs[j] = refs[j], refs[i]
		want[i], want[j] = want[j], want[i]
	})
	for range 3 { // more than a thousand in one call
		refs, want = append(refs, refs...), append(want, want...)
	}
	for i, out := range a.renewAll(refs...) {
		if out.Err != nil || out.State != want[i] && want[i] != anyState || out.State == lease.Held && out.Lease < long/2 {
			w.Fatalf("answer %d of %d is %v for %v, error %v, want %v", i, len(refs), out.State, out.Lease, out.Err, want[i])
		}
	}
	if out := a.renewAll(); len(out) != 0 {
		w.Errorf("%d answers to no question", len(out))
	}
}

func goesOnElsewhere(w *world) {
	a, b, c := w.process(), w.process(), w.process()
	mine, other := w.claim(), w.claim()
	held := a.holds(w.name(), mine)
	waits := c.queues(w.name(), other)
	if st := b.renew(w.name(), mine, held.Ticket, long); st.State != lease.Held || st.Ticket != held.Ticket {
		w.Errorf("another process renews: %v with ticket %d, want it held with %d", st.State, st.Ticket, held.Ticket)
	}
	c.soonAfter(func() { b.leaves(w.name(), mine, lease.Held) }, w.name(), other, waits)
	a.leaves(w.name(), mine, lease.Gone)
}

func waitersExpire(w *world) {
	a, b := w.process(), w.process()
	holder, silent, loud := w.claim(), w.claim(ttl(short)), w.claim(ttl(short))
	a.holds(w.name(), holder)
	lost := b.queues(w.name(), silent)
	st := b.queues(w.name(), loud)
	sent := time.Now()
	for range 4 {
		pause(w.Context(), short/3)
		at := time.Now()
		out := b.renew(w.name(), loud, st.Ticket, short)
		if out.State == lease.Gone && at.Sub(sent) > short {
			return // the machine slept
		}
		if out.State != lease.Waiting || out.Ticket != st.Ticket {
			w.Fatalf("a waiting claim that is renewed is %v with ticket %d, want it waiting with %d", out.State, out.Ticket, st.Ticket)
		}
		sent = at
	}
	b.awaits(w.name(), silent, lost, func(st lease.Standing) bool { return st.State == lease.Gone }, "its end")
	b.awaits(w.name(), loud, st, func(st lease.Standing) bool { return st.State == lease.Gone }, "its end")
	if time.Since(sent) < short-tolerance(short) {
		w.Errorf("a waiting claim's lease of %v was over %v after its renewal", short, time.Since(sent))
	}
	if again := b.queues(w.name(), silent); again.Ticket <= st.Ticket {
		w.Errorf("fell out with ticket %d, back with %d though %d was given since", lost.Ticket, again.Ticket, st.Ticket)
	}
}

func waitersStay(w *world) {
	a, b := w.process(), w.process()
	holder, other := w.claim(ttl(2*short)), w.claim(ttl(short/2))
	a.holds(w.name(), holder)
	st := b.queues(w.name(), other)
	got := b.awaits(w.name(), other, st, func(st lease.Standing) bool { return st.State == lease.Held }, "the lock")
	w.sameTicket(st, got)
}
