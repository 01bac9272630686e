package redlatch

import (
	"container/heap"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/internal/elapsed"
	"github.com/redlatch/redlatch/lease"
)

// keeping renews everything that a Locker holds, and what waits where waiting claims
// expire. One goroutine looks after all of it, ordered by what is due next, and one
// more runs for each batch that is on its way: a hold costs no goroutine, timer or
// connection, and a batch that hangs delays no other.
//
// The goroutine runs while there is something to keep.
type keeping struct {
	l *Locker

	mu      sync.Mutex
	due     dueHeap
	open    map[*hold]struct{} // all that are not released
	running bool
	naps    lease.Instant // the goroutine sleeps until then
	wake    chan struct{} // capacity 1: something is due earlier than the goroutine thinks
	work    sync.WaitGroup
	deaf    func() // ends the store's notices
}

// kept is a claim that is kept. Its fields are keeping.mu's, but for those that never change.
type kept struct {
	name   string
	token  lease.Token
	keeper *lease.Keeper
	hold   *hold // nil: a waiting claim

	lateTold bool // since the last renewal that was acknowledged

	next     lease.Instant
	at       int // in the heap; -1: not in it
	flying   int // renewals on their way
	landed   chan struct{}
	byHand   []context.CancelCauseFunc // of those of them that the holder has asked for
	lostTold bool
	released bool        // or given up: no renewal may follow its leave
	notice   *lease.Seal // somebody is said to have broken it
}

const (
	batchSize = 500         // claims in one renewal: it stays a matter of milliseconds for the server
	longNap   = time.Second // timers stand still while the machine sleeps: never trust one for longer
)

func (k *keeping) init(l *Locker) {
	k.l = l
	k.wake = make(chan struct{}, 1)
	k.open = make(map[*hold]struct{})
	k.deaf = l.store.Notify(k.hear)
}

// hear is told by the store that somebody has broken a claim. A message proves nothing:
// the store is asked at once, and its answer counts.
func (k *keeping) hear(n driver.Notice) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for h := range k.open {
		if e := h.kept; e.token.ID == n.ID && e.name == n.Name {
			e.notice = &n.Seal
			e.flying++
			k.work.Go(func() { k.ask(e) })
			return
		}
	}
}

// ask finds out whether the hold is still there. It asks for as little time as there is,
// which is less than any lease has, so that a hold which shall not be renewed is not.
func (k *keeping) ask(e *kept) {
	ttl := k.l.features.MinTTL
	ctx, cancel := context.WithTimeout(context.Background(), lease.AttemptTimeout(k.ttl(e)))
	defer cancel()
	out := k.l.store.Renew(ctx, []driver.Ref{{Name: e.name, Token: e.token, TTL: ttl}})[0]
	k.mu.Lock()
	lost := out.Err == nil && out.State != lease.Held && k.settle(e, e.keeper.Gone(elapsed.Now(), k.loss(e, out.Standing)))
	e.land()
	k.mu.Unlock()
	if lost {
		tellLost([]*kept{e})
	}
}

func (k *keeping) lossOf(e *kept, st lease.Standing) lease.Loss {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.loss(e, st)
}

// loss is why e is gone: what the store keeps of it, or else what was heard.
func (k *keeping) loss(e *kept, st lease.Standing) lease.Loss {
	loss := k.l.lossOf(st, e.token.ID)
	if loss.Why != lease.Broken && e.notice != nil {
		return lease.Loss{Why: lease.Broken, By: e.notice.By, Reason: e.notice.Reason}
	}
	return loss
}

func (k *keeping) add(e *kept) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e.hold != nil {
		k.open[e.hold] = struct{}{}
	}
	k.schedule(e, e.keeper.Tick(elapsed.Now()))
	k.start()
}

// waiter keeps a waiting claim alive from its last join on.
func (k *keeping) waiter(a *attempt, st lease.Standing) {
	if a.kept != nil && a.kept.token.Ticket == st.Ticket {
		return
	}
	k.drop(a.kept)
	a.kept = &kept{
		name: a.name, token: a.claimToken(st), at: -1,
		keeper: lease.Keep(lease.Terms{TTL: a.o.TTL}, st.Asked, a.o.TTL),
	}
	k.add(a.kept)
}

// drop ends the keeping of a waiting claim.
func (k *keeping) drop(e *kept) {
	if e == nil {
		return
	}
	k.release(e)
}

// start sees to it that the goroutine runs if there is something to do, wakes in time
// for it, and ends if there is not.
func (k *keeping) start() {
	switch {
	case !k.running && k.due.Len() > 0:
		k.running = true
		k.work.Go(k.run)
	case k.running && (k.due.Len() == 0 || k.due[0].next < k.naps):
		select {
		case k.wake <- struct{}{}:
		default:
		}
	}
}

