package redlatch

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/lease"
)

// What a caller decides on. Compare with [errors.Is].
var (
	ErrHeld        = errors.New("held by somebody else")    // as *HeldError
	ErrSealed      = errors.New("closed for now")           // as *SealedError
	ErrLost        = errors.New("lock lost")                // as *LostError
	ErrUnavailable = errors.New("the store is unavailable") // no answer; the call may have been carried out
	ErrDenied      = errors.New("the store refuses access") // credentials or rights
	ErrNotHeld     = errors.New("not held")                 // released before
	ErrQueueFull   = lease.ErrQueueFull                     // Config.MaxWaiters wait already
	ErrUnsupported = errors.New("the store cannot do this") // see its Features
	ErrInvalid     = errors.New("invalid")                  // refused before anything was sent
	ErrConflict    = errors.New("in use in another way")    // another mode, or another program's data
	ErrClosed      = errors.New("the locker is closed")
)

// Error is what every method returns: what was tried, on which lock, and why it
// did not work.
type Error struct {
	Op   string // lock, try, renew, unlock, resume, release, inspect, break, reopen, list
	Name string // of the lock
	Err  error
}

func (e *Error) Error() string {
	if e.Name == "" {
		return e.Op + ": " + e.Err.Error()
	}
	return fmt.Sprintf("%s %q: %v", e.Op, e.Name, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// HeldError says who has the lock. It is ErrHeld.
type HeldError struct {
	Holder *lease.Holder // nil: not known
	Left   time.Duration // how long the holder's lease still runs if it does not renew; 0: not known, or for ever
	Ahead  int           // claims ahead, holders included
	Waited time.Duration

	// Cause is why the wait ended: the ctx's error, or nil where there was none to wait for.
	Cause error
}

func (e *HeldError) Error() string {
	var b strings.Builder
	switch {
	case e.Holder == nil:
		b.WriteString("held by somebody else")
	case e.Holder.ID == "":
		fmt.Fprintf(&b, "held by another program (value %s)", lease.Abridged(e.Holder.Foreign))
	default:
		fmt.Fprintf(&b, "held by %v with fence %d", e.Holder.Owner, e.Holder.Ticket)
	}
	if e.Left > 0 {
		fmt.Fprintf(&b, ", lease ends in %v unless renewed", e.Left.Round(time.Millisecond))
	}
	if e.Waited > 0 {
		fmt.Fprintf(&b, "; waited %v", e.Waited.Round(time.Millisecond))
	}
	if e.Cause != nil {
		fmt.Fprintf(&b, ": %v", e.Cause)
	}
	return b.String()
}

func (e *HeldError) Is(target error) bool { return target == ErrHeld }
func (e *HeldError) Unwrap() error        { return e.Cause }

// SealedError says that nobody holds the lock and nobody can have it yet. It is
// ErrSealed.
type SealedError struct {
	Seal lease.Seal // its value, and how long it lasts
}

func (e *SealedError) Error() string {
	left := e.Seal.For.Round(time.Millisecond)
	if Taken(e.Seal) {
		return fmt.Sprintf("closed for %v more by %s (%s), who has broken its last hold",
			left, lease.Printable(e.Seal.By), lease.Printable(e.Seal.Reason))
	}
	if e.Seal.Victim != "" {
		return fmt.Sprintf("closed for %v more: broken by %s (%s), its last holder may still run",
			left, lease.Printable(e.Seal.By), lease.Printable(e.Seal.Reason))
	}
	return fmt.Sprintf("closed for %v more by its last holder", left)
}

func (e *SealedError) Is(target error) bool { return target == ErrSealed }

// LostError says how a hold was lost. It is ErrLost, and the cause of the hold's
// context. It never means that the work may simply be repeated.
type LostError struct {
	Name string
	Loss lease.Loss
}

func (e *LostError) Error() string        { return fmt.Sprintf("lock %q lost: %v", e.Name, &e.Loss) }
func (e *LostError) Is(target error) bool { return target == ErrLost }
func (e *LostError) Unwrap() error        { return e.Loss.Cause }

// kinded is an error of the store with what it is to the caller beside it.
type kinded struct {
	kind error
	err  error
}

func (k *kinded) Error() string   { return k.kind.Error() + ": " + k.err.Error() }
func (k *kinded) Unwrap() []error { return []error{k.kind, k.err} }

// storeError sorts an error of the store. Where the store does not know better, it
// did not answer: that is never "held", and never "released".
func storeError(err error) error {
	kind := ErrUnavailable
	var fault *driver.Fault
	var mode *lease.ModeError
	switch {
	case errors.Is(err, lease.ErrQueueFull):
		return err
	case errors.As(err, &mode):
		kind = ErrConflict
	case !errors.As(err, &fault):
	case fault.Kind == driver.Denied:
		kind = ErrDenied
	case fault.Kind == driver.Misplaced:
		kind = ErrConflict
	case fault.Kind == driver.Refused:
		kind = ErrUnsupported
	}
	return &kinded{kind, err}
}

func invalid(format string, args ...any) error {
	return &kinded{ErrInvalid, fmt.Errorf(format, args...)}
}
