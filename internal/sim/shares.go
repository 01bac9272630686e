package sim

import (
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/redismodel"
	"github.com/redlatch/redlatch/lease"
)

// In games with shares the store is the rule itself, lease.Queue, as memstore and filestore
// keep it: readers and writers on one name, permits on another. Whoever waits asks again;
// that also keeps its place.

const permits = 3

// share makes the attempt's claim one of those.
func (w *world) share(a *attempt) {
	switch c := &a.claim; {
	case strings.HasSuffix(a.name, "1"):
		c.Mode, c.Slots, c.Need = lease.Permit, permits, w.rand.IntN(permits+1)
	case w.rand.IntN(3) > 0:
		c.Mode = lease.Shared
	}
}

// onQueue carries one call out, and looks at what it has made of the queue.
func (s *server) onQueue(name string, call func(q *lease.Queue, now time.Time)) {
	q := s.queues[name]
	if q == nil {
		q = &lease.Queue{}
		s.queues[name] = q
	}
	call(q, time.UnixMicro(s.clock()))
	used, waits := 0, uint64(0)
	for _, e := range q.Claims {
		switch {
		case s.w.judge.undo[e.ID]:
			s.w.fail("%s is on %s, and has left for good", e.ID, name)
		case e.Expires.IsZero():
			s.w.fail("%s is on %s without an end", e.ID, name)
		case !e.Held():
			waits = max(waits, 1)
		case waits > 0:
			s.w.fail("%s has %s, and somebody before it waits", e.ID, name)
		default:
			used += e.Weight()
		}
		if used > e.Capacity() {
			s.w.fail("%d of %d are granted on %s", used, e.Capacity(), name)
		}
	}
}

func (a *attempt) lookShared(joins bool) {
	p := a.wk.p
	ask := func() { a.flight = p.askShared(a.name, a.claim, a.answered) }
	if joins {
		ask()
		return
	}
	p.after(p.w.between(50*time.Millisecond, 150*time.Millisecond), func() {
		if a.ended {
			a.answered(lease.Standing{}, errCancelled)
			return
		}
		ask()
	})
}

func (p *process) askShared(name string, c lease.Claim, done func(lease.Standing, error)) *flight {
	var st lease.Standing
	asked := p.clock()
	return p.call(callTimeout, func() func() {
		var got lease.Standing
		p.w.server.onQueue(name, func(q *lease.Queue, now time.Time) { got, _ = q.Join(c, now) })
		epoch := p.w.server.epoch
		return func() {
			st = got
			st.Asked = asked
			p.w.judge.toldEpoch(c.ID, st.Ticket, epoch)
		}
	}, func(err error) { done(st, err) })
}

func (p *process) renewShared(name, id string, ticket uint64, ttl, timeout time.Duration, done func(lease.Standing, int, error)) {
	var st lease.Standing
	var epoch int
	p.call(timeout, func() func() {
		var got lease.Standing
		p.w.server.onQueue(name, func(q *lease.Queue, now time.Time) { got = q.Renew(id, ticket, ttl, 0, now) })
		at := p.w.server.epoch
		return func() { st, epoch = got, at }
	}, func(err error) { done(st, epoch, err) })
}

func (p *process) leaveShared(name, id, _, _ string, timeout time.Duration, done func(redismodel.Reply, error)) *flight {
	return p.call(timeout, func() func() {
		p.w.server.onQueue(name, func(q *lease.Queue, now time.Time) {
			q.Leave(id, 0, lease.Seal{}, now)
			q.Leave(id, 0, lease.Seal{}, now) // a copy of its join may be on its way: see drivertest.Faulty
		})
		p.w.judge.leaves[id] = p.w.server.epoch
		return func() {}
	}, func(err error) { done(redismodel.Reply{}, err) })
}
