package lease

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// seen is what an onlooker has noted about a claim that joined. He knows the rules in
// words and none of the queue's code.
type seen struct {
	claim   Claim
	ticket  uint64
	room    int
	held    bool
	expires time.Time // the latest of what its calls have bought
	ahead   int       // claims with lower tickets when last counted
}

// onlooker holds a queue against the words:
//
//	A claim is held when it and all claims ahead of it fit into the capacity.
//	A grant is never taken back by somebody else's move. Writers do not starve.
//	Grants happen in ticket order, so the ticket is the fence. TryLock is a claim that
//	does not wait. A dead waiter falls out. A seal keeps the resource closed for a while.
type onlooker struct {
	t    *testing.T
	seed uint64
	q    *Queue
	now  time.Time
	here map[string]*seen
	last uint64 // the highest ticket
	move string

	sealed time.Time // nobody is granted before
	victim string
}

func (o *onlooker) failf(format string, args ...any) {
	o.t.Helper()
	o.t.Fatalf("%s: %s\n%s (seed %d)", o.move, fmt.Sprintf(format, args...), picture(o.q), o.seed)
}

// expire forgets what is over by the onlooker's own books.
func (o *onlooker) expire() {
	for id, s := range o.here {
		if !s.expires.After(o.now) {
			delete(o.here, id)
		}
	}
	if !o.sealed.After(o.now) {
		o.victim = ""
	}
}

func (o *onlooker) joined(c Claim, st Standing) {
	o.t.Helper()
	if s := o.here[c.ID]; s != nil {
		if st.Ticket != s.ticket || st.Room != s.room {
			o.failf("asked again: ticket %d and room %d, had %d and %d", st.Ticket, st.Room, s.ticket, s.room)
		}
		s.expires = later(s.expires, o.now.Add(c.TTL))
		return
	}
	if low := st.Ticket - uint64(st.Room); low <= o.last {
		o.failf("tickets %d to %d after %d", low, st.Ticket, o.last)
	}
	if st.Prev != o.last {
		o.failf("the ticket before was %d, it says %d", o.last, st.Prev)
	}
	if st.Room > c.Room || c.Fence > st.Ticket {
		o.failf("room %d of %d, ticket %d of a proposed %d", st.Room, c.Room, st.Ticket, c.Fence)
	}
	o.last = st.Ticket
	o.here[c.ID] = &seen{claim: c, ticket: st.Ticket, room: st.Room, expires: o.now.Add(c.TTL), ahead: 1 << 30}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// check looks at everything after a move.
func (o *onlooker) check() {
	o.t.Helper()
	entries := o.q.Claims
	if len(entries) != len(o.here) {
		o.failf("%d claims are here, want %d", len(entries), len(o.here))
	}
	if !slices.IsSortedFunc(entries, func(a, b Entry) int { return int(int64(a.Ticket) - int64(b.Ticket)) }) {
		o.failf("not in the order of tickets")
	}
	capacity, used, waits := Whole, 0, false
	closed := o.sealed.After(o.now)
	for i, e := range entries {
		s := o.here[e.ID]
		if s == nil {
			o.failf("%s is here and should have gone", e.ID)
		}
		capacity = s.claim.Capacity()
		if e.Ticket != s.ticket || !e.Expires.Equal(s.expires) {
			o.failf("%s has ticket %d until %v, want %d until %v", e.ID, e.Ticket, e.Expires, s.ticket, s.expires)
		}
		if i > s.ahead {
			o.failf("%s has fallen back from %d to %d", e.ID, s.ahead, i)
		}
		s.ahead = i
		switch {
		case e.Held() && waits:
			o.failf("%s holds behind one that waits", e.ID)
		case s.held && !e.Held():
			o.failf("%s has lost its grant by another's move", e.ID)
		case e.Held() && !s.held && closed:
			o.failf("%s was granted on a sealed name", e.ID)
		case !e.Held() && !waits && !closed && used+s.claim.Weight() <= capacity:
			o.failf("%s waits and would fit", e.ID)
		}
		if e.Held() {
			used += s.claim.Weight()
		}
		waits = waits || !e.Held()
		s.held = e.Held()
	}
	if used > capacity {
		o.failf("%d of %d is held", used, capacity)
	}
	if o.q.Last < o.last {
		o.failf("the last ticket is %d, %d was given", o.q.Last, o.last)
	}
	if o.q.Seal().Closed() != closed {
		o.failf("sealed: %v, want %v", o.q.Seal().Closed(), closed)
	}
}

func TestQueueKeepsItsWord(t *testing.T) {
	modes := map[string]func(*rand.Rand, *Claim){
		"mutex":            func(*rand.Rand, *Claim) {},
		"read-write lock":  func(r *rand.Rand, c *Claim) { c.Mode = Mode(r.IntN(2)) },
		"semaphore":        func(r *rand.Rand, c *Claim) { c.Mode, c.Slots, c.Need = Permit, 5, r.IntN(6) },
		"semaphore of one": func(_ *rand.Rand, c *Claim) { c.Mode, c.Slots = Permit, 1 },
	}
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			for range 80 {
				watch(t, rand.Uint64(), mode)
			}
		})
	}
}