func (k *keeping) run() {
	nap := time.NewTimer(0)
	defer nap.Stop()
	for {
		select {
		case <-nap.C:
		case <-k.wake:
		}
		d, more := k.pass()
		if !more {
			return
		}
		nap.Reset(d)
	}
}

// pass does what is due and says how long nothing will be.
func (k *keeping) pass() (time.Duration, bool) {
	k.mu.Lock()
	now := elapsed.Now()
	var lost []*kept
	ripe := make(map[time.Duration][]*kept) // by how long their renewal may take
	for k.due.Len() > 0 && k.due[0].next <= now {
		e := k.due[0]
		o := e.keeper.Tick(now)
		if o.Lost == nil && o.Renew.Add(-early(e)) <= now {
			timeout := lease.AttemptTimeout(e.keeper.TTL())
			ripe[timeout] = append(ripe[timeout], e)
			e.flying++
			o = e.keeper.Sent(now)
		}
		if k.settle(e, o) {
			lost = append(lost, e)
		}
	}
	for timeout, batch := range ripe {
		for len(batch) > 0 {
			n := min(len(batch), batchSize)
			part := batch[:n]
			batch = batch[n:]
			k.work.Go(func() { k.renew(part, timeout) })
		}
	}
	k.running = k.due.Len() > 0
	var nap time.Duration
	if k.running {
		nap = min(k.due[0].next.Sub(now), longNap)
		k.naps = now.Add(nap)
	}
	more := k.running
	k.mu.Unlock()

	tellLost(lost)
	return nap, more
}

// early is how long before its time a renewal may go out to share a batch with others.
// It is well below the pause after a failed one.
func early(e *kept) time.Duration { return min(e.keeper.TTL()/50, 250*time.Millisecond) }

// schedule puts e where its order says.
func (k *keeping) schedule(e *kept, o lease.Order) {
	next := min(o.Stop, o.Renew.Add(-early(e)))
	if o.Renew == lease.Never {
		next = o.Stop
	}
	e.next = next
	switch {
	case next == lease.Never && e.at >= 0:
		heap.Remove(&k.due, e.at)
	case next == lease.Never:
	case e.at >= 0:
		heap.Fix(&k.due, e.at)
	default:
		heap.Push(&k.due, e)
	}
}

// settle schedules e and reports whether its holder must now be told of a loss.
func (k *keeping) settle(e *kept, o lease.Order) bool {
	k.schedule(e, o)
	if o.Lost == nil || e.lostTold || e.hold == nil {
		return false
	}
	e.lostTold = true
	return true
}

// tellLost ends the contexts. The observer hears of it elsewhere: it may be slow, or ask
// about the hold, and this is where the next one's end is waited for.
func tellLost(lost []*kept) {
	for _, e := range lost {
		e.hold.lose(*e.keeper.Lost())
	}
	for _, e := range lost {
		e.hold.l.tidings.tell(func() { e.hold.tellLost(*e.keeper.Lost()) })
	}
}

// renew sends one batch and feeds the answers to the keepers.
func (k *keeping) renew(batch []*kept, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	refs := make([]driver.Ref, len(batch))
	k.mu.Lock()
	for i, e := range batch {
		refs[i] = driver.Ref{Name: e.name, Token: e.token, TTL: e.keeper.TTL()}
	}
	k.mu.Unlock()
	sent := elapsed.Now()
	outcomes := k.l.store.Renew(ctx, refs)
	k.land(batch, refs, outcomes, sent)
}

// land takes the answers in.
func (k *keeping) land(batch []*kept, refs []driver.Ref, outcomes []driver.Outcome, sent lease.Instant) {
	k.mu.Lock()
	now := elapsed.Now()
	var lost []*kept
	var renewed, late []Event
	for i, e := range batch {
		before, isLate := e.keeper.Until(), e.keeper.Late(now) && !e.lateTold
		o := k.feed(e, refs[i], outcomes[i], now, sent)
		if e.keeper.Until() > before && e.hold != nil && o.Lost == nil {
			renewed = append(renewed, Event{Name: e.hold.shown, Fence: e.token.Ticket, Slack: before.Sub(now)})
		}
		if isLate && e.hold != nil && o.Lost == nil {
			late = append(late, Event{Name: e.hold.shown, Fence: e.token.Ticket, Slack: before.Sub(now), Err: outcomes[i].Err})
		}
		e.lateTold = outcomes[i].Err != nil && (e.lateTold || isLate)
		if k.settle(e, o) {
			lost = append(lost, e)
		}
		e.land()
	}
	k.start()
	k.mu.Unlock()

	tellLost(lost)
	for _, e := range late {
		k.l.tidings.tell(func() { k.l.cfg.Observer.late(e) })
	}
	for _, e := range renewed {
		k.l.cfg.Observer.renewed(e)
	}
}

