package redlatch

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redlatch/redlatch/internal/elapsed"
)

// HeldAll is several locks that were got together.
type HeldAll struct {
	holds  []*Held
	ctx    context.Context
	cancel context.CancelCauseFunc
}

// LockAll takes several locks, all or none. It takes them one after the other in the
// order of their names, so that callers with overlapping sets cannot wait for each
// other in a circle; a name given twice is taken once. o is for each of them, MaxWait
// for all together. If one cannot be had, those that were got are released and the
// error is that one's.
func (l *Locker) LockAll(ctx context.Context, names []string, o Options) (*HeldAll, error) {
	names = slices.Clone(names)
	slices.Sort(names)
	names = slices.Compact(names)
	for _, name := range names {
		if _, _, err := l.door(name, o); err != nil {
			return nil, &Error{Op: "lock", Name: name, Err: err}
		}
	}
	if len(names) == 0 {
		return nil, &Error{Op: "lock", Err: invalid("no names given")}
	}

	all := &HeldAll{}
	all.ctx, all.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	wait, stop := joinContext(all.ctx, ctx) // a lock lost while waiting for the next ends the wait
	defer stop()
	began := elapsed.Now()
	for _, name := range names {
		left := o
		if o.MaxWait > 0 {
			left.MaxWait = max(o.MaxWait-elapsed.Now().Sub(began), time.Millisecond)
		}
		held, err := l.Lock(wait, name, left)
		if err != nil {
			return nil, errors.Join(err, all.Unlock())
		}
		all.holds = append(all.holds, held)
		context.AfterFunc(held.Context(), func() { all.cancel(context.Cause(held.Context())) })
	}
	all.ctx = allContext{all.ctx, all}
	return all, nil
}

// allContext knows each of several holds, where a context of one knows one.
type allContext struct {
	context.Context
	all *HeldAll
}

func (c allContext) Value(key any) any {
	if k, ok := key.(holdKey); ok {
		for _, held := range c.all.holds {
			if k == (holdKey{held.l, held.name}) {
				return held.hold
			}
		}
	}
	return c.Context.Value(key)
}

// Context ends when the first of the locks does, and with its cause. For reentrancy it
// stands for all of them.
func (a *HeldAll) Context() context.Context { return a.ctx }

// Each is the locks in the order of their names.
func (a *HeldAll) Each() []*Held { return slices.Clone(a.holds) }

// Valid reports whether all of them are held.
func (a *HeldAll) Valid() bool {
	return !slices.ContainsFunc(a.holds, func(h *Held) bool { return !h.Valid() })
}

// Unlock releases all of them, the last one first, and joins the errors: see [Held.Unlock].
func (a *HeldAll) Unlock() error {
	var errs []error
	for _, h := range slices.Backward(a.holds) {
		errs = append(errs, h.Unlock())
	}
	a.cancel(errReleased)
	return errors.Join(errs...)
}
