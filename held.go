package redlatch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/elapsed"
	"github.com/redlatch/redlatch/lease"
)

// Held is a lock that was got. It is safe for concurrent use. Whoever gets one must
// Unlock it: until then it is renewed.
type Held struct {
	*hold

	mu       sync.Mutex
	released bool
}

// hold is what all the Helds of one reentrant lock share.
type hold struct {
	l     *Locker
	name  string // as the store knows it
	shown string // as the caller does
	token lease.Token
	text  string // of the token
	o     Options
	kept  *kept
	ctx   context.Context
	end   context.CancelCauseFunc

	mu      sync.Mutex
	holders int   // Helds that are not released
	tried   bool  // a leave was sent
	trusted bool  // the hold was, when the first leave was sent
	over    error // not nil: nothing is left to release, and what a further Unlock says
}

// hold makes a Held of a claim that was granted.
func (l *Locker) hold(a *attempt, st lease.Standing) *Held {
	return l.keep(a.owner, a.name, a.shown, a.claimToken(st), a.o, lease.Keep(a.terms(), st.Asked, st.Lease))
}

func (a *attempt) claimToken(st lease.Standing) lease.Token {
	return lease.Token{ID: a.claim.ID, Ticket: st.Ticket, Owner: a.claim.Owner}
}

func (l *Locker) keep(caller context.Context, name, shown string, token lease.Token, o Options, k *lease.Keeper) *Held {
	h := &hold{l: l, name: name, shown: shown, token: token, text: token.String(), o: o, holders: 1}
	// The deadline for getting the lock is not a deadline for having it.
	ctx, end := context.WithCancelCause(context.WithoutCancel(caller))
	h.end = end
	h.ctx = holdContext{Context: context.WithValue(ctx, holdKey{l, name}, h), h: h}
	h.kept = &kept{name: name, token: token, keeper: k, hold: h, at: -1}
	l.keeping.add(h.kept)
	return &Held{hold: h}
}

// holdContext looks at the clock when it is asked: a process that was stopped past the
// end of its lease learns it from Err even if its timers have not run yet.
type holdContext struct {
	context.Context

	h *hold
}

func (c holdContext) Err() error {
	if err := c.Context.Err(); err != nil {
		return err
	}
	c.h.l.keeping.tick(c.h.kept)
	return c.Context.Err()
}

// Name is the lock's name.
func (h *Held) Name() string { return h.shown }

// Context ends when the lock is released, and StopMargin before trust in it ends: then
// with a *LostError as its cause. It has the values of the context that the lock was
// asked with but neither its deadline nor its end.
//
// It ends before the store can give the lock to somebody else, as long as this process
// is scheduled. One that is stopped or starved learns of the end when it runs again:
// use Fence where that must not matter.
func (h *Held) Context() context.Context { return h.ctx }

// Fence is a number that is higher than that of every earlier exclusive holder of this
// name. Whatever the lock protects can refuse writes with a lower one.
func (h *Held) Fence() uint64 { return h.token.Ticket }

// Token proves the hold to the store: with it [Locker.Resume] takes the hold up in
// another process. It is a secret as far as releasing the lock is.
func (h *Held) Token() string { return h.text }

// Until is when trust ends unless a renewal comes before: the time to be done by. It
// is told on the wall clock for people; Valid and Context do not use that.
func (h *Held) Until() time.Time {
	return time.Now().Add(h.l.keeping.until(h.kept).Sub(elapsed.Now()))
}

// Valid reports whether the lock is held now, less StopMargin, and not released.
func (h *Held) Valid() bool { return !h.isReleased() && h.ctx.Err() == nil }

func (h *Held) isReleased() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.released
}

// Renew renews now, for ttl from now on; 0 is the TTL so far. It never shortens what
// is granted already. With NoRenew it is the only renewal there is. The error is
// ErrLost when the lock is gone; after any other the hold lives on for as long as it is
// trusted, and it is renewed as before.
func (h *Held) Renew(ctx context.Context, ttl time.Duration) error {
	err := h.renew(ctx, ttl)
	if err != nil {
		return &Error{Op: "renew", Name: h.shown, Err: err}
	}
	return nil
}

func (h *Held) renew(ctx context.Context, ttl time.Duration) error {
	if ttl == 0 {
		ttl = h.l.keeping.ttl(h.kept)
	}
	o := h.o
	o.TTL = ttl
	o, err := o.check(h.l.features)
	if err != nil {
		return err
	}
	if h.isReleased() {
		return ErrNotHeld
	}
	if err := h.l.enter(); err != nil {
		return err
	}
	defer h.l.busy.Done()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return h.l.keeping.renewNow(ctx, h.kept, o.TTL)
}

// Unlock gives the lock back and returns when the store has confirmed it or 5 s have
// passed. It runs on its own time, whatever became of the context that the lock was
// asked with.
//
// The error is ErrLost when the hold was lost before: then the lock was somebody
// else's to take. It is ErrNotHeld when this Held was unlocked before, and
// ErrUnavailable when the store did not answer: then the lock is given back in the
// background until its lease is over, and Unlock may be called again to see whether
// that has happened.
func (h *Held) Unlock() error {
	err := h.unlock()
	if err != nil {
		return &Error{Op: "unlock", Name: h.shown, Err: err}
	}
	return nil
}

func (h *Held) unlock() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.released {
		return ErrNotHeld
	}
	last, err := h.leave()
	h.released = last
	return err
}

