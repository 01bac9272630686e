package lease

import (
	"fmt"
	"time"
)

// Terms are the conditions of one hold.
type Terms struct {
	TTL        time.Duration
	StopMargin time.Duration // the holder is told that much before trust ends
	MaxHold    time.Duration // the hold ends then; 0 is no bound
	Drift      time.Duration // trust ends that much earlier still, beside [Drift]
	NoRenew    bool
}

// Drift is what a lease of ttl is shortened by on the holder's side, because its
// clock and the store's run at different rates: 1 % and 2 ms. Clocks that step are
// another matter; they are not covered.
func Drift(ttl time.Duration) time.Duration { return ttl/100 + 2*time.Millisecond }

// AttemptTimeout is how long one renewal of a lease of ttl may take before it
// counts as failed and is tried again.
func AttemptTimeout(ttl time.Duration) time.Duration {
	return min(max(ttl/6, 5*time.Millisecond), time.Second)
}

// Keeper keeps one hold. It is fed with what happens and when, and says in its
// [Order] when to renew, until when trust lasts, and when and why the hold is lost.
//
// Trust counts from the moment the last acknowledged call was sent: the store
// cannot have started the lease before it got the call. It never counts from a
// reply, which may have been a long time on its way, nor from a call without one.
// (This is also how river's elector and Redlock's validity count; rueidislock
// counts from calls that were not acknowledged, and a partitioned holder learns of
// its loss seconds after another one got the lock.)
//
// Trust only grows: stores never shorten a lease, so an answer that comes late or
// out of order takes nothing away, and an old one adds nothing.
type Keeper struct {
	terms Terms
	start Instant // the call that got the lock
	acked Instant // when the last one of those that were acknowledged was sent
	until Instant // trust
	next  Instant // the next renewal
	busy  bool    // a renewal is on its way

	failing bool    // since the last acknowledged call
	since   Instant // when the first failed call was sent
	cause   error   // what the last one said

	loss *Loss
	done bool
}

// Order is what a Keeper wants done next.
type Order struct {
	Renew Instant // send a renewal then; Never: none
	Stop  Instant // tell the holder then that it is over, if nothing comes before
	Until Instant // trust ends then
	Lost  *Loss   // not nil: it is over
}

// Keep starts a keeper for a hold that was got by a call sent at asked, for lease.
// A lease shorter than the TTL (a grant) is renewed soon.
func Keep(t Terms, asked Instant, lease time.Duration) *Keeper {
	k := &Keeper{terms: t, start: asked, acked: asked, until: asked}
	k.trust(asked, lease)
	return k
}

// Sufficient reports whether a grant that dates from asked may be taken at now as it
// is. If not, the claim confirms it with a renewal first: when less than half of the
// grant or less than the margin would be left, and when no renewal will follow that
// could make the short grant long.
func (t Terms) Sufficient(asked Instant, lease time.Duration, now Instant) bool {
	left := asked.Add(t.usable(lease)).Sub(now)
	if lease < t.TTL && (t.NoRenew || left < lease/2) {
		return false
	}
	return left > 0 && left > t.StopMargin
}

func (t Terms) usable(lease time.Duration) time.Duration { return lease - Drift(lease) - t.Drift }

// Sent says that a renewal has been sent.
func (k *Keeper) Sent(now Instant) Order {
	k.busy = true
	return k.Tick(now)
}

// Renewed says that a call sent at sent was acknowledged and bought lease.
func (k *Keeper) Renewed(now, sent Instant, lease time.Duration) Order {
	k.busy = false
	if o := k.Tick(now); o.Lost != nil || k.done {
		return o // an answer after the end changes nothing: the holder has been told
	}
	k.trust(sent, lease)
	return k.Tick(now)
}

// Failed says that the renewal sent at sent got no answer, or one that says nothing
// about the lock. It is tried again until trust ends.
func (k *Keeper) Failed(now, sent Instant, cause error) Order {
	k.busy = false
	if sent < k.acked {
		return k.Tick(now) // a later one was acknowledged
	}
	if !k.failing {
		k.failing, k.since = true, sent
	}
	k.cause = cause
	k.next = now.Add(min(max(k.terms.TTL/12, 5*time.Millisecond), time.Second))
	return k.Tick(now)
}

// Gone says that the store does not have the hold any more, and why.
func (k *Keeper) Gone(now Instant, why Loss) Order {
	k.busy = false
	if o := k.Tick(now); o.Lost != nil || k.done {
		return o
	}
	why.At = now
	k.loss = &why
	return k.order()
}

