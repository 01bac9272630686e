package redlatch

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/redlatch/redlatch/internal/elapsed"
	"github.com/redlatch/redlatch/lease"
)

// callTimeout bounds one call to the store where the caller gave no shorter time. It
// has nothing to do with the TTL: a lock for ten hours is not asked for any slower.
const callTimeout = 5 * time.Second

// firstTry is how long the first call may take, however short MaxWait is: whoever does not
// want to wait still wants an answer.
const firstTry = 100 * time.Millisecond

var errMaxWait = errors.New("MaxWait is over")

// attempt is one acquire on its way.
type attempt struct {
	l     *Locker
	o     Options
	name  string // as the store knows it
	shown string // as the caller does
	claim lease.Claim
	owner context.Context // the caller's: the hold inherits its values

	first  context.Context // of the first call: MaxWait bounds waiting, and that is not waiting yet
	began  lease.Instant
	ask    lease.Ask
	silent error // why there has been no answer since last
	told   bool  // the observer knows that we wait
	kept   *kept // a waiting claim that must be renewed
}

func (l *Locker) lock(ctx context.Context, op, name string, o Options) (_ *Held, err error) {
	defer func() {
		if err != nil {
			err = &Error{Op: op, Name: name, Err: err}
		}
	}()
	full, o, err := l.door(name, o)
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err := l.enter(); err != nil {
		return nil, err
	}
	defer l.busy.Done()
	if held, err := again(ctx, l, full, o); held != nil || err != nil {
		return held, err
	}

	a := &attempt{l: l, o: o, name: full, shown: name, owner: ctx, began: elapsed.Now()}
	a.claim = lease.Claim{
		ID: lease.NewID(), Mode: o.mode(), Slots: o.Slots, Need: o.Weight, Owner: l.owner(o), TTL: o.TTL,
		NoWait: op == "try", OnSeal: o.OnSeal, MaxWaiters: l.cfg.MaxWaiters,
	}
	a.ask = lease.Ask{Terms: a.terms(), Confirm: o.Confirm}
	if err := errors.Join(a.claim.Check(), a.claim.Owner.CheckSize()); err != nil {
		return nil, &kinded{ErrInvalid, err}
	}
	return a.run(ctx)
}

// door checks what the caller gave before anything is sent.
func (l *Locker) door(name string, o Options) (string, Options, error) {
	full, err := l.full(name)
	if err != nil {
		return "", o, err
	}
	o, err = o.check(l.features)
	if err == nil && o.TTL-lease.Drift(o.TTL)-l.cfg.Drift <= o.StopMargin {
		err = invalid("of a TTL of %v nothing is left when the drift of %v and the StopMargin of %v are taken off; give a longer TTL",
			o.TTL, lease.Drift(o.TTL)+l.cfg.Drift, o.StopMargin)
	}
	return full, o, err
}

func (l *Locker) owner(o Options) Owner {
	owner := l.cfg.Owner
	if o.Note != "" {
		owner.Note = o.Note
	}
	if len(o.Labels) > 0 {
		labels := make(map[string]string, len(owner.Labels)+len(o.Labels))
		for k, v := range owner.Labels {
			labels[k] = v
		}
		for k, v := range o.Labels {
			labels[k] = v
		}
		owner.Labels = labels
	}
	return owner
}

// run gets the lock or undoes the claim. Nothing it started is left when it fails: the
// leave goes on in the background until it is acknowledged or the lease is over.
func (a *attempt) run(caller context.Context) (*Held, error) {
	ctx, cancel := context.WithCancelCause(caller)
	defer cancel(nil)
	defer context.AfterFunc(a.l.ctx, func() { cancel(ErrClosed) })()
	a.first = ctx
	if a.o.MaxWait > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, a.o.MaxWait, errMaxWait)
		defer stop()
	}

	held, err := a.get(ctx)
	a.l.keeping.drop(a.kept)
	if until, owes := a.ask.Owes(a.claim.TTL); err != nil && owes {
		a.l.leavings.add(a.name, a.claim.ID, until)
	}
	if a.told {
		a.l.cfg.Observer.waited(Event{Name: a.shown, Waited: a.waited(), Err: err})
	}
	if err != nil {
		return nil, err
	}
	a.l.cfg.Observer.acquired(Event{Name: a.shown, Fence: held.Fence(), Waited: a.waited()})
	return held, nil
}

func (a *attempt) waited() time.Duration { return elapsed.Now().Sub(a.began) }

