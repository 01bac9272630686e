// Package lines is what one process knows about the claims that it has on a Redis server:
// when a grant that it is told of counts and from when it dates, in what order its waiters
// stand, and when each of them looks for itself because a message may have been lost.
//
// A [Book] is told what happens, when, and says what is to be done. It has no clock, does
// no I/O, starts nothing and is not safe for concurrent use: redisstore guards it with a
// mutex and sleeps in its place, and the simulator plays it on a clock of its own.
package lines

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/redlatch/redlatch/lease"
)

const (
	// Grant is the longest lease of a lock that is handed over; GRANT in prelude.lua.
	Grant = 5 * time.Second

	// lastNet is how long a claim waits at most before it looks whether it still has its
	// place, if nothing else makes anybody look.
	lastNet = 2 * time.Minute
)

// Book knows the claims that its process has joined and not left. It must know also the
// held ones: a message that gives the lock to a claim that it does not know means that
// nobody waits for the lock, and it is given back.
type Book struct {
	// Wake is called when a claim's standing, or the time of its next look, has changed.
	Wake func(*Claim)

	// Began and Ended are called for each claim that is noted, and that is struck out.
	Began, Ended func(name string)

	// Random draws from [0, n); nil is by chance.
	Random func(n int64) int64

	// Queueless: the server keeps no queue for this process, and its lines are in the order
	// of arrivals.
	Queueless bool

	claims   map[place]*Claim
	lines    map[string]*line
	waiters  int    // claims in lines
	arrivals uint64 // claims that have got a place in a line, where tickets do not say which
}

// place names a claim.
type place struct{ name, id string }

// Claim is one that the process has joined and not left.
type Claim struct {
	Name string
	ID   string

	Held   bool
	Ticket uint64
	Room   int
	Until  lease.Instant // held: the lease is over then at the latest
	Doubt  bool          // a copy of a join may still be on its way
	Gone   bool          // not known any more
	W      *Waiting      // nil if it never had to wait
}

// Waiting is what a claim needs that has to wait.
type Waiting struct {
	Claim lease.Claim
	Last  lease.Standing // as last heard; Rev counts its changes

	// Dated is the subscription whose server answered the call that Last dates from;
	// 0 where that is not known. A grant that came by another one is confirmed.
	Dated uint64
	Grant Given // the last message

	Look  lease.Instant // ask then in any case
	Waits int           // callers that sleep

	queued uint64 // the ticket (or arrival) under which it stands in its line; 0: it does not
}

// Given is what a message says that gives the lock to a claim.
type Given struct {
	Ticket       uint64
	Lease        time.Duration
	Subscription uint64        // by which it came
	At           lease.Instant // when it came
}

// Answer is what a join was answered, as far as a Book must know it.
type Answer struct {
	lease.Standing

	Foreign      bool   // the holder may go at any time and tells nobody, or has no end
	Subscribed   bool   // the server that answered knows the process's subscription
	Push         bool   // whoever releases has the right to tell
	Subscription uint64 // the one that the join named
}

// Claim returns the claim, or nil.
func (b *Book) Claim(name, id string) *Claim { return b.claims[place{name, id}] }

// Waiters is how many claims of the process stand in lines.
func (b *Book) Waiters() int { return b.waiters }

// Enroll notes the claim before its join is sent: the message that gives it the lock
// may come before the join's answer.
func (b *Book) Enroll(name string, c lease.Claim) *Claim {
	k := b.Claim(name, c.ID)
	if k == nil {
		k = &Claim{Name: name, ID: c.ID}
		b.note(k)
	}
	if k.W == nil && !c.NoWait {
		k.W = newWaiting(c)
	}
	if k.W != nil {
		k.W.Claim = c
	}
	return k
}

func newWaiting(c lease.Claim) *Waiting { return &Waiting{Claim: c, Look: lease.Never} }

func (b *Book) note(k *Claim) {
	if b.claims == nil {
		b.claims, b.lines = make(map[place]*Claim), make(map[string]*line)
	}
	b.claims[place{k.Name, k.ID}] = k
	b.Began(k.Name)
}

