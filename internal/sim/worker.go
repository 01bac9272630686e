package sim

import (
	"fmt"
	"time"

	"github.com/redlatch/redlatch/internal/lines"
	"github.com/redlatch/redlatch/internal/redismodel"
	"github.com/redlatch/redlatch/lease"
)

// worker is a caller: it gets a lock, holds it for a while, gives it back. How it gets it
// and how long it may believe that it has it is what ships: lease.Ask and lease.Keeper.
// Played are the loops around them: acquire.go (get), keep.go (run, renew), held.go
// (leaveStore) and leave.go of the root package.
type worker struct {
	p      *process
	number int
	try    *attempt
	hold   *hold
}

func newWorker(p *process, number int) *worker {
	wk := &worker{p: p, number: number}
	wk.think()
	return wk
}

func (wk *worker) String() string { return fmt.Sprintf("%v/%d", wk.p, wk.number) }

func (wk *worker) think() {
	w := wk.p.w
	pause := w.between(0, time.Second)
	if w.chance(.1) {
		pause = w.between(0, 10*time.Second)
	}
	wk.p.after(pause, func() {
		if w.now < int64(w.plan.end) {
			wk.begin()
		}
	})
}

// die: the process is dead, and so nobody believes anything any more.
func (wk *worker) die() {
	if wk.hold != nil {
		wk.hold.over = true
		wk.p.w.judge.ends(wk.hold)
	}
	if wk.try != nil {
		wk.p.w.judge.abandoned(wk.try.claim.ID)
	}
}

// attempt is one acquire.
type attempt struct {
	wk     *worker
	name   string
	claim  lease.Claim
	ask    lease.Ask
	k      *lines.Claim
	waits  bool // OnUnavailable: Wait
	over   bool
	ended  bool // its ctx
	fails  int
	flight *flight
	waiter *waiter
	began  int64
}

func (wk *worker) begin() {
	p, w := wk.p, wk.p.w
	w.ids++
	ttl := w.plan.ttls[w.rand.IntN(len(w.plan.ttls))]
	a := &attempt{
		wk: wk, name: w.names[w.rand.IntN(len(w.names))], waits: w.chance(.5), began: w.now,
		claim: lease.Claim{ID: fmt.Sprintf("%022d", w.ids), TTL: ttl, NoWait: w.chance(.1)},
	}
	if w.plan.shares {
		w.share(a)
	}
	terms := lease.Terms{TTL: ttl, NoRenew: w.chance(.1)}
	if w.chance(.2) {
		terms.StopMargin = ttl / 10
	}
	a.ask = lease.Ask{Terms: terms, Confirm: w.chance(.1)}
	wk.try = a
	w.note("%v asks for %s as %s, ttl %v, noWait %v, noRenew %v, margin %v, confirm %v", wk, a.name, a.claim.ID, ttl, a.claim.NoWait, terms.NoRenew, terms.StopMargin, a.ask.Confirm)
	w.judge.asks(a)
	if w.chance(.3) && !w.quiet {
		p.after(w.between(0, 2*ttl), a.cancel)
	}
	a.look()
}

const callTimeout = 5 * time.Second

func (a *attempt) look() {
	p := a.wk.p
	switch {
	case a.over:
		return
	case a.ended:
		a.fail("cancelled")
		return
	}
	joins := a.ask.Look(p.clock())
	if p.w.plan.shares {
		a.lookShared(joins)
		return
	}
	if !joins {
		a.waiter = p.wait(p.book.Enroll(a.name, a.claim), a.ask.Last.Rev, a.answered)
		return
	}
	a.k = p.book.Enroll(a.name, a.claim)
	a.flight = p.ask(a.k, a.claim, callTimeout, a.answered)
}

// cancel ends the attempt's context.
func (a *attempt) cancel() {
	if a.over || a.ended {
		return
	}
	a.ended = true
	a.wk.p.w.note("%v is cancelled", a.wk)
	switch {
	case a.flight != nil:
		a.flight.end(errCancelled)
	case a.waiter != nil:
		a.waiter.end(lease.Standing{}, errCancelled)
	}
}

