package redisstore

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/redlatch/redlatch/internal/elapsed"
	"github.com/redlatch/redlatch/lease"
)

// known is a claim that this Store has joined and not left. The store must know also
// the held ones: a message that gives the lock to a claim that it does not know means
// that nobody waits for the lock, and it is given back.
//
// All fields but the first two are Store.mu's.
type known struct {
	name string
	id   string

	held   bool
	ticket uint64
	room   int
	until  lease.Instant // held: the lease is over then at the latest
	doubt  bool          // a copy of a join may still be on its way
	gone   bool          // not known any more
	w      *waiting      // nil if it never had to wait
}

// waiting is what a claim needs that has to wait. One struct per claim and no
// goroutine: the caller's own sleeps in Wait.
type waiting struct {
	claim lease.Claim
	last  lease.Standing // as last heard; Rev counts its changes

	// dated is the subscription whose server answered the call that last dates from;
	// 0 where that is not known. A grant that came by another one is confirmed.
	dated uint64
	grant grant // the last message

	queued  uint64        // the ticket (or arrival) under which it stands in its line; 0: it does not
	look    lease.Instant // ask then in any case
	waits   int           // callers in Wait
	changed chan struct{} // closed and renewed with each change
}

// grant is what a message says that gives the lock to a claim.
type grant struct {
	ticket       uint64
	lease        time.Duration
	subscription uint64        // by which it came
	at           lease.Instant // when it came
}

// line is what this process knows about a name that it waits for.
type line struct {
	waiting []*known      // by ticket, or arrival
	due     lease.Instant // the first one looks then: the holder's lease is over, or it is time to poll
	polls   bool          // nobody can tell this process anything, and its places last only as long as it looks
}

// lastNet is how long a claim waits at most before it looks whether it still has its
// place, if nothing else makes anybody look.
const lastNet = 2 * time.Minute

// place names a claim.
type place struct{ name, id string }

// enroll notes the claim before its join is sent: the message that gives it the lock
// may come before the join's answer.
func (s *Store) enroll(name string, c lease.Claim) *known {
	s.mu.Lock()
	defer s.mu.Unlock()

	k := s.claims[place{name, c.ID}]
	if k == nil {
		k = &known{name: name, id: c.ID}
		s.claims[place{name, c.ID}] = k
		s.index.add(name)
	}
	if k.w == nil && !c.NoWait {
		k.w = newWaiting(c)
	}
	if k.w != nil {
		k.w.claim = c
	}
	return k
}

func newWaiting(c lease.Claim) *waiting {
	return &waiting{claim: c, look: lease.Never, changed: make(chan struct{})}
}

// forget strikes the claim out and wakes whoever waits for it. It reports whether the claim
// stood in its line.
func (s *Store) forget(name, id string) (k *known, waited bool) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if k = s.claims[place{name, id}]; k != nil {
		waited = k.w != nil && k.w.queued != 0
		s.strike(k)
	}
	return k, waited
}

func (s *Store) strike(k *known) {
	delete(s.claims, place{k.name, k.id})
	k.gone = true
	s.index.remove(k.name)
	s.unqueue(k)
	if k.w != nil {
		k.w.wake()
	}
	if k.held {
		// Whoever has the lock next has it for a grant at least.
		s.lookIn(k.name, grantTime)
	}
}

// learn takes in what a join has answered and returns the claim's standing.
func (s *Store) learn(k *known, st lease.Standing, r reply, subscription uint64) lease.Standing {
	s.mu.Lock()
	defer s.mu.Unlock()

	if k.gone {
		return st // it has left meanwhile; the caller's leave sees to the rest
	}
	w := k.w
	if w != nil && st.Asked < w.last.Asked {
		return st // a later call was answered before
	}
	if st.Ticket == k.ticket {
		st.Room = k.room // the server does not keep it
	}
	// With another ticket than it had it has lost its place, and so perhaps has all of this
	// process here, also if it got the lock at once: nothing in the queue stopped it.
	again := k.ticket != 0 && k.ticket != st.Ticket && !s.queueless
	switch st.State {
	case lease.Held:
		k.held, k.ticket, k.room, k.until = true, st.Ticket, st.Room, st.Asked.Add(st.Lease)
		s.unqueue(k)
		s.lookIn(k.name, st.Lease)
		if l := s.lines[k.name]; again && l != nil {
			s.lookAll(l.waiting, 100*time.Millisecond)
		}
	case lease.Waiting:
		k.held, k.ticket, k.room = false, st.Ticket, st.Room
		if !s.queueless {
			s.queue(k, st.Ticket) // else it is in its line
		}
		s.schedule(k.name, st, r)
		s.shareSeal(k, st.Seal)
		// The look that made this call has been put off when it was sent. What is nearer was
		// asked for since, and this answer may be from before the reason for it.
		w.dated, w.look = 0, min(w.look, s.nextLook())
		if r.subscribed {
			w.dated = subscription
		}
		if again {
			s.lookAll(s.lines[k.name].waiting, 100*time.Millisecond)
			w.look = elapsed.Now().Add(lastNet)
		}
	default:
		if !k.held {
			s.strike(k)
		}
		return st
	}
	if w == nil {
		return st
	}
	if w.grant.at < st.Asked {
		w.grant = grant{} // this answer has taken it into account
	}
	w.update(st)
	if st.State == lease.Waiting {
		s.take(k)
	}
	return w.last
}

