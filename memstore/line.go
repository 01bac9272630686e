package memstore

import (
	"context"
	"hash/maphash"
	"slices"
	"time"

	"github.com/redlatch/redlatch/internal/elapsed"
	"github.com/redlatch/redlatch/lease"
)

// line is a name that is in use, or was until just now.
type line struct {
	queue   lease.Queue
	waiters map[string][]*waiter // callers in Wait, by claim ID

	// timer moves the queue when something in it ends. There is one per name, however
	// many claims stand there, and it is put forward only: a renewal costs nothing, the
	// timer then fires too early, once, and is set again.
	timer *time.Timer
	due   time.Time // zero: the timer does not run
}

// waiter is a caller in Wait. It is woken when its own claim's standing changes, not
// with every change of the name: of a thousand who wait, a release wakes one.
type waiter struct {
	rev  uint64
	wake chan struct{} // capacity 1
}

// Wait implements [driver.Store]. Whoever is found granted is renewed to its whole TTL
// in the same step, so its lease counts from this look: it waited for an unknown time.
//
// There is no timer against lost messages, because none can be lost here.
func (s *Store) Wait(ctx context.Context, name, id string, rev uint64) (lease.Standing, error) {
	w := &waiter{rev: rev, wake: make(chan struct{}, 1)}
	defer s.drop(name, id, w)
	for {
		if err := ended(ctx); err != nil {
			return lease.Standing{}, err
		}
		if st := s.look(name, id, w); st.Rev != rev {
			return st, nil
		}
		select {
		case <-w.wake:
		case <-ctx.Done():
		}
	}
}

// look answers where the claim stands, and in the same step enters w in the list of
// those who are told, so that no change falls between the two.
func (s *Store) look(name, id string, w *waiter) lease.Standing {
	asked := elapsed.Now()

	s.mu.Lock()
	defer s.mu.Unlock()

	now := s.now()
	l := s.line(name)
	st := dated(l.queue.Standing(id, now), asked)
	if st.Rev != w.rev && st.State == lease.Held {
		i := slices.IndexFunc(l.queue.Claims, func(e lease.Entry) bool { return e.ID == id })
		st = dated(l.queue.Renew(id, st.Ticket, l.queue.Claims[i].TTL, 0, now), asked)
	}
	if st.Rev == w.rev && !slices.Contains(l.waiters[id], w) {
		l.waiters[id] = append(l.waiters[id], w)
	}
	s.settle(name, l, now)
	return st
}

func (s *Store) drop(name, id string, w *waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()

	l := s.lines[name]
	if l == nil {
		return
	}
	left := slices.DeleteFunc(l.waiters[id], func(o *waiter) bool { return o == w })
	l.waiters[id] = left
	if len(left) == 0 {
		delete(l.waiters, id)
	}
	s.settle(name, l, s.now())
}

func (s *Store) line(name string) *line {
	l := s.lines[name]
	if l == nil {
		l = &line{queue: lease.Queue{Last: s.floor}, waiters: make(map[string][]*waiter)}
		s.lines[name] = l
	}
	return l
}

// settle follows every step: it wakes those whose standing is not what they know, and
// sees to the next thing that happens by itself.
func (s *Store) settle(name string, l *line, now time.Time) {
	l.tell()
	next, keep := l.next(now)
	if !keep {
		if l.timer != nil {
			l.timer.Stop()
		}
		s.floor = max(s.floor, l.queue.Last)
		delete(s.lines, name)
		return
	}
	if !l.due.IsZero() && !next.Before(l.due) {
		return
	}
	l.due = next
	if l.timer == nil {
		l.timer = time.AfterFunc(next.Sub(now), func() { s.tick(name, l) })
		return
	}
	l.timer.Reset(next.Sub(now))
}

func (s *Store) tick(name string, l *line) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.lines[name] != l {
		return // it was forgotten while the timer fired
	}
	l.due = time.Time{}
	now := s.now()
	l.queue.Advance(now)
	s.settle(name, l, now)
}

func (l *line) tell() {
	if len(l.waiters) == 0 {
		return
	}
	seal := l.queue.Seal()
	here := 0
	for _, e := range l.queue.Claims {
		if waiters, ok := l.waiters[e.ID]; ok {
			here++
			st := lease.Standing{State: lease.Waiting, Ticket: e.Ticket, Seal: seal}
			if e.Held() {
				st.State = lease.Held
			}
			wake(waiters, rev(st))
		}
	}
	if here == len(l.waiters) {
		return
	}
	for id, waiters := range l.waiters {
		if !slices.ContainsFunc(l.queue.Claims, func(e lease.Entry) bool { return e.ID == id }) {
			wake(waiters, rev(lease.Standing{State: lease.Gone, Seal: seal}))
		}
	}
}

func wake(waiters []*waiter, rev uint64) {
	for _, w := range waiters {
		if w.rev == rev {
			continue
		}
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

// next is when something about the name ends by itself, and whether it must be kept.
//
// A free name is forgotten once the clock alone draws tickets above its last one. One
// whose tickets are ahead of the clock is kept: else it would drive the tickets of all
// names ahead, by the floor.
func (l *line) next(now time.Time) (at time.Time, keep bool) {
	if l.queue.Idle() && len(l.waiters) == 0 {
		if last := l.queue.Last; last > uint64(now.UnixMicro()) {
			return time.UnixMicro(int64(last)), true
		}
		return time.Time{}, false
	}
	at = now.Add(lease.Tombstone) // of whoever has left too early
	for _, e := range l.queue.Claims {
		at = earlier(at, e.Expires)
	}
	if seal := l.queue.Seal(); seal.Closed() {
		at = earlier(at, l.queue.Now.Add(seal.For))
	}
	return at, true
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// dated completes an answer. The Rev is a digest of what a waiter wants to hear about:
// nothing need be counted, and a change that was undone again is none.
func dated(st lease.Standing, asked lease.Instant) lease.Standing {
	st.Asked, st.Rev = asked, rev(st)
	return st
}

var seed = maphash.MakeSeed()

// rev is never 0: whoever has seen nothing yet gets an answer at once.
func rev(st lease.Standing) uint64 {
	st.Seal.For = min(st.Seal.For, 1)
	return maphash.Comparable(seed, struct {
		lease.State
		Ticket uint64
		Seal   lease.Seal
	}{st.State, st.Ticket, st.Seal}) | 1
}
