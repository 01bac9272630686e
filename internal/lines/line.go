package lines

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/redlatch/redlatch/lease"
)

// line is what this process knows about a name that it waits for.
type line struct {
	waiting []*Claim      // by ticket, or arrival
	due     lease.Instant // the first one looks then: the holder's lease is over, or it is time to poll
	polls   bool          // nobody can tell this process anything, and its places last only as long as it looks
}

// Check returns where the claim stands, and when it must look for itself.
func (b *Book) Check(k *Claim) (lease.Standing, lease.Instant) {
	w := k.W
	if k.Gone {
		return lease.Standing{State: lease.Gone, Rev: w.Last.Rev + 1}, lease.Never
	}
	if k.Held {
		return w.Last, lease.Never
	}
	due := w.Look
	if w.Last.Rev == 0 {
		due = 0 // no join of it was answered
	}
	if l := b.lines[k.Name]; l != nil && l.first() == k {
		due = min(due, l.due)
	}
	return w.Last, due
}

// Looks says that the claim joins once more to see where it stands. The same call hands
// the lock to the next one in line if it is free, repairs whatever was lost, and takes a
// new place if the old one is gone. Whatever comes of it, the next one is not at once.
func (b *Book) Looks(k *Claim, now lease.Instant) {
	k.W.Look = b.nextLook(now)
	if l := b.lines[k.Name]; l != nil {
		l.due = max(l.due, now.Add(b.PollTime()))
	}
}

// Missed says that such a join brought no answer.
func (b *Book) Missed(k *Claim, now lease.Instant) { k.W.Look = min(k.W.Look, now.Add(b.PollTime())) }

// Sleeps and Wakes count those who wait for the claim: whoever looks after the name for
// all of this process must be one who does.
func (b *Book) Sleeps(k *Claim) { k.W.Waits++ }
func (b *Book) Wakes(k *Claim) {
	k.W.Waits--
	if l := b.lines[k.Name]; l != nil {
		b.rouse(l)
	}
}

// Arrive gives a claim that may wait a place in the line of this process, where the server
// has no queue. It reports how many stand before it, or that the line is full.
func (b *Book) Arrive(k *Claim, c lease.Claim) (ahead int, full bool) {
	if k.W == nil {
		k.W = newWaiting(c)
	}
	if k.W.queued == 0 {
		if l := b.lines[k.Name]; c.MaxWaiters > 0 && l != nil && len(l.waiting) >= c.MaxWaiters {
			return 0, true
		}
		b.arrivals++
		b.queue(k, b.arrivals)
	}
	ahead, _ = b.lines[k.Name].find(k.W.queued)
	return ahead, false
}

// Stands reports whether the claim has a place in its line.
func (k *Claim) Stands() bool { return k.W != nil && k.W.queued != 0 }

// Sealed says that the name was closed.
func (b *Book) Sealed(name string, seal lease.Seal, now lease.Instant) {
	if l := b.lines[name]; l != nil {
		b.tellSealed(l, seal)
		b.LookIn(name, seal.For, now)
	}
}

// shareSeal lets all who wait here know of a seal that one of them has found.
func (b *Book) shareSeal(k *Claim, seal lease.Seal) {
	if b.Queueless && seal.Closed() {
		b.tellSealed(b.lines[k.Name], seal)
	}
}

func (b *Book) tellSealed(l *line, seal lease.Seal) {
	for _, k := range l.waiting {
		st := k.W.Last
		st.Seal, st.Holder, st.Left = seal, nil, 0
		b.update(k, st)
	}
}

// Pointed says that the lock is free for others for that long; then it is the claim's turn.
func (b *Book) Pointed(name, id string, in time.Duration, now lease.Instant) {
	if k := b.Claim(name, id); k != nil && k.W != nil {
		k.W.Look = min(k.W.Look, now.Add(in+b.jitter(0, 50*time.Millisecond)))
		b.Wake(k)
	}
}

// Lost says that the queue of the name was lost, and all places in it.
func (b *Book) Lost(name string, now lease.Instant) {
	if l := b.lines[name]; l != nil {
		b.lookAll(l.waiting, 100*time.Millisecond, now)
	}
}

// LookAgain lets the claim look where it stands, if it waits.
func (b *Book) LookAgain(name, id string, now lease.Instant) {
	if k := b.Claim(name, id); k != nil && k.W != nil {
		b.lookAll([]*Claim{k}, 10*time.Millisecond, now)
	}
}