func (k *keeping) feed(e *kept, ref driver.Ref, out driver.Outcome, now, sent lease.Instant) lease.Order {
	switch {
	case out.Err != nil:
		return e.keeper.Failed(now, sent, out.Err)
	case out.State != lease.Held && (e.hold != nil || out.State != lease.Waiting):
		return e.keeper.Gone(now, k.loss(e, out.Standing))
	}
	return e.keeper.Renewed(now, sent, ref.TTL)
}

// land says that one of e's renewals is not on its way any more.
func (e *kept) land() {
	e.flying--
	if e.flying == 0 && e.landed != nil {
		close(e.landed)
		e.landed = nil
	}
}

// renewNow renews one hold for its holder, for ttl from now on.
func (k *keeping) renewNow(ctx context.Context, e *kept, ttl time.Duration) error {
	k.mu.Lock()
	if e.released {
		k.mu.Unlock()
		return ErrNotHeld
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	e.byHand = append(e.byHand, cancel)
	if e.hold.o.NoRenew || ttl != e.keeper.TTL() {
		k.schedule(e, e.keeper.Raise(elapsed.Now(), ttl))
	}
	e.flying++
	k.mu.Unlock()

	refs := []driver.Ref{{Name: e.name, Token: e.token, TTL: ttl}}
	sent := elapsed.Now()
	outcomes := k.l.store.Renew(ctx, refs)
	k.land([]*kept{e}, refs, outcomes, sent)
	k.mu.Lock()
	if e.flying == 0 {
		e.byHand = nil
	}
	k.mu.Unlock()

	if lost := e.hold.lostError(); lost != nil {
		return lost
	}
	if err := outcomes[0].Err; err != nil {
		if errors.Is(err, context.Canceled) && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return storeError(err)
	}
	return nil
}

// release ends e's keeping and returns when no renewal of it is on its way, which is
// at most one attempt's time. It reports whether the hold was trusted until then.
func (k *keeping) release(e *kept) bool {
	k.mu.Lock()
	o := e.keeper.Tick(elapsed.Now())
	trusted := o.Lost == nil && elapsed.Now() < e.keeper.Until()
	lost := k.settle(e, o)
	e.keeper.Released()
	e.released = true
	delete(k.open, e.hold)
	for _, cancel := range e.byHand {
		cancel(ErrNotHeld) // such a renewal has all the time that its caller gives it
	}
	k.schedule(e, lease.Order{Renew: lease.Never, Stop: lease.Never})
	var landed chan struct{}
	if e.flying > 0 {
		if e.landed == nil {
			e.landed = make(chan struct{})
		}
		landed = e.landed
	}
	k.start()
	k.mu.Unlock()

	if lost {
		tellLost([]*kept{e})
	}
	if landed != nil {
		<-landed
	}
	return trusted
}

// tick looks at the clock for e. When it returns and the hold is lost, its context has
// ended: also where another goroutine has found the loss and is about to end it, but
// does not run just now.
func (k *keeping) tick(e *kept) {
	k.mu.Lock()
	o := e.keeper.Tick(elapsed.Now())
	first := k.settle(e, o)
	k.mu.Unlock()
	switch {
	case first:
		tellLost([]*kept{e})
	case o.Lost != nil:
		e.hold.lose(*o.Lost)
	}
}

// close ends all holds: releases them, or leaves them to the store. It returns when
// the renewals have ended.
func (k *keeping) close(leave bool) error {
	k.deaf()
	k.mu.Lock()
	holds := make(chan *hold, len(k.open))
	for h := range k.open {
		holds <- h
	}
	close(holds)
	k.mu.Unlock()

	var mu sync.Mutex
	var errs []error
	var work sync.WaitGroup
	for range min(len(holds), closeWorkers) {
		work.Go(func() {
			for h := range holds {
				if err := h.close(leave); err != nil {
					mu.Lock()
					errs = append(errs, &Error{Op: "close", Name: h.shown, Err: err})
					mu.Unlock()
				}
			}
		})
	}
	work.Wait()
	k.work.Wait()
	return errors.Join(errs...)
}

const closeWorkers = 32 // releases at a time

func (k *keeping) until(e *kept) lease.Instant {
	k.mu.Lock()
	defer k.mu.Unlock()
	return e.keeper.Until()
}

func (k *keeping) ttl(e *kept) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	return e.keeper.TTL()
}

func (k *keeping) lost(e *kept) *lease.Loss {
	k.mu.Lock()
	defer k.mu.Unlock()
	return e.keeper.Lost()
}

// dueHeap orders what is kept by when it is due.
type dueHeap []*kept

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].next < h[j].next }
func (h dueHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i, j
}
func (h *dueHeap) Push(x any) {
	e := x.(*kept)
	e.at = len(*h)
	*h = append(*h, e)
}
func (h *dueHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	e.at = -1
	return e
}
