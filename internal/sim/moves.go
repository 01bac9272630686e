package sim

import (
	"strconv"
	"time"

	"github.com/redlatch/redlatch/internal/lines"
	"github.com/redlatch/redlatch/internal/redismodel"
	"github.com/redlatch/redlatch/lease"
)

// once is how quickly an answered call has surely been sent only once: go-redis' pause.
const once = 8 * time.Millisecond

// ask sends the join, as redisstore's ask does: without a subscription first one that does
// not wait. The answer's epoch is the server's when it carried the join out.
func (p *process) ask(k *lines.Claim, c lease.Claim, timeout time.Duration, done func(lease.Standing, error)) *flight {
	whole := &flight{}
	var inner *flight
	finished := false
	finish := func(st lease.Standing, err error) {
		if !finished {
			finished, whole.over = true, true
			done(st, err)
		}
	}
	whole.done = func(err error) { // it is given up
		if inner != nil {
			inner.end(err)
		}
		finish(lease.Standing{}, err)
	}
	left := p.clock().Add(timeout)
	if p.sub == nil && !c.NoWait && !p.polls {
		first := c
		first.NoWait = true
		inner = p.join(k, first, nil, timeout, func(a lease.Instant, r redismodel.Reply, err error) {
			switch {
			case err != nil:
				finish(lease.Standing{}, err)
			case r.State != "busy":
				finish(p.heard(k, a, r, 0), nil)
			default:
				p.subscribe(func() {
					if whole.over {
						return
					}
					inner = p.join(k, c, p.sub, left.Sub(p.clock()), func(a lease.Instant, r redismodel.Reply, err error) {
						if err != nil {
							finish(lease.Standing{}, err)
							return
						}
						finish(p.heard(k, a, r, p.subID()), nil)
					})
				})
			}
		})
		return whole
	}
	sub := p.sub
	inner = p.join(k, c, sub, timeout, func(a lease.Instant, r redismodel.Reply, err error) {
		if err != nil {
			finish(lease.Standing{}, err)
			return
		}
		id := uint64(0)
		if sub != nil {
			id = sub.id
		}
		finish(p.heard(k, a, r, id), nil)
	})
	return whole
}

func (p *process) subID() uint64 {
	if p.sub == nil {
		return 0
	}
	return p.sub.id
}

// join sends one join, and another one while there are more of the dead to skip.
func (p *process) join(k *lines.Claim, c lease.Claim, sub *conn, timeout time.Duration, done func(lease.Instant, redismodel.Reply, error)) *flight {
	s, asked := p.w.server, p.clock()
	j := redismodel.Joining{
		ID: c.ID, Head: lease.TokenHead(c.ID), Tail: tail, TTL: c.TTL.Milliseconds(), Wait: !c.NoWait, Channel: p.channel,
	}
	if sub != nil {
		j.Marker = sub.channels[1]
	}
	var r redismodel.Reply
	var epoch int
	return p.call(max(timeout, 0), func() func() {
		var got redismodel.Reply
		s.do(k.Name, func(m *redismodel.Server) {
			got = m.Join(k.Name, j)
			p.w.judge.joined(p, k.Name, c, got)
		})
		at := s.epoch
		return func() { r, epoch = got, at }
	}, func(err error) {
		k.Sent(err != nil, p.clock().Sub(asked), once)
		if err == nil && r.More && r.State != "held" {
			p.join(k, c, sub, timeout-p.clock().Sub(asked), done)
			return
		}
		if err == nil && r.State == "held" {
			p.w.judge.toldEpoch(c.ID, r.Ticket, epoch)
		}
		done(asked, r, err)
	})
}

// heard is redisstore's: what an answer means, and that the Book learns it.
func (p *process) heard(k *lines.Claim, asked lease.Instant, r redismodel.Reply, sub uint64) lease.Standing {
	if r.State == "waiting" && r.Here == 0 {
		p.missed(sub)
	}
	return p.book.Learn(k, lines.Answer{
		Standing: standing(r, asked), Foreign: foreign(r), Subscribed: r.Here > 0, Push: r.Push, Subscription: sub,
	}, p.clock())
}

var states = map[string]lease.State{"held": lease.Held, "waiting": lease.Waiting, "busy": lease.Busy, "left": lease.Left, "gone": lease.Gone}

