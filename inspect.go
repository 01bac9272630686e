package redlatch

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/internal/elapsed"
	"github.com/redlatch/redlatch/lease"
)

// Inspect says who holds a name and who waits for it. It changes nothing, and what it
// says may be over when it returns.
func (l *Locker) Inspect(ctx context.Context, name string) (lease.Queue, error) {
	q, err := l.inspect(ctx, name)
	if err != nil {
		return lease.Queue{}, &Error{Op: "inspect", Name: name, Err: err}
	}
	return q, nil
}

func (l *Locker) inspect(ctx context.Context, name string) (lease.Queue, error) {
	full, err := l.full(name)
	if err != nil {
		return lease.Queue{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	q, err := l.store.Inspect(ctx, full)
	if err != nil {
		return lease.Queue{}, storeError(err)
	}
	return q, nil
}

// Names lists the names in use that begin with prefix, for people: holds shorter than a
// second may be missing. An error ends it.
func (l *Locker) Names(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for full, err := range l.store.Names(ctx, l.cfg.Prefix+prefix) {
			if err != nil {
				yield("", &Error{Op: "list", Err: storeError(err)})
				return
			}
			if !yield(strings.TrimPrefix(full, l.cfg.Prefix), nil) {
				return
			}
		}
	}
}

// BreakOptions say which hold is meant.
type BreakOptions struct {
	Fence  uint64 // of the hold that is meant; 0: the only one
	By     string // who breaks it; default: the Locker's owner
	Reason string // told to the holder

	// Now lets others have the name at once. The holder may then still be at work: its
	// fence, checked by what the lock protects, is the only thing that stops its writes.
	// It also opens a name that an earlier Break has closed.
	Now bool

	// Take closes the name to everybody for that long, those who wait included: whoever
	// breaks it can set right what the lock protects before others go on. Reopen ends it.
	Take time.Duration
}

// Broken is a hold that was broken, as it was.
type Broken struct {
	lease.Entry

	Left time.Duration // of its lease at the break: how long its holder may still be at work
}

// Break takes a hold away from its holder and returns it as it was. Nobody is granted
// the name before the holder has answered or its lease has run out, so that no two work
// at once, unless Now says otherwise. The holder is told at once where the store can, and
// by its next renewal at the latest; then its context ends, and says by whom and why.
// If that hold is not there any more, nothing is done and the error is ErrNotHeld; if
// another one is there, *HeldError.
func (l *Locker) Break(ctx context.Context, name string, o BreakOptions) (Broken, error) {
	b, err := l.breakHold(ctx, name, o)
	if err != nil {
		return Broken{}, &Error{Op: "break", Name: name, Err: err}
	}
	return b, nil
}

func (l *Locker) breakHold(ctx context.Context, name string, o BreakOptions) (Broken, error) {
	switch {
	case o.Take < 0:
		return Broken{}, invalid("a Take of %v is negative", o.Take)
	case o.Take > 0 && o.Now:
		return Broken{}, invalid("Take and Now together: nobody gets the name, or whoever is next")
	case !l.features.Seal && !o.Now:
		return Broken{}, &kinded{ErrUnsupported, fmt.Errorf("the store cannot keep the name closed until the holder has stopped; Now breaks it without")}
	}
	q, err := l.inspect(ctx, name)
	if err != nil {
		return Broken{}, err
	}
	if seal := q.Seal(); o.Now && o.Fence == 0 && seal.Victim != "" && len(q.Holders()) == 0 {
		return l.breakSealed(ctx, name, seal)
	}
	e, err := meant(q.Holders(), o.Fence)
	if err != nil {
		return Broken{}, err
	}
	full, err := l.full(name)
	if err != nil {
		return Broken{}, err
	}
	if o.By == "" {
		o.By = l.cfg.Owner.String()
	}
	seal := breakSeal(e, o, q.Now)
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	st, err := l.store.Leave(ctx, full, e.ID, 0, seal)
	switch {
	case err != nil:
		return Broken{}, storeError(err)
	case st.State == lease.Held:
		return Broken{e, st.Lease}, nil
	case st.Seal.Victim == e.ID:
		return Broken{e, st.Seal.For}, nil
	case st.Holder != nil:
		return Broken{}, &HeldError{Holder: st.Holder, Left: st.Left}
	}
	return Broken{}, ErrNotHeld
}

// breakSealed opens a name that an earlier break has closed: its victim is not waited for
// any longer.
func (l *Locker) breakSealed(ctx context.Context, name string, seal lease.Seal) (Broken, error) {
	full, err := l.full(name)
	if err != nil {
		return Broken{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if _, err := l.store.Leave(ctx, full, seal.Victim, 0, lease.Seal{}); err != nil {
		return Broken{}, storeError(err)
	}
	return Broken{Entry: lease.Entry{Claim: lease.Claim{ID: seal.Victim}}, Left: seal.For}, nil
}

// breakSeal is what a hold is broken with.
func breakSeal(e lease.Entry, o BreakOptions, now time.Time) lease.Seal {
	s := lease.Seal{By: o.By, Reason: o.Reason}
	switch {
	case o.Now:
		s.Victim = e.ID // is told, and nothing is closed
	case o.Take > 0:
		// The seal's victim ends it by leaving. It is nobody but who reopens the name, and
		// the broken holder stands in the value.
		s.For, s.Victim = max(o.Take, e.Expires.Sub(now)), lease.NewID()
		s.Value = taken{e.ID, e.Expires}.String()
	default:
		s.For, s.Victim = max(e.Expires.Sub(now), 1), e.ID // what is left then is for the store to say
	}
	return s
}

// taken is the value of the seal of a Break with Take.
type taken struct {
	victim string
	until  time.Time // by the store's clock: the end of its lease
}

func (t taken) String() string {
	return fmt.Sprintf("taken from %s until %d", t.victim, t.until.UnixMicro())
}

func takenOf(s lease.Seal) (taken, bool) {
	var t taken
	var until int64
	n, err := fmt.Sscanf(s.Value, "taken from %s until %d", &t.victim, &until)
	t.until = time.UnixMicro(until)
	return t, n == 2 && err == nil && s.By != "" && s.Closed()
}

// Taken reports whether a seal is that of a Break with Take.
func Taken(s lease.Seal) bool {
	_, ok := takenOf(s)
	return ok
}

// Reopen ends what Break with Take by the same party has closed. The error is ErrNotHeld
// if there is nothing of that kind, and *SealedError if it is somebody else's, or if the
// broken holder's lease still runs: that one may still be at work.
func (l *Locker) Reopen(ctx context.Context, name, by string) error {
	if err := l.reopen(ctx, name, by); err != nil {
		return &Error{Op: "reopen", Name: name, Err: err}
	}
	return nil
}

func (l *Locker) reopen(ctx context.Context, name, by string) error {
	q, err := l.inspect(ctx, name)
	if err != nil {
		return err
	}
	seal := q.Seal()
	t, ok := takenOf(seal)
	switch {
	case !ok:
		return ErrNotHeld
	case seal.By != by:
		return &SealedError{Seal: seal}
	case t.until.After(q.Now):
		seal.For = t.until.Sub(q.Now)
		return &SealedError{Seal: seal}
	}
	full, err := l.full(name)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if _, err := l.store.Leave(ctx, full, seal.Victim, 0, lease.Seal{}); err != nil {
		return storeError(err)
	}
	return nil
}

// meant finds the hold that a fence names.
func meant(holders []lease.Entry, fence uint64) (lease.Entry, error) {
	switch {
	case len(holders) == 0:
		return lease.Entry{}, ErrNotHeld
	case holders[0].ID == "":
		return lease.Entry{}, &kinded{ErrConflict, fmt.Errorf("held by another program (value %s), which cannot be told: delete the key by hand", lease.Abridged(holders[0].Foreign))}
	case fence == 0 && len(holders) > 1:
		return lease.Entry{}, invalid("%d hold it: say which by its fence", len(holders))
	case fence == 0:
		return holders[0], nil
	}
	for _, e := range holders {
		if e.Ticket == fence {
			return e, nil
		}
	}
	return lease.Entry{}, &HeldError{Holder: holders[0].Holder()}
}

// Resume takes up a hold that another process left, by its [Held.Token]. It renews
// first and trusts from that send on. A Held elsewhere with this token is not ended by
// it: two who resume one hold both hold it.
func (l *Locker) Resume(ctx context.Context, name, token string, o Options) (*Held, error) {
	held, err := l.resume(ctx, name, token, o)
	if err != nil {
		return nil, &Error{Op: "resume", Name: name, Err: err}
	}
	return held, nil
}

func (l *Locker) resume(ctx context.Context, name, text string, o Options) (*Held, error) {
	full, o, err := l.door(name, o)
	if err != nil {
		return nil, err
	}
	token, err := parseToken(text)
	if err != nil {
		return nil, err
	}
	if err := l.enter(); err != nil {
		return nil, err
	}
	defer l.busy.Done()
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	sent := elapsed.Now()
	out := l.store.Renew(call, []driver.Ref{{Name: full, Token: token, TTL: o.TTL}})[0]
	switch {
	case out.Err != nil:
		return nil, storeError(out.Err)
	case out.State != lease.Held:
		return nil, &LostError{Name: name, Loss: l.lossOf(out.Standing, token.ID)}
	}
	terms := lease.Terms{TTL: o.TTL, StopMargin: o.StopMargin, MaxHold: o.MaxHold, Drift: l.cfg.Drift, NoRenew: o.NoRenew}
	return l.keep(ctx, full, name, token, o, lease.Keep(terms, sent, o.TTL)), nil
}

// Release gives back a hold that another process left, by its [Held.Token]. The error is
// ErrNotHeld if it was not there any more and nobody else has the lock, so releasing
// again is harmless; *HeldError if somebody else has. To an operator who has broken the
// hold it is the holder's answer: the name opens.
func (l *Locker) Release(ctx context.Context, name, token string) error {
	if err := l.releaseToken(ctx, name, token); err != nil {
		return &Error{Op: "release", Name: name, Err: err}
	}
	return nil
}

func (l *Locker) releaseToken(ctx context.Context, name, text string) error {
	full, err := l.full(name)
	if err != nil {
		return err
	}
	token, err := parseToken(text)
	if err != nil {
		return err
	}
	if err := l.enter(); err != nil {
		return err
	}
	defer l.busy.Done()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	st, err := l.store.Leave(ctx, full, token.ID, 0, lease.Seal{})
	switch {
	case err != nil:
		return storeError(err)
	case st.State == lease.Held, st.State == lease.Waiting:
		return nil
	case st.Holder != nil:
		return &HeldError{Holder: st.Holder, Left: st.Left}
	}
	return ErrNotHeld
}

func parseToken(text string) (lease.Token, error) {
	token, err := lease.ParseToken(text)
	if err != nil {
		return token, &kinded{ErrInvalid, fmt.Errorf("the token: %w", err)}
	}
	return token, nil
}
