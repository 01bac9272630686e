package redlatch

import (
	"context"
	"errors"
	"fmt"

	"github.com/redlatch/redlatch/lease"
)

// holdKey is under which a hold's context carries the hold.
type holdKey struct {
	l    *Locker
	name string
}

// covers reports what a hold with these Options does not give to one inside it.
func (o Options) covers(inner Options) error {
	mode := inner.mode()
	switch {
	case o.mode() != mode && !(o.mode() == lease.Exclusive && mode == lease.Shared):
		return &kinded{ErrConflict, fmt.Errorf("wanted as %v inside a hold that is %v", mode, o.mode())}
	case mode == lease.Permit && (inner.Slots != o.Slots || max(inner.Weight, 1) > max(o.Weight, 1)):
		return &kinded{ErrConflict, fmt.Errorf("wanted %d of %d slots inside a hold of %d of %d",
			max(inner.Weight, 1), inner.Slots, max(o.Weight, 1), o.Slots)}
	case inner.HoldAtLeast > o.HoldAtLeast:
		return invalid("HoldAtLeast %v inside a hold that has %v; give it to the outer one", inner.HoldAtLeast, o.HoldAtLeast)
	case inner.MaxHold > 0 && (o.MaxHold == 0 || inner.MaxHold < o.MaxHold):
		return invalid("MaxHold %v inside a hold that has %v (0: no bound); give it to the outer one", inner.MaxHold, o.MaxHold)
	case inner.StopMargin > o.StopMargin:
		return invalid("StopMargin %v inside a hold that has %v; give it to the outer one", inner.StopMargin, o.StopMargin)
	}
	return nil
}

var errSelf = errors.New("the caller's own context holds it: waiting would never end; set Options.Reentrant to share it")

// again looks for a hold of name in ctx. With Reentrant it is shared: one more Held of
// the same hold, with the same fence, released when the last one is. Without, waiting
// for oneself is an error at once. No hold in ctx: nil, nil.
//
// The outer hold's Options stand: what the inner ones ask for beyond them is refused.
//
// The identity is the context's, not the goroutine's: whoever was given the context of
// a hold works under it.
func again(ctx context.Context, l *Locker, name string, o Options) (*Held, error) {
	h, _ := ctx.Value(holdKey{l, name}).(*hold)
	if h == nil {
		return nil, nil
	}
	if lost := h.lostError(); lost != nil {
		return nil, lost
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.holders == 0, h.over != nil, h.tried:
		return nil, nil // it is over, whatever the store knows of that
	case !o.Reentrant:
		return nil, &HeldError{Holder: &lease.Holder{ID: h.token.ID, Ticket: h.token.Ticket, Owner: h.token.Owner}, Cause: errSelf}
	}
	if err := h.o.covers(o); err != nil {
		return nil, err
	}
	h.holders++
	return &Held{hold: h}, nil
}