func watch(t *testing.T, seed uint64, mode func(*rand.Rand, *Claim)) {
	r := rand.New(rand.NewPCG(seed, 0))
	o := &onlooker{t: t, seed: seed, q: new(Queue), now: noon, here: make(map[string]*seen)}
	left := make(map[string]time.Time) // who has left without having been here, and when that is forgotten
	var ids []string
	for step := range 200 {
		o.now = o.now.Add(time.Duration(r.IntN(4)) * time.Second)
		o.expire()
		o.move = "time passes"
		o.q.Advance(o.now)
		o.check()
		if len(ids) == 0 || r.IntN(3) == 0 {
			ids = append(ids, id(fmt.Sprint(step, "x")))
		}
		c := Claim{ID: ids[len(ids)-1-r.IntN(min(len(ids), 6))], TTL: time.Duration(1+r.IntN(20)) * time.Second}
		mode(r, &c)
		before := o.here[c.ID]
		switch r.IntN(6) {
		default:
			c.NoWait, c.OnSeal = r.IntN(4) == 0, OnSeal(r.IntN(2))
			c.MaxWaiters, c.Room = r.IntN(4), r.IntN(MaxRoom)
			if r.IntN(5) == 0 {
				c.Fence = o.last + uint64(r.IntN(1000))
			}
			o.join(c, before, left)
		case 0:
			o.renew(r, c, before)
		case 1, 2:
			o.leave(r, c, before, left)
		}
		o.check()
	}
}

func (o *onlooker) join(c Claim, before *seen, left map[string]time.Time) {
	o.move = fmt.Sprintf("join %s noWait %v onSeal %d max %d", c.ID, c.NoWait, c.OnSeal, c.MaxWaiters)
	waiters := 0
	for _, s := range o.here {
		if !s.held {
			waiters++
		}
	}
	st, err := o.q.Join(c, o.now)
	gone := left[c.ID].After(o.now)
	switch {
	case gone != (st.State == Left):
		o.failf("%v, though it has left: %v", st.State, gone)
	case gone:
	case errors.Is(err, ErrQueueFull):
		if before != nil || c.MaxWaiters == 0 || waiters < c.MaxWaiters {
			o.failf("the queue of %d is full", waiters)
		}
	case err != nil:
		o.failf("error %v", err)
	case st.State == Busy:
		if before != nil || !c.NoWait && !(c.OnSeal == SealFail && o.sealed.After(o.now)) {
			o.failf("busy, and it may wait")
		}
		// That it could not have been granted is what check sees: it would fit.
		o.wouldNotFit(c)
	case st.State == Held || st.State == Waiting:
		if before == nil && st.State == Waiting && (c.NoWait || c.MaxWaiters > 0 && waiters >= c.MaxWaiters) {
			o.failf("queued behind %d others", waiters)
		}
		o.joined(c, st)
	default:
		o.failf("it is %v", st.State)
	}
}

func (o *onlooker) wouldNotFit(c Claim) {
	used := c.Weight()
	for _, s := range o.here {
		used += s.claim.Weight()
	}
	if used <= c.Capacity() && !o.sealed.After(o.now) {
		o.failf("busy, and it fits")
	}
}

func (o *onlooker) renew(r *rand.Rand, c Claim, before *seen) {
	ticket := uint64(0)
	if before != nil && r.IntN(2) == 0 {
		ticket = before.ticket
	}
	stale := before != nil && r.IntN(3) == 0
	if stale {
		ticket = before.ticket - 1
	}
	o.move = fmt.Sprintf("renew %s with ticket %d", c.ID, ticket)
	raise := o.last + uint64(r.IntN(100))
	st := o.q.Renew(c.ID, ticket, c.TTL, raise, o.now)
	if (st.State == Gone) != (before == nil || stale) {
		o.failf("it is %v", st.State)
	}
	if st.State == Gone {
		return
	}
	before.expires = later(before.expires, o.now.Add(c.TTL))
	if st.State == Held {
		o.last = max(o.last, raise)
		if st.Lease < c.TTL {
			o.failf("renewed for %v, held for %v", c.TTL, st.Lease)
		}
	}
}

func (o *onlooker) leave(r *rand.Rand, c Claim, before *seen, left map[string]time.Time) {
	var s Seal
	switch r.IntN(5) {
	case 2:
		s = Seal{Victim: c.ID, By: "ops"} // told, and the name is not closed
	case 0:
		s = Seal{For: time.Duration(1+r.IntN(9)) * time.Second, Value: "v"}
	case 1:
		s = Seal{For: time.Hour, Victim: c.ID, By: "ops"}
	}
	o.move = fmt.Sprintf("leave %s, seal for %v, victim %q", c.ID, s.For, s.Victim)
	held := before != nil && before.held
	st := o.q.Leave(c.ID, 0, s, o.now)
	switch {
	case before == nil && st.State != Gone, before != nil && (st.State == Gone || (st.State == Held) != held):
		o.failf("it was %v", st.State)
	case before == nil:
		left[c.ID] = o.now.Add(Tombstone)
		if o.victim == c.ID && s.Victim == "" {
			o.sealed, o.victim = time.Time{}, ""
		}
	case held && s.Victim == c.ID && !s.Closed():
	case held && s.Victim == c.ID:
		o.sealed, o.victim = before.expires, c.ID
	case held && s.Closed():
		o.sealed, o.victim = o.now.Add(s.For), ""
	}
	delete(o.here, c.ID)
}
