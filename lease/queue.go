package lease

import (
	"slices"
	"time"
)

// Queue is everything about one name: the claims in ticket order, the last ticket
// and the seal. The zero Queue is a free name.
//
// One rule grants: a claim is held when it and all claims ahead of it fit into the
// capacity. It gives a mutex, a read-write lock and a semaphore; and since nothing
// is ever put in front of a claim, a grant is not taken back by somebody else's
// move, and a writer does not starve behind readers who come later.
//
// All times are the store's. A Queue is not safe for concurrent use.
type Queue struct {
	Now    time.Time // the store's time of the last move
	Last   uint64    // the highest ticket ever given
	Claims []Entry   // in ticket order, none expired at Now

	seal  Seal
	until time.Time            // the seal's end
	left  map[string]time.Time // IDs that left before they joined, and until when that is remembered
}

// Entry is a claim that has joined.
type Entry struct {
	Claim
	Ticket  uint64
	Room    int
	Joined  time.Time
	Granted time.Time // zero: it waits
	Expires time.Time

	// Foreign is the raw value of a holder that does not use redlatch, as found in a
	// service that others lock in too. Such an entry has no ID, and no Expires where
	// that holder has no lease. An entry without Expires does not fall out.
	Foreign string
}

// Held reports whether the claim is granted.
func (e Entry) Held() bool { return !e.Granted.IsZero() }

// Token is what proves the claim's hold.
func (e Entry) Token() Token { return Token{ID: e.ID, Ticket: e.Ticket, Owner: e.Owner} }

// Holder is the entry as others see it.
func (e Entry) Holder() *Holder {
	return &Holder{ID: e.ID, Ticket: e.Ticket, Owner: e.Owner, Foreign: e.Foreign}
}

// Tombstone is how long a leave is remembered that came before its join.
const Tombstone = time.Minute

// maxAhead is how far the tickets may run ahead of the store's clock before claims
// get no room any more. A counter that is hours ahead would protect nothing when it
// is lost and drawn from the clock again.
const maxAhead = 100 * time.Millisecond

// Advance tells the queue the time: what has expired falls out, what fits now is
// granted. A clock that steps back changes nothing.
func (q *Queue) Advance(now time.Time) {
	if now.After(q.Now) {
		q.Now = now
	}
	q.Claims = slices.DeleteFunc(q.Claims, func(e Entry) bool { return !e.Expires.IsZero() && !e.Expires.After(q.Now) })
	if !q.until.After(q.Now) {
		q.seal, q.until = Seal{}, time.Time{}
	}
	for id, until := range q.left {
		if !until.After(q.Now) {
			delete(q.left, id)
		}
	}
	q.grant()
}

// grant walks the claims in ticket order as long as they fit.
func (q *Queue) grant() {
	used := 0
	for i := range q.Claims {
		e := &q.Claims[i]
		used += e.Weight()
		if used > e.Capacity() {
			return
		}
		if e.Held() {
			continue
		}
		if q.seal.Closed() {
			return
		}
		e.Granted = q.Now
	}
}

// Join asks for the name and returns where the claim stands. The same ID again is
// the same claim; its expiry is pushed to now + TTL, never pulled back. An ID that
// was here and fell out joins as new, with a new ticket.
func (q *Queue) Join(c Claim, now time.Time) (Standing, error) {
	q.Advance(now)
	if _, ok := q.left[c.ID]; ok {
		return Standing{State: Left}, nil
	}
	if i := q.find(c.ID); i >= 0 {
		q.extend(i, c.TTL)
		return q.standing(i), nil
	}
	if err := q.admits(c); err != nil {
		return Standing{}, err
	}
	if !q.fits(c) {
		if c.NoWait || c.OnSeal == SealFail && q.seal.Closed() {
			return q.busy(), nil
		}
		if c.MaxWaiters > 0 && q.waiting() >= c.MaxWaiters {
			return Standing{}, ErrQueueFull
		}
	}
	prev, room := q.Last, q.room(c)
	q.Last = NextTicket(q.Last, room, c.Fence, q.Now)
	q.Claims = append(q.Claims, Entry{
		Claim: c, Ticket: q.Last, Room: room, Joined: q.Now, Expires: q.Now.Add(c.TTL),
	})
	q.grant()
	st := q.standing(len(q.Claims) - 1)
	st.Prev = prev
	return st, nil
}

// NextTicket is the ticket after last for a claim with that much room: it grows by
// one and the room at least, and follows the clock (or the proposal of a quorum)
// where that is ahead. A hybrid logical clock: if last is lost, the clock alone
// still puts the new ticket above the old ones.
func NextTicket(last uint64, room int, proposed uint64, now time.Time) uint64 {
	floor := proposed
	if floor == 0 {
		floor = uint64(max(now.UnixMicro(), 0))
	}
	return max(last+1+uint64(room), floor)
}

func (q *Queue) room(c Claim) int {
	if ahead := int64(q.Last) - q.Now.UnixMicro(); ahead > maxAhead.Microseconds() {
		return 0
	}
	return c.Room
}

// admits refuses a claim that counts by another capacity than those who are here.
func (q *Queue) admits(c Claim) error {
	for _, e := range q.Claims {
		if e.Capacity() != c.Capacity() {
			return &ModeError{Want: c.Mode, WantSlots: c.Slots, Have: e.Mode, HasSlots: e.Slots}
		}
	}
	return nil
}