// Forget strikes the claim out and wakes whoever waits for it. It reports whether the claim
// stood in its line.
func (b *Book) Forget(name, id string, now lease.Instant) (k *Claim, waited bool) {
	if k = b.Claim(name, id); k != nil {
		waited = k.W != nil && k.W.queued != 0
		b.strike(k, now)
		b.unanswered(k, now)
	}
	return k, waited
}

// unanswered sees to it that the others of the process look, where a claim is given up that
// was handed the lock and has not been heard of since: when such a grant is over, the server
// takes the process for frozen, and all its places for that name are gone.
func (b *Book) unanswered(k *Claim, now lease.Instant) {
	if l := b.lines[k.Name]; l != nil && k.Doubt && k.W != nil && k.W.Grant.Ticket != 0 {
		b.lookAll(l.waiting, 100*time.Millisecond, max(now, k.W.Grant.At.Add(k.W.Grant.Lease)))
	}
}

// ForgetHold strikes the claim out if it holds with that ticket, or was found to: it may have
// come back with another one. One that waits with this ticket here, and there too, goes on
// waiting.
func (b *Book) ForgetHold(name, id string, ticket uint64, found bool, now lease.Instant) {
	if k := b.Claim(name, id); k != nil && k.Ticket == ticket && (k.Held || found) {
		b.strike(k, now)
	}
}

func (b *Book) strike(k *Claim, now lease.Instant) {
	delete(b.claims, place{k.Name, k.ID})
	k.Gone = true
	b.Ended(k.Name)
	b.unqueue(k)
	if k.W != nil {
		b.Wake(k)
	}
	if k.Held {
		// Whoever has the lock next has it for a grant at least.
		b.LookIn(k.Name, Grant, now)
	}
}

// Prune strikes out held claims that were given up without a word: their leases were over
// a minute ago, and nobody has left them.
func (b *Book) Prune(now lease.Instant) {
	var over []*Claim
	for _, k := range b.claims {
		if k.Held && k.Until.Add(time.Minute) < now {
			over = append(over, k)
		}
	}
	slices.SortFunc(over, func(x, y *Claim) int { return cmp.Compare(x.ID, y.ID) })
	for _, k := range over {
		b.strike(k, now)
	}
}

// Remember says what a leave of the claim (nil: one that is not known here) writes for a
// join that comes later: a copy may be on its way if the claim is another process's, was
// left before, or is in doubt; else only if the server does not find it.
func Remember(k *Claim) string {
	if k != nil && !k.Doubt {
		return "absent"
	}
	return "always"
}

// Sent says of a join that has returned whether a copy of it may still be on its way: if it
// failed, or took so long that the client may have sent it twice.
func (k *Claim) Sent(failed bool, took, once time.Duration) {
	if failed || took >= once {
		k.Doubt = true
	}
}

// Learn takes in what a join has answered and returns the claim's standing.
func (b *Book) Learn(k *Claim, a Answer, now lease.Instant) lease.Standing {
	st := a.Standing
	if k.Gone {
		return st // it has left meanwhile; the caller's leave sees to the rest
	}
	w := k.W
	if w != nil && st.Asked < w.Last.Asked {
		return st // a later call was answered before
	}
	if st.Ticket == k.Ticket {
		st.Room = k.Room // the server does not keep it
	}
	// With another ticket than it had it has lost its place, and so perhaps has all of this
	// process here, also if it got the lock at once: nothing in the queue stopped it.
	again := k.Ticket != 0 && k.Ticket != st.Ticket && !b.Queueless
	switch st.State {
	case lease.Held:
		k.Held, k.Ticket, k.Room, k.Until = true, st.Ticket, st.Room, st.Asked.Add(st.Lease)
		b.unqueue(k)
		b.LookIn(k.Name, st.Lease, now)
		if l := b.lines[k.Name]; again && l != nil {
			b.lookAll(l.waiting, 100*time.Millisecond, now)
		}
	case lease.Waiting:
		k.Held, k.Ticket, k.Room = false, st.Ticket, st.Room
		if !b.Queueless {
			b.queue(k, st.Ticket) // else it is in its line
		}
		b.schedule(k.Name, a, now)
		b.shareSeal(k, st.Seal)
		// The look that made this call has been put off when it was sent. What is nearer was
		// asked for since, and this answer may be from before the reason for it.
		w.Dated, w.Look = 0, min(w.Look, b.nextLook(now))
		if a.Subscribed {
			w.Dated = a.Subscription
		}
		if again {
			b.lookAll(b.lines[k.Name].waiting, 100*time.Millisecond, now)
			w.Look = now.Add(lastNet)
		}
	default:
		if !k.Held {
			b.strike(k, now)
		}
		return st
	}
	if w == nil {
		return st
	}
	if w.Grant.At < st.Asked {
		w.Grant = Given{} // this answer has taken it into account
	}
	b.update(k, st)
	if st.State == lease.Waiting {
		b.take(k, now)
	}
	return w.Last
}

