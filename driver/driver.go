// Package driver is the wall between redlatch and the services that keep its locks:
// [Store] is what a store implements, [Features] what it can do.
//
// The interface is small and has no optional parts: quorums, fault injection, tracing
// and the simulator all wrap stores, and wrapping loses optional interfaces. Programs
// that use locks need the root package, not this one.
package driver

import (
	"context"
	"iter"
	"time"

	"github.com/redlatch/redlatch/lease"
)

// Store keeps queues of claims by name. package drivertest is its specification in
// code; what follows is what both sides may rely on.
//
// Every call may be lost after it took effect, so every call may be made again with
// the same arguments, by the caller or by a client library underneath, one after the
// other or both at once, and the second one changes nothing.
//
// A call returns when its ctx ends, also where the client library underneath would
// not; what it was about may then still happen. A store does not retry: the caller
// knows how much time is left.
//
// Errors are what the service said, untouched, inside a [*Fault] where the store knows
// what kind it is. An error never means "held by somebody": that is a Standing.
//
// Names have passed [lease.CheckName] and claims [lease.Claim.Check]; the store refuses
// a TTL below its MinTTL and modes that it does not have.
type Store interface {
	// Join asks for the name. The same claim ID again is the same claim while it is
	// queued or held, also after a lost reply: same ticket, expiry pushed to TTL from
	// now and never pulled back. A claim that was granted and lost, skipped or expired
	// draws a new ticket. One whose leave has overtaken it is refused (lease.Left), for
	// a minute at least; one that joined, left and joins again may be taken as new.
	//
	// A claim with NoWait, or with SealFail before a seal, is never queued. Errors
	// besides the service's: *lease.ModeError, lease.ErrQueueFull.
	Join(ctx context.Context, name string, c lease.Claim) (lease.Standing, error)

	// Renew keeps many claims, held or (where Features.WaitersExpire) waiting, in one
	// call, each to TTL from now at least. It never revives a claim that is gone and
	// never shortens. There is one answer per ref, in order; trouble with one is not
	// the others' trouble.
	Renew(ctx context.Context, refs []Ref) []Outcome

	// Leave releases, withdraws or, by an operator, breaks: after it the claim is not
	// here, and if it had not joined yet, its late join finds that out. A seal of a
	// held claim closes the name in the same step. The answer is where the claim stood
	// before; lease.Gone is not an error.
	//
	// A ticket other than 0 means only the hold with that ticket: anything else stays as
	// it is, and nothing is remembered, so that a late copy of the call does no harm to a
	// claim that has left and joined again.
	Leave(ctx context.Context, name, id string, ticket uint64, s lease.Seal) (lease.Standing, error)

	// Wait returns when the claim's standing may have changed since the standing that
	// had this Rev: granted, gone, sealed, or about to be worth another look. It may
	// return early and may not miss: a change between the call that answered rev and
	// this one must end it at once, so a store subscribes first, looks second and
	// sleeps third. Under every wake-up it has a timer of its own, so that a lost
	// message costs a bounded delay.
	Wait(ctx context.Context, name, id string, rev uint64) (lease.Standing, error)

	// Notify calls f for claims that were broken through another Store, until stop is
	// called: the holder then need not wait for its next renewal to learn it. It is a
	// hint and no proof, and the next renewal is what says the truth: a store without
	// Push has no such news, and any other may lose some. f may hear of claims that are
	// not its business; it must return at once, and not call the Store. When stop has
	// returned, f is not running and will not be called again.
	Notify(f func(Notice)) (stop func())

	// Inspect returns a copy of everything about the name, by the store's clock. A name
	// that nobody uses is a zero Queue with the time in Now. Holders that do not use
	// redlatch are entries without an ID, and with Foreign.
	Inspect(ctx context.Context, name string) (lease.Queue, error)

	// Names lists names in use that begin with prefix, for people: it may miss holds
	// shorter than a second, and its cost does not grow with what else the service
	// stores. An error ends it.
	Names(ctx context.Context, prefix string) iter.Seq2[string, error]

	// Node says who answers. See also lease.Claim.Vote.
	Node(ctx context.Context) (lease.Node, error)

	Features() Features

	// Close frees what the store itself has started. It leaves the claims alone, and a
	// client that the user gave open.
	Close() error
}

// Ref is one claim in a Renew.
type Ref struct {
	Name  string
	Token lease.Token // of a waiting claim too: its ID and ticket say which claim is meant
	TTL   time.Duration
	Fence uint64 // not 0: the name's last ticket becomes at least that, if the claim is held
}

// Outcome answers a Ref. Where Err is nil, Standing.State is Held, Waiting or Gone.
// Gone says why as far as is known: Standing.Holder has it now, or Standing.Seal was
// set by whoever broke it (Seal.Victim is the claim's ID).
type Outcome struct {
	lease.Standing

	Err error
}

// Kind says what sort of trouble an error of a store is.
type Kind uint8

const (
	Unavailable Kind = iota // no answer, or one that says "not now"; the call may have been carried out
	Denied                  // credentials, or rights
	Misplaced               // the name's data belong to something else; the message says what
	Refused                 // the store cannot do what was asked, whenever it is asked
)

// Fault is an error with its kind. Its text is the service's own.
type Fault struct {
	Kind Kind
	Err  error
}

func (f *Fault) Error() string { return f.Err.Error() }
func (f *Fault) Unwrap() error { return f.Err }
