package redlatch

import (
	"fmt"
	"slices"
	"time"

	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/lease"
)

// DefaultTTL is the lease of a hold whose Options say nothing.
const DefaultTTL = 30 * time.Second

// MaxTTL is the longest lease: a lock whose holder died and that nobody can have for
// longer than a year is a mistake in units.
const MaxTTL = 365 * 24 * time.Hour

// Options say how a lock is wanted. The zero value is an exclusive lock with a lease
// of 30 s that is renewed until it is released.
type Options struct {
	// TTL is how long the store keeps the lock after the last renewal. Default
	// DefaultTTL. Parts of a millisecond count as a whole one.
	TTL time.Duration

	Shared bool // a reader's lock: holders with Shared exclude only those without
	Slots  int  // a semaphore of so many slots; all who use the name must give the same number
	Weight int  // how many of the Slots; default 1

	MaxWait     time.Duration // Lock waits so long at most; default: as long as its ctx
	MaxAttempts int           // Lock looks at the lock so often at most, the first time included; default: no bound

	MaxHold     time.Duration // the hold ends after that, renewed or not; default: no bound
	HoldAtLeast time.Duration // after an earlier release the name stays closed until that has passed since it was got

	OnSeal lease.OnSeal // what Lock does while the name is closed; default: wait

	NoRenew    bool          // the hold ends with its first lease
	StopMargin time.Duration // its context ends that much before the lease; at most half the TTL
	Confirm    bool          // a lease that was handed over counts only when the store has confirmed it once more
	Reentrant  bool          // with a ctx that came from a hold of the same name: share it, counted

	Labels map[string]string // shown by Inspect
	Note   string            // shown by Inspect
}

// check returns the options with their defaults, or what is wrong with them.
func (o Options) check(f driver.Features) (Options, error) {
	if o.TTL == 0 {
		o.TTL = DefaultTTL
	}
	o.TTL = ceilMillisecond(o.TTL)
	switch {
	case o.TTL < f.MinTTL:
		return o, invalid("a TTL of %v is below the store's smallest, %v", o.TTL, f.MinTTL)
	case o.TTL > MaxTTL:
		return o, invalid("a TTL of %v is above the longest, %v; renewal keeps a lock for longer than its TTL", o.TTL, MaxTTL)
	case o.StopMargin < 0 || o.StopMargin > o.TTL/2:
		return o, invalid("a StopMargin of %v is not within 0 and half the TTL, %v; give a longer TTL", o.StopMargin, o.TTL/2)
	case o.MaxWait < 0:
		return o, invalid("a MaxWait of %v is negative; TryLock does not wait", o.MaxWait)
	case o.MaxAttempts < 0:
		return o, invalid("%d MaxAttempts are negative; 0 is no bound", o.MaxAttempts)
	case o.MaxHold < 0:
		return o, invalid("a MaxHold of %v is negative; 0 is no bound", o.MaxHold)
	case o.HoldAtLeast < 0:
		return o, invalid("a HoldAtLeast of %v is negative", o.HoldAtLeast)
	case o.HoldAtLeast > MaxTTL:
		return o, invalid("a HoldAtLeast of %v is above the longest, %v", o.HoldAtLeast, MaxTTL)
	case o.MaxHold > 0 && o.HoldAtLeast > o.MaxHold:
		return o, invalid("HoldAtLeast %v is longer than MaxHold %v", o.HoldAtLeast, o.MaxHold)
	case o.HoldAtLeast > 0 && !f.Seal:
		return o, &kinded{ErrUnsupported, fmt.Errorf("HoldAtLeast needs a store that can seal")}
	case o.Shared && o.Slots != 0:
		return o, invalid("Shared and Slots together: a lock is a reader's or a semaphore's")
	case o.Weight != 0 && o.Slots == 0:
		return o, invalid("Weight %d without Slots", o.Weight)
	case !slices.Contains(f.Modes, o.mode()):
		return o, &kinded{ErrUnsupported, fmt.Errorf("the store has no %v locks", o.mode())}
	}
	return o, nil
}

func (o Options) mode() lease.Mode {
	switch {
	case o.Slots != 0:
		return lease.Permit
	case o.Shared:
		return lease.Shared
	}
	return lease.Exclusive
}

func ceilMillisecond(d time.Duration) time.Duration {
	if rest := d % time.Millisecond; d > 0 && rest > 0 {
		d += time.Millisecond - rest
	}
	return d
}