func (q *Queue) fits(c Claim) bool {
	used := c.Weight()
	for _, e := range q.Claims {
		used += e.Weight()
	}
	return used <= c.Capacity() && !q.seal.Closed()
}

func (q *Queue) waiting() int {
	n := 0
	for _, e := range q.Claims {
		if !e.Held() {
			n++
		}
	}
	return n
}

// Renew keeps a claim, waiting or held, until now + ttl at least, and answers where
// it stands. It never brings back one that is gone. ticket, if not 0, must be the
// claim's: a hold that was lost must not live on the ticket of its ID's next claim.
// fence, if higher than any ticket so far, becomes the last one.
func (q *Queue) Renew(id string, ticket uint64, ttl time.Duration, fence uint64, now time.Time) Standing {
	q.Advance(now)
	i := q.find(id)
	if i < 0 || ticket != 0 && q.Claims[i].Ticket != ticket {
		return q.gone()
	}
	q.extend(i, ttl)
	if q.Claims[i].Held() {
		q.Last = max(q.Last, min(fence, MaxTicket)) // above it tickets would begin again at 0
	}
	return q.standing(i)
}

func (q *Queue) extend(i int, ttl time.Duration) {
	e := &q.Claims[i]
	if until := q.Now.Add(ttl); until.After(e.Expires) {
		e.Expires = until
	}
}

// Leave takes a claim out and, if the seal says so, closes the name. It answers
// where the claim stood. Leaving twice, or without having joined, is no error; it is
// remembered, because the join may still be on its way.
//
// A seal is taken only with a claim that was held. One that names the claim as its
// victim lasts for what is left of the lease at this moment: the one who breaks cannot
// know it, a renewal may have come in between. The victim's own leave ends it.
//
// With a ticket only the hold with that ticket leaves; else nothing happens at all.
func (q *Queue) Leave(id string, ticket uint64, s Seal, now time.Time) Standing {
	q.Advance(now)
	i := q.find(id)
	if ticket != 0 && (i < 0 || !q.Claims[i].Held() || q.Claims[i].Ticket != ticket) {
		return q.gone()
	}
	if i < 0 {
		if q.left == nil {
			q.left = make(map[string]time.Time)
		}
		q.left[id] = q.Now.Add(Tombstone)
		if q.seal.Victim == id && s.Victim == "" {
			q.seal, q.until = Seal{}, time.Time{}
			q.grant()
		}
		return q.gone()
	}
	st := q.standing(i)
	q.Claims = slices.Delete(q.Claims, i, i+1)
	if s.Victim == id && s.Closed() {
		s.For = st.Lease
	}
	if s.Closed() && st.State == Held {
		q.seal, q.until = s, q.Now.Add(s.For)
	}
	q.grant()
	return st
}

// Standing says where a claim stands.
func (q *Queue) Standing(id string, now time.Time) Standing {
	q.Advance(now)
	if i := q.find(id); i >= 0 {
		return q.standing(i)
	}
	return q.gone()
}

// Seal returns the seal with the time that it still lasts.
func (q *Queue) Seal() Seal {
	if !q.seal.Closed() {
		return Seal{}
	}
	s := q.seal
	s.For = q.until.Sub(q.Now)
	return s
}

// SetSeal is for a store that rebuilds a queue from what it stores.
func (q *Queue) SetSeal(s Seal) { q.seal, q.until = s, q.Now.Add(s.For) }

// Holders returns the claims that are held, Waiters those that are not, both in
// ticket order.
func (q *Queue) Holders() []Entry { return q.pick(true) }
func (q *Queue) Waiters() []Entry { return q.pick(false) }

func (q *Queue) pick(held bool) []Entry {
	var out []Entry
	for _, e := range q.Claims {
		if e.Held() == held {
			out = append(out, e)
		}
	}
	return out
}

// Idle reports whether nothing about the name needs to be kept.
func (q *Queue) Idle() bool { return len(q.Claims) == 0 && !q.seal.Closed() && len(q.left) == 0 }

func (q *Queue) find(id string) int {
	return slices.IndexFunc(q.Claims, func(e Entry) bool { return e.ID == id })
}

func (q *Queue) standing(i int) Standing {
	e := q.Claims[i]
	st := Standing{State: Waiting, Ticket: e.Ticket, Room: e.Room, Ahead: i, Seal: q.Seal()}
	if e.Held() {
		st.State, st.Lease, st.Ahead = Held, e.Expires.Sub(q.Now), 0
		return st
	}
	q.name(&st)
	return st
}

func (q *Queue) gone() Standing {
	st := Standing{State: Gone, Seal: q.Seal()}
	q.name(&st)
	return st
}

func (q *Queue) busy() Standing {
	st := Standing{State: Busy, Ahead: len(q.Claims), Seal: q.Seal()}
	q.name(&st)
	return st
}

// name says who is in the way: the first holder, and when the first lease ends.
func (q *Queue) name(st *Standing) {
	for _, e := range q.Claims {
		if !e.Held() {
			continue
		}
		if left := e.Expires.Sub(q.Now); !e.Expires.IsZero() && (st.Left == 0 || left < st.Left) {
			st.Left = left
		}
		if st.Holder == nil {
			st.Holder = e.Holder()
		}
	}
}