// LookEverywhere lets every claim that waits look where it stands, soon, but not all
// at once. Messages may have been lost, or the server may be another.
func (b *Book) LookEverywhere(now lease.Instant) {
	spread := min(20*time.Millisecond+time.Duration(b.waiters)*100*time.Microsecond, 2*time.Second)
	for _, name := range slices.Sorted(maps.Keys(b.lines)) { // in one order: a Random that is seeded plays one game
		b.lookAll(b.lines[name].waiting, spread, now)
	}
}

// lookAll makes each of the claims look where it stands, spread over a while.
func (b *Book) lookAll(claims []*Claim, spread time.Duration, now lease.Instant) {
	for _, k := range claims {
		k.W.Look = min(k.W.Look, now.Add(b.jitter(0, spread)))
		b.Wake(k)
	}
}

// Released says that the lock was given back here: whoever waits in this process, where
// the server has no queue, can have it at once.
func (b *Book) Released(name string, now lease.Instant) {
	if l := b.lines[name]; l != nil {
		l.due = now
		b.rouse(l)
	}
}

// schedule says when the first waiter looks again, after an answer.
func (b *Book) schedule(name string, a Answer, now lease.Instant) {
	b.lines[name].polls = !a.Subscribed || !a.Push
	switch {
	case a.Foreign:
		b.LookIn(name, b.PollTime(), now)
	case a.Seal.Closed():
		b.LookIn(name, a.Seal.For, now)
	case a.Holder == nil:
		b.LookIn(name, b.PollTime(), now)
	default:
		b.LookIn(name, a.Left, now)
	}
}

// LookIn says that nothing needs to be looked at for d. The expiry of a key is never
// heard of by itself: the server's events for it came 10 to 45 s late.
func (b *Book) LookIn(name string, d time.Duration, now lease.Instant) {
	if l := b.lines[name]; l != nil {
		if l.polls {
			d = min(d, b.PollTime())
		}
		l.due = now.Add(d + b.jitter(2*time.Millisecond, 5*time.Millisecond))
		b.rouse(l)
	}
}

// Dues are when the first waiter of each name looks.
func (b *Book) Dues() map[string]lease.Instant {
	dues := make(map[string]lease.Instant)
	for name, l := range b.lines {
		dues[name] = l.due
	}
	return dues
}

// nextLook is when a claim that waits looks for itself whether it still has its place. It
// cannot lose one that is in this process.
func (b *Book) nextLook(now lease.Instant) lease.Instant {
	if b.Queueless {
		return lease.Never
	}
	return now.Add(b.jitter(lastNet, lastNet/4))
}

// queue and unqueue keep the process's own waiters of the name in order of their
// tickets.
func (b *Book) queue(k *Claim, rank uint64) {
	if k.W.queued == rank {
		return
	}
	b.unqueue(k)
	l := b.lines[k.Name]
	if l == nil {
		l = &line{due: lease.Never}
		b.lines[k.Name] = l
	}
	k.W.queued = rank
	i, _ := l.find(rank)
	l.waiting = slices.Insert(l.waiting, i, k)
	b.waiters++
}

func (b *Book) unqueue(k *Claim) {
	l := b.lines[k.Name]
	if l == nil || k.W == nil || k.W.queued == 0 {
		return
	}
	i, ok := l.find(k.W.queued)
	k.W.queued = 0
	if !ok {
		return
	}
	l.waiting = slices.Delete(l.waiting, i, i+1)
	b.waiters--
	if len(l.waiting) == 0 {
		delete(b.lines, k.Name)
		return
	}
	if i == 0 {
		b.rouse(l)
	}
}

func (l *line) find(rank uint64) (int, bool) {
	return slices.BinarySearchFunc(l.waiting, rank, func(k *Claim, t uint64) int { return cmp.Compare(k.W.queued, t) })
}

// first is the one who looks after the name for all of this process: the first of
// those whose callers are waiting.
func (l *line) first() *Claim {
	for _, k := range l.waiting {
		if k.W.Waits > 0 {
			return k
		}
	}
	return nil
}

// rouse lets the first one see that it is the first, or that due has changed.
func (b *Book) rouse(l *line) {
	if k := l.first(); k != nil {
		b.Wake(k)
	}
}