// Raise says that from now on renewals ask for ttl. What is trusted already stays.
func (k *Keeper) Raise(now Instant, ttl time.Duration) Order {
	k.terms.TTL = ttl
	return k.Tick(now)
}

// Released says that the holder gives the lock back: nothing more is renewed.
func (k *Keeper) Released() { k.done = true }

// Tick says what time it is.
func (k *Keeper) Tick(now Instant) Order {
	if k.loss != nil || k.done {
		return k.order()
	}
	switch {
	case now >= k.maxHold() && k.maxHold() <= k.stop(): // whatever came first, however late this is
		k.loss = &Loss{Why: HeldTooLong, At: now, After: k.terms.MaxHold}
	case now >= k.stop() && k.failing:
		k.loss = &Loss{Why: Unreachable, At: now, After: now.Sub(k.since), Cause: k.cause}
	case now >= k.stop():
		k.loss = &Loss{Why: Expired, At: now, After: now.Sub(k.start)}
	}
	return k.order()
}

// Late reports that renewals are: of the time that the last acknowledged call bought,
// less than a third is left. One that is tried in time and answered leaves two thirds,
// and one more that failed before it half.
func (k *Keeper) Late(now Instant) bool {
	if k.terms.NoRenew || k.loss != nil || k.done {
		return false
	}
	return k.stop().Sub(now) < k.stop().Sub(k.acked)/3
}

// Until is when trust ends.
func (k *Keeper) Until() Instant { return k.until }

// Start is when the call was sent that got the lock.
func (k *Keeper) Start() Instant { return k.start }

// TTL is what renewals ask for.
func (k *Keeper) TTL() time.Duration { return k.terms.TTL }

// Lost is how the hold ended before it was released; nil if it did not.
func (k *Keeper) Lost() *Loss { return k.loss }

func (k *Keeper) order() Order {
	o := Order{Renew: k.next, Stop: min(k.stop(), k.maxHold()), Until: k.until, Lost: k.loss}
	if k.busy || k.done || k.loss != nil || k.terms.NoRenew {
		o.Renew = Never
	}
	if k.done || k.loss != nil {
		o.Stop = Never
	}
	return o
}

// trust counts lease from the call sent at asked and plans the next renewal for
// when a third of what can be used of it has passed: two more tries fit in.
func (k *Keeper) trust(asked Instant, lease time.Duration) {
	usable := k.terms.usable(lease)
	k.until = max(k.until, asked.Add(usable))
	if asked < k.acked {
		return // an answer out of order: what was planned after the later one stands
	}
	k.acked, k.failing = asked, false
	k.next = asked.Add(max(usable-k.terms.StopMargin, 0) / 3)
}

func (k *Keeper) stop() Instant { return k.until.Add(-k.terms.StopMargin) }

func (k *Keeper) maxHold() Instant {
	if k.terms.MaxHold == 0 {
		return Never
	}
	if end := k.start.Add(k.terms.MaxHold); end > k.start {
		return end
	}
	return Never // so far off that it cannot be counted
}

// Why is the reason of a loss.
type Why uint8

const (
	Expired     Why = iota // the lease ran out: not renewed, by wish or because the process did not run
	Unreachable            // the lease ran out while the store did not answer
	Taken                  // the store says that somebody else has it
	Vanished               // the store has no such lock: deleted, evicted, or a fail-over lost it
	Broken                 // an operator broke it
	HeldTooLong            // MaxHold is over
)

// Loss says how a hold ended that was not released. It never means that the work
// may be repeated: part of it may be done, and somebody else may be doing it.
type Loss struct {
	Why    Why
	At     Instant
	After  time.Duration // Expired, HeldTooLong: how long it was held; Unreachable: for how long nothing was heard
	By     string        // Taken: the holder; Broken: who broke it
	Reason string        // Broken: the given reason
	Cause  error         // Unreachable: what the last renewal said
}

func (l *Loss) String() string {
	switch l.Why {
	case Expired:
		return fmt.Sprintf("the lease ran out after %v without a renewal", l.After.Round(time.Millisecond))
	case Unreachable:
		return fmt.Sprintf("no renewal for %v: %v", l.After.Round(time.Millisecond), l.Cause)
	case Taken:
		return "taken by " + Printable(l.By)
	case Broken:
		return fmt.Sprintf("broken by %s: %s", Printable(l.By), Printable(l.Reason))
	case HeldTooLong:
		return fmt.Sprintf("held for the longest time allowed, %v", l.After)
	}
	return "the store does not have it any more (deleted, evicted, or lost in a fail-over)"
}