func standing(r redismodel.Reply, asked lease.Instant) lease.Standing {
	st := lease.Standing{
		State: states[r.State], Ticket: r.Ticket, Prev: r.Prev, Asked: asked, Ahead: r.Ahead, Lease: time.Duration(r.Lease) * time.Millisecond,
	}
	if st.State != lease.Held && st.State != lease.Left && r.Taken {
		st.Holder, st.Left = &lease.Holder{Foreign: r.Value}, max(time.Duration(r.Left)*time.Millisecond, 0)
	}
	return st
}

func foreign(r redismodel.Reply) bool {
	return r.Taken && (len(r.Value) < 22 || r.Left < 0)
}

// tail is that of every token here: nobody asks for owners.
const tail = ".u=sim"

func token(id string, ticket uint64) string {
	return lease.TokenHead(id) + strconv.FormatUint(ticket, 10) + tail
}

func (p *process) leave(name, id, only, remember string, timeout time.Duration, done func(redismodel.Reply, error)) *flight {
	s := p.w.server
	l := redismodel.Leaving{
		ID: id, Only: only, Remember: remember, StoneMS: lease.Tombstone.Milliseconds(), Foreign: p.w.plan.gaps, News: "news",
	}
	var r redismodel.Reply
	return p.call(timeout, func() func() {
		var got redismodel.Reply
		s.do(name, func(m *redismodel.Server) {
			got = m.Leave(name, l)
			p.w.judge.left(name, id, only)
		})
		return func() { r = got }
	}, func(err error) {
		if err == nil && r.More {
			p.leave(name, id, only, remember, timeout, func(redismodel.Reply, error) {}) // only the dead behind it are still there
		}
		done(r, err)
	})
}

func (p *process) renew(name, id string, ticket uint64, ttl, timeout time.Duration, done func(st lease.Standing, epoch int, err error)) {
	s, asked := p.w.server, p.clock()
	var r redismodel.Reply
	var epoch int
	p.call(timeout, func() func() {
		var got redismodel.Reply
		s.do(name, func(m *redismodel.Server) {
			got = m.Renew(name, redismodel.Renewal{ID: id, Token: token(id, ticket), Ticket: ticket, TTL: ttl.Milliseconds()})
		})
		at := s.epoch
		return func() { r, epoch = got, at }
	}, func(err error) {
		if err != nil {
			done(lease.Standing{}, 0, err)
			return
		}
		st := standing(r, asked)
		p.book.Renewed(name, lease.Token{ID: id, Ticket: ticket}, st, asked, p.clock())
		done(st, epoch, nil)
	})
}

// waiter is a caller in Wait.
type waiter struct {
	p     *process
	k     *lines.Claim
	rev   uint64
	done  func(lease.Standing, error)
	over  bool
	woken bool // a look is under way
	timer int  // the one that counts
	began int64
	poke  *flight
}

func (p *process) wait(k *lines.Claim, rev uint64, done func(lease.Standing, error)) *waiter {
	wt := &waiter{p: p, k: k, rev: rev, done: done, began: p.w.now}
	p.book.Sleeps(k)
	p.waiters[k] = wt
	wt.look()
	return wt
}

// wake is the Book's: the claim's caller looks as soon as it runs.
func (p *process) wake(k *lines.Claim) {
	if wt := p.waiters[k]; wt != nil && !wt.woken {
		wt.woken = true
		p.after(0, wt.look)
	}
}

func (wt *waiter) look() {
	wt.woken = false
	if wt.over || wt.poke != nil {
		return
	}
	p := wt.p
	st, due := p.book.Check(wt.k)
	if st.Rev != wt.rev && st.Rev != 0 {
		wt.end(st, nil)
		return
	}
	now := p.clock()
	if due <= now {
		p.book.Looks(wt.k, now)
		wt.poke = p.ask(wt.k, wt.k.W.Claim, 2*time.Minute, func(_ lease.Standing, err error) {
			wt.poke = nil
			if err != nil {
				p.book.Missed(wt.k, p.clock())
				wt.end(lease.Standing{}, err)
				return
			}
			wt.look()
		})
		return
	}
	wt.timer++
	timer := wt.timer
	p.after(min(due.Sub(now), time.Minute), func() {
		if timer == wt.timer {
			wt.look()
		}
	})
}

func (wt *waiter) end(st lease.Standing, err error) {
	if wt.over {
		return
	}
	wt.over = true
	delete(wt.p.waiters, wt.k)
	wt.p.book.Wakes(wt.k)
	if wt.poke != nil {
		poke := wt.poke
		wt.poke = nil
		poke.end(errCancelled)
	}
	wt.done(st, err)
}