func (a *attempt) answered(st lease.Standing, err error) {
	a.flight, a.waiter = nil, nil
	if a.over {
		return
	}
	wk, p, w := a.wk, a.wk.p, a.wk.p.w
	now, verdict := p.clock(), lease.LookAgain
	if err == nil {
		verdict = a.ask.Answered(st, now)
		w.note("%v: %v with ticket %d, verdict %d", wk, st.State, st.Ticket, verdict)
	}
	switch {
	case a.ended && (err != nil || st.State != lease.Held):
		a.fail("cancelled")
		return
	case err != nil && !a.waits:
		a.fail(err.Error())
		return
	case err != nil:
		a.fails++
		p.after(w.between(25*time.Millisecond, 50*time.Millisecond<<min(a.fails, 4)), a.look)
		return
	}
	a.fails = 0
	switch verdict {
	case lease.Holds:
		a.holds(st)
	case lease.LookAgain:
		a.look()
	case lease.TooLate, lease.Refused, lease.Overtaken:
		a.fail("verdict")
	default:
		a.look()
	}
}

// fail ends the attempt without a hold. What it may have left behind is taken back.
func (a *attempt) fail(why string) {
	wk, w := a.wk, a.wk.p.w
	a.over = true
	wk.try = nil
	w.result.Gone++
	w.note("%v ends without the lock: %s", wk, why)
	w.judge.gaveUp(a)
	if until, owes := a.ask.Owes(a.claim.TTL); owes {
		wk.p.takeBack(a.name, a.claim.ID, until)
	}
	wk.think()
}

// takeBack leaves again and again until that is acknowledged, or the lease is over anyway.
func (p *process) takeBack(name, id string, until lease.Instant) {
	k, _ := p.book.Forget(name, id, p.clock())
	leave := p.leave
	if p.w.plan.shares {
		leave = p.leaveShared
	}
	leave(name, id, "", lines.Remember(k), time.Second, func(_ redismodel.Reply, err error) {
		if err == nil {
			p.w.judge.undone(name, id)
			return
		}
		if p.clock() >= until {
			p.w.judge.abandoned(id)
			return
		}
		p.after(p.w.between(25*time.Millisecond, 100*time.Millisecond), func() { p.takeBack(name, id, until) })
	})
}

// hold is a lock that was got.
type hold struct {
	wk     *worker
	name   string
	id     string
	ticket uint64
	keeper *lease.Keeper
	over   bool // released, lost, or its process is dead
	flying bool
	landed func() // what waits for the renewal on its way
	timer  int

	weight, capacity int

	// What the judge knows.
	until int64 // true time at which its trust ends
	epoch int
}

func (a *attempt) holds(st lease.Standing) {
	wk, p, w := a.wk, a.wk.p, a.wk.p.w
	a.over = true
	wk.try = nil
	h := &hold{wk: wk, name: a.name, id: a.claim.ID, ticket: st.Ticket, keeper: lease.Keep(a.ask.Terms, st.Asked, st.Lease)}
	h.weight, h.capacity = a.claim.Weight(), a.claim.Capacity()
	wk.hold = h
	w.result.Holds++
	w.note("%v HOLDS %s with ticket %d until %.6f", wk, h.name, h.ticket, float64(p.when(h.keeper.Until()))/1e9)
	w.judge.begins(a, h)
	lasts := w.between(0, 50*time.Millisecond)
	if w.chance(.25) && !w.quiet {
		lasts = w.between(0, 2*a.claim.TTL)
	}
	p.after(lasts, h.release)
	h.obey(h.keeper.Tick(p.clock()))
}

// obey does what the keeper wants next. Timers are not trusted for longer than a second.
func (h *hold) obey(o lease.Order) {
	p := h.wk.p
	switch {
	case h.over:
		return
	case o.Lost != nil:
		h.lose(o.Lost)
		return
	}
	now := p.clock()
	if o.Renew <= now && !h.flying {
		h.renew()
		return
	}
	h.timer++
	timer := h.timer
	p.after(max(min(min(o.Renew, o.Stop).Sub(now), time.Second), 0), func() {
		if timer == h.timer && !h.over {
			h.obey(h.keeper.Tick(p.clock()))
		}
	})
}