// take makes the claim a holder if the message that gives it the lock is there and
// counts. The lock was given after the server had answered the last join, so its lease
// counts from when that was sent.
//
// The message counts only with the ticket of that join. One that was stuck somewhere
// must not revive a claim which has lost its grant and queued again. And it counts only
// from the server that answered the join: over a fail-over or a restart, the call and
// the grant belong to two histories. Then the claim asks, and gets a fresh date.
func (s *Store) take(k *known) {
	w := k.w
	switch {
	case w.grant.ticket < k.ticket || w.grant.ticket == 0:
	case w.grant.ticket == k.ticket && w.grant.subscription == w.dated:
		st := w.last
		st.State, st.Lease, st.Ahead, st.Holder, st.Left, st.Seal = lease.Held, w.grant.lease, 0, nil, 0, lease.Seal{}
		k.held, k.until = true, st.Asked.Add(st.Lease)
		s.unqueue(k)
		s.lookIn(k.name, w.grant.lease)
		w.update(st)
	default:
		w.look = elapsed.Now()
		w.wake()
	}
}

// update takes a standing in. Rev moves on if a caller would want to know.
func (w *waiting) update(st lease.Standing) {
	old := w.last
	st.Rev = old.Rev
	if old.Rev == 0 || st.State != old.State || st.Ticket != old.Ticket || !sameSeal(st.Seal, old.Seal) {
		st.Rev++
		defer w.wake()
	}
	w.last = st
}

func sameSeal(a, b lease.Seal) bool {
	a.For, b.For = min(a.For, 1), min(b.For, 1)
	return a == b
}

func (w *waiting) wake() {
	close(w.changed)
	w.changed = make(chan struct{})
}

// nextLook is when a claim that waits looks for itself whether it still has its place. It
// cannot lose one that is in this process.
func (s *Store) nextLook() lease.Instant {
	if s.queueless {
		return lease.Never
	}
	return elapsed.Now().Add(jitter(lastNet, lastNet/4))
}

// queue and unqueue keep the process's own waiters of the name in order of their
// tickets.
func (s *Store) queue(k *known, rank uint64) {
	if k.w.queued == rank {
		return
	}
	s.unqueue(k)
	l := s.lines[k.name]
	if l == nil {
		l = &line{due: lease.Never}
		s.lines[k.name] = l
	}
	k.w.queued = rank
	i, _ := l.find(rank)
	l.waiting = slices.Insert(l.waiting, i, k)
	s.waiters++
}

func (s *Store) unqueue(k *known) {
	l := s.lines[k.name]
	if l == nil || k.w == nil || k.w.queued == 0 {
		return
	}
	i, ok := l.find(k.w.queued)
	k.w.queued = 0
	if !ok {
		return
	}
	l.waiting = slices.Delete(l.waiting, i, i+1)
	s.waiters--
	if len(l.waiting) == 0 {
		delete(s.lines, k.name)
		return
	}
	if i == 0 {
		l.rouse()
	}
}

func (l *line) find(rank uint64) (int, bool) {
	return slices.BinarySearchFunc(l.waiting, rank, func(k *known, t uint64) int { return cmp.Compare(k.w.queued, t) })
}

// first is the one who looks after the name for all of this process: the first of
// those whose callers are waiting.
func (l *line) first() *known {
	for _, k := range l.waiting {
		if k.w.waits > 0 {
			return k
		}
	}
	return nil
}

// rouse lets the first one see that it is the first, or that due has changed.
func (l *line) rouse() {
	if k := l.first(); k != nil {
		k.w.wake()
	}
}

// schedule says when the first waiter looks again, after an answer.
func (s *Store) schedule(name string, st lease.Standing, r reply) {
	s.lines[name].polls = !r.subscribed || !r.push
	switch {
	case r.foreign():
		s.lookIn(name, pollTime())
	case st.Seal.Closed():
		s.lookIn(name, st.Seal.For)
	case st.Holder == nil:
		s.lookIn(name, pollTime())
	default:
		s.lookIn(name, st.Left)
	}
}

// lookIn says that nothing needs to be looked at for d. The expiry of a key is never
// heard of by itself: the server's events for it came 10 to 45 s late.
func (s *Store) lookIn(name string, d time.Duration) {
	if l := s.lines[name]; l != nil {
		if l.polls {
			d = min(d, pollTime())
		}
		l.due = elapsed.Now().Add(d + jitter(2*time.Millisecond, 5*time.Millisecond))
		l.rouse()
	}
}

// lookAll makes each of the claims look where it stands, spread over a while.
func (s *Store) lookAll(claims []*known, spread time.Duration) {
	now := elapsed.Now()
	for _, k := range claims {
		k.w.look = min(k.w.look, now.Add(jitter(0, spread)))
		k.w.wake()
	}
}

// pollTime is the pause of those who are told nothing.
func pollTime() time.Duration { return jitter(50*time.Millisecond, 100*time.Millisecond) }

func jitter(least, spread time.Duration) time.Duration { return least + rand.N(spread) }

// longOver reports a hold that was given up without a word: its lease was over a
// minute ago.
func (s *Store) longOver(k *known) bool { return k.until.Add(time.Minute) < elapsed.Now() }
