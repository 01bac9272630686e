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

var errSelf = errors.New("the caller's own context holds it: waiting would never end; set Options.Reentrant to share it")

// again looks for a hold of name in ctx. With Reentrant it is shared: one more Held of
// the same hold, with the same fence, released when the last one is. Without, waiting
// for oneself is an error at once. No hold in ctx: nil, nil.
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
	case h.holders == 0:
		return nil, nil
	case !o.Reentrant:
		return nil, &HeldError{Holder: &lease.Holder{ID: h.token.ID, Ticket: h.token.Ticket, Owner: h.token.Owner}, Cause: errSelf}
	case h.o.mode() != lease.Exclusive && h.o.mode() != o.mode():
		return nil, &kinded{ErrConflict, fmt.Errorf("wanted as %v inside a hold that is %v", o.mode(), h.o.mode())}
	}
	h.holders++
	return &Held{hold: h}, nil
}