func (h *hold) renew() {
	p := h.wk.p
	sent, ttl := p.clock(), h.keeper.TTL()
	h.flying = true
	p.snare, p.snareRenewal = max(p.snare, p.snareRenewal), 0
	o := h.keeper.Sent(sent)
	renew := p.renew
	if p.w.plan.shares {
		renew = p.renewShared
	}
	renew(h.name, h.id, h.ticket, ttl, lease.AttemptTimeout(ttl), func(st lease.Standing, epoch int, err error) {
		h.flying = false
		if h.over {
			if h.landed != nil {
				h.landed()
			}
			return
		}
		now := p.clock()
		var o lease.Order
		switch {
		case err != nil:
			o = h.keeper.Failed(now, sent, err)
		case st.State != lease.Held:
			o = h.keeper.Gone(now, lease.Loss{Why: lease.Vanished})
		default:
			before := h.keeper.Until()
			o = h.keeper.Renewed(now, sent, ttl)
			if o.Lost == nil && h.keeper.Until() > before {
				h.epoch = epoch
				p.w.judge.trusts(h)
			}
		}
		h.obey(o)
	})
	h.obey(o)
}

func (h *hold) lose(loss *lease.Loss) {
	w := h.wk.p.w
	w.result.Lost++
	w.note("%v has lost %s: %v", h.wk, h.name, loss)
	w.judge.lost(h, loss)
	h.release()
}

// release ends the renewals, and leaves until it is answered.
func (h *hold) release() {
	if h.over {
		return
	}
	wk, p := h.wk, h.wk.p
	h.over = true
	h.keeper.Tick(p.clock())
	h.keeper.Released()
	wk.hold = nil
	p.w.note("%v releases %s", wk, h.name)
	p.w.judge.ends(h)
	h.landed = func() { p.takeBack(h.name, h.id, h.keeper.Until().Add(lease.Drift(h.keeper.TTL()))) }
	if !h.flying {
		h.landed()
	}
	wk.think()
}

// foreigner is a client that follows no queue: SET NX, and DEL if the value is its own.
type foreigner struct {
	w     *world
	value string
	turn  int
}

func newForeigner(w *world, number int) {
	f := &foreigner{w: w, value: fmt.Sprintf("foreign%d", number)}
	f.think()
}

func (f *foreigner) think() {
	f.w.after(f.w.between(0, 10*time.Second), func() {
		if f.w.now < int64(f.w.plan.end) {
			f.poll(f.w.names[f.w.rand.IntN(len(f.w.names))], 40)
		}
	})
}

// poll tries every 50 ms. Its clock is true, and its lease has the same drift taken off.
func (f *foreigner) poll(name string, tries int) {
	if tries == 0 {
		f.think()
		return
	}
	w, asked := f.w, f.w.now
	value, ttl := fmt.Sprintf("%s.%d", f.value, f.turn), w.plan.ttls[0]
	w.after(w.plan.delay, func() {
		got := false
		if !w.server.down {
			w.server.do(name, func(m *redismodel.Server) { got = m.SetNX(name, value, ttl.Milliseconds()) })
		}
		if !got {
			w.after(w.plan.delay+50*time.Millisecond, func() { f.poll(name, tries-1) })
			return
		}
		f.turn++
		h := &hold{name: name, id: value, until: asked + int64(ttl-lease.Drift(ttl)), epoch: w.server.epoch}
		h.weight, h.capacity = lease.Whole, lease.Whole
		w.judge.add(h)
		w.after(w.between(0, ttl*5/4), func() {
			w.judge.ends(h)
			w.after(w.plan.delay, func() {
				if !w.server.down {
					w.server.do(name, func(m *redismodel.Server) { m.DelIf(name, value) })
				}
			})
			f.think()
		})
	})
}