// take makes the claim a holder if the message that gives it the lock is there and
// counts. The lock was given after the server had answered the last join, so its lease
// counts from when that was sent.
//
// The message counts only with the ticket of that join. One that was stuck somewhere
// must not revive a claim which has lost its grant and queued again. And it counts only
// from the server that answered the join: over a fail-over or a restart, the call and
// the grant belong to two histories. Then the claim asks, and gets a fresh date.
func (b *Book) take(k *Claim, now lease.Instant) {
	w := k.W
	switch {
	case w.Grant.Ticket < k.Ticket || w.Grant.Ticket == 0:
	case w.Grant.Ticket == k.Ticket && w.Grant.Subscription == w.Dated:
		st := w.Last
		st.State, st.Lease, st.Ahead, st.Holder, st.Left, st.Seal = lease.Held, w.Grant.Lease, 0, nil, 0, lease.Seal{}
		k.Held, k.Until = true, st.Asked.Add(st.Lease)
		b.unqueue(k)
		b.LookIn(k.Name, w.Grant.Lease, now)
		b.update(k, st)
	default:
		w.Look = now
		b.Wake(k)
	}
}

// Given takes in the message that the lock is given to a claim of this process. It reports
// whether nobody here waits for it, so that it must be given back.
func (b *Book) Given(name, id string, g Given) (back bool) {
	k := b.Claim(name, id)
	if k == nil {
		return true
	}
	if k.W == nil || g.Ticket < k.W.Grant.Ticket {
		return false
	}
	// Anybody with a right to the channel can publish: no message hands over more than a hand-over does.
	g.Lease = min(g.Lease, k.W.Claim.TTL, Grant)
	k.W.Grant = g
	if !k.Held && k.W.Last.State == lease.Waiting {
		b.take(k, g.At)
	}
	return false
}

// Renewed takes in what a renewal sent at asked was answered.
func (b *Book) Renewed(name string, t lease.Token, st lease.Standing, asked, now lease.Instant) {
	k := b.Claim(name, t.ID)
	if k == nil && st.State == lease.Held {
		// Another process's hold that goes on here. Its joins are not known to this one.
		k = &Claim{Name: name, ID: t.ID, Held: true, Ticket: t.Ticket, Doubt: true}
		b.note(k)
	}
	if k == nil || !k.Held || k.Ticket != t.Ticket {
		return
	}
	switch st.State {
	case lease.Held:
		k.Until = max(k.Until, asked.Add(st.Lease))
		b.LookIn(k.Name, st.Lease, now)
	case lease.Gone:
		b.strike(k, now)
	}
}

// update takes a standing in. Rev moves on if a caller would want to know.
func (b *Book) update(k *Claim, st lease.Standing) {
	old := k.W.Last
	st.Rev = old.Rev
	changed := old.Rev == 0 || st.State != old.State || st.Ticket != old.Ticket || !sameSeal(st.Seal, old.Seal)
	if changed {
		st.Rev++
	}
	k.W.Last = st
	if changed {
		b.Wake(k)
	}
}

func sameSeal(a, b lease.Seal) bool {
	a.For, b.For = min(a.For, 1), min(b.For, 1)
	return a == b
}

// PollTime is the pause of those who are told nothing.
func (b *Book) PollTime() time.Duration { return b.jitter(50*time.Millisecond, 100*time.Millisecond) }

func (b *Book) jitter(least, spread time.Duration) time.Duration {
	if b.Random == nil {
		return least + rand.N(spread)
	}
	return least + time.Duration(b.Random(int64(spread)))
}