func (a *attempt) get(ctx context.Context) (*Held, error) {
	for fails := 0; ; {
		st, err := a.look(ctx)
		now, verdict := elapsed.Now(), lease.LookAgain
		if err == nil {
			verdict = a.ask.Answered(st, now)
		}
		if ctx.Err() != nil && (err != nil || st.State != lease.Held) {
			return nil, a.ended(ctx)
		}
		if err != nil {
			if err = storeError(err); a.l.cfg.OnUnavailable == Fail || !errors.Is(err, ErrUnavailable) || a.exhausted() {
				return nil, err
			}
			fails, a.silent = fails+1, err
			if !pause(ctx, backoff(fails)) {
				return nil, a.ended(ctx)
			}
			continue
		}
		fails, a.silent = 0, nil
		switch verdict {
		case lease.Holds:
			return a.l.hold(a, st), nil
		case lease.LookAgain:
			continue
		case lease.TooLate:
			return nil, a.tooSlow(now.Sub(st.Asked))
		case lease.Refused:
			return nil, a.taken(nil)
		case lease.Overtaken:
			return nil, fmt.Errorf("the store took this claim for one that has left: %w", ErrUnavailable)
		}
		if a.exhausted() || a.o.OnSeal == lease.SealFail && st.Seal.Closed() {
			return nil, a.taken(nil)
		}
		a.wait(st)
	}
}

// look asks the store where the claim stands.
func (a *attempt) look(ctx context.Context) (lease.Standing, error) {
	if !a.ask.Look(elapsed.Now()) {
		return a.l.store.Wait(ctx, a.name, a.claim.ID, a.ask.Last.Rev)
	}
	patience := callTimeout
	if a.ask.Looks == 1 && a.o.MaxWait > 0 {
		ctx, patience = a.first, min(max(a.o.MaxWait, firstTry), callTimeout)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return a.l.store.Join(ctx, a.name, a.claim)
}

func (a *attempt) exhausted() bool { return a.o.MaxAttempts > 0 && a.ask.Looks >= a.o.MaxAttempts }

// wait is told that the claim has to.
func (a *attempt) wait(st lease.Standing) {
	if a.l.features.WaitersExpire && st.State == lease.Waiting {
		a.l.keeping.waiter(a, st)
	}
	if !a.told {
		a.told = true
		a.l.cfg.Observer.waiting(Event{Name: a.shown, Holder: st.Holder, Ahead: st.Ahead})
	}
}

func (a *attempt) terms() lease.Terms {
	return lease.Terms{
		TTL: a.o.TTL, StopMargin: a.o.StopMargin, MaxHold: a.o.MaxHold,
		Drift: a.l.cfg.Drift, NoRenew: a.o.NoRenew,
	}
}

// ended says why the wait is over: by whom the lock is held, where that is known and
// the store has not fallen silent since.
func (a *attempt) ended(ctx context.Context) error {
	cause := context.Cause(ctx)
	switch {
	case errors.Is(cause, ErrClosed):
		return cause
	case a.silent != nil:
		return joinCause(a.silent, cause)
	case a.ask.Last.State != lease.Gone:
		return a.taken(cause)
	case errors.Is(cause, errMaxWait), errors.Is(cause, context.DeadlineExceeded):
		return &kinded{ErrUnavailable, fmt.Errorf("no answer within %v: %w", a.waited().Round(time.Millisecond), cause)}
	}
	return cause
}

// taken says that somebody else, or a seal, has the name.
func (a *attempt) taken(cause error) error {
	if errors.Is(cause, errMaxWait) {
		cause = nil
	}
	if a.ask.Last.Seal.Closed() && a.ask.Last.Holder == nil {
		return joinCause(&SealedError{Seal: a.ask.Last.Seal}, cause)
	}
	held := &HeldError{Holder: a.ask.Last.Holder, Left: a.ask.Last.Left, Ahead: a.ask.Last.Ahead, Cause: cause}
	if a.told {
		held.Waited = a.waited()
	}
	return held
}

func joinCause(err, cause error) error {
	if cause == nil {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}

func (a *attempt) tooSlow(took time.Duration) error {
	return &kinded{ErrUnavailable, fmt.Errorf(
		"the answer took %v, nothing would be left of the lease of %v", took.Round(time.Millisecond), a.o.TTL)}
}

// backoff grows from 50 ms to 1 s, with jitter, so that the many who lost one server
// do not come back at once.
func backoff(fails int) time.Duration {
	d := 50 * time.Millisecond << min(fails-1, 5)
	d = min(d, time.Second)
	return d/2 + rand.N(d/2)
}

// pause sleeps, unless ctx ends: then it reports false.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