// leave takes one Held off the hold, and the hold off the store with the last one. It
// reports whether this Held is done with.
func (h *hold) leave() (bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.over != nil:
		return true, h.over
	case h.holders > 1:
		h.holders--
		return true, h.lostError()
	}
	err := h.release()
	return h.over != nil, err
}

// close is what the Locker's Close does to a hold. That it was lost before is no news.
func (h *hold) close(leave bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	known := h.lostError() != nil
	err := h.closeLocked(leave)
	if known && errors.Is(err, ErrLost) {
		err = nil
	}
	return err
}

func (h *hold) closeLocked(leave bool) error {
	var err error
	switch {
	case h.over != nil: // released already
	case leave:
		h.l.keeping.release(h.kept)
		h.end(ErrClosed)
		h.over = ErrClosed
	default:
		err = h.release()
	}
	return err
}

// lostError is the hold's loss as an error, or nil.
func (h *hold) lostError() error {
	if loss := h.l.keeping.lost(h.kept); loss != nil {
		return &LostError{Name: h.shown, Loss: *loss}
	}
	return nil
}

// release gives the hold back. Renewals have ended before the first leave is sent.
func (h *hold) release() error {
	trusted := h.l.keeping.release(h.kept)
	if !h.tried {
		h.trusted = trusted
	}
	h.end(errReleased)
	held := elapsed.Now().Sub(h.kept.keeper.Start())
	err := h.leaveStore(held)
	if lost := h.lostError(); lost != nil {
		err = lost // whether the store has heard of the end is nobody's worry any more
	}
	if err == nil || errors.Is(err, ErrLost) {
		h.over = ErrNotHeld
		h.holders = 0
	}
	released := Event{Name: h.shown, Fence: h.token.Ticket, Held: held, Err: err}
	h.l.tidings.tell(func() { h.l.cfg.Observer.released(released) })
	return err
}

// lostPatience is how long the release of a hold that is lost goes on without an answer:
// there is hardly anything to give back, and its holder has more urgent things to do.
const lostPatience = 500 * time.Millisecond

var errReleased = fmt.Errorf("the lock was released: %w", context.Canceled)

// leaveStore tells the store. Each try is repeatable: the claim has one ID, and leaving
// twice is leaving once.
func (h *hold) leaveStore(held time.Duration) error {
	// Reckoned anew for each try: a release that comes late closes the name for less.
	sealed := elapsed.Now().Add(h.o.HoldAtLeast - held)
	seal := func() lease.Seal { return lease.Seal{For: max(sealed.Sub(elapsed.Now()), 0)} }
	patience := callTimeout
	if !h.trusted {
		patience = lostPatience
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var said error // the last one that was not our own impatience
	for fails := 0; ; {
		first := !h.tried
		h.tried = true
		st, err := h.leaveOnce(ctx, seal())
		if err == nil {
			return h.judge(st, first)
		}
		fails++
		if ctx.Err() != nil && said != nil {
			err = said
		}
		said, err = err, storeError(err)
		if errors.Is(err, ErrUnavailable) && pause(ctx, min(backoff(fails), h.o.TTL/10)) {
			continue
		}
		end := h.kept.keeper.Until().Add(lease.Drift(h.o.TTL))
		h.l.leavings.addSealed(h.name, h.token.ID, seal, end)
		if left := end.Sub(elapsed.Now()); left > 0 {
			err = fmt.Errorf("it stays locked for up to %v more: %w", left.Round(time.Millisecond), err)
		}
		return err
	}
}

func (h *hold) leaveOnce(ctx context.Context, seal lease.Seal) (lease.Standing, error) {
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	return h.l.store.Leave(ctx, h.name, h.token.ID, 0, seal)
}

// judge says what it means that a claim was found like that when it left. "Not there"
// is how a release looks whose first reply was lost, as long as nobody else could have
// had the lock; with trust gone, with somebody else there at first sight, or where there
// was no earlier copy of the call, the hold was lost.
func (h *hold) judge(st lease.Standing, first bool) error {
	switch {
	case st.State == lease.Held, st.State == lease.Left:
		return nil
	case h.trusted && !(first && (st.Once || st.Holder != nil)):
		return nil
	}
	loss := h.l.keeping.lossOf(h.kept, st)
	loss.At = elapsed.Now()
	return &LostError{Name: h.shown, Loss: loss}
}

// lossOf reads from a store's answer why a claim is gone.
func (l *Locker) lossOf(st lease.Standing, id string) lease.Loss {
	victim := st.Seal.Victim
	if t, ok := takenOf(st.Seal); ok {
		victim = t.victim
	}
	switch {
	case victim == id:
		return lease.Loss{Why: lease.Broken, By: st.Seal.By, Reason: st.Seal.Reason}
	case st.Holder != nil && st.Holder.ID == "":
		return lease.Loss{Why: lease.Taken, By: "another program"}
	case st.Holder != nil:
		return lease.Loss{Why: lease.Taken, By: st.Holder.Owner.String()}
	}
	return lease.Loss{Why: lease.Vanished}
}

// lose ends the hold's context. Only the first cause counts.
func (h *hold) lose(loss lease.Loss) { h.end(&LostError{Name: h.shown, Loss: loss}) }

// tellLost tells the observer. It is called once, without locks.
func (h *hold) tellLost(loss lease.Loss) {
	h.l.cfg.Observer.lost(Event{
		Name: h.shown, Fence: h.token.Ticket, Held: loss.At.Sub(h.kept.keeper.Start()),
		Err: &LostError{Name: h.shown, Loss: loss},
	})
}
