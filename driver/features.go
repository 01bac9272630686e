package driver

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redlatch/redlatch/lease"
)

// Features is what a store can do. It is the same for the store's whole life.
//
// A store without FIFO keeps no queue. A claim that waits is known to the Store it joined
// through and to nobody else: Inspect does not show it, a claim with NoWait passes it, and
// another process's Leave finds nothing, but ends it by what it leaves behind
// ([lease.Left]). It has no ticket (0) before it is granted, for fences grow from grant to
// grant. MaxWaiters and Ahead count what waits in the same Store.
type Features struct {
	Fence         bool          // tickets grow for ever, through crashes of the service as configured
	FIFO          bool          // claims are granted in ticket order; see below for what a store without it is
	Modes         []lease.Mode  // which claims it takes
	Seal          bool          // a claim may leave with a seal
	Push          bool          // waiters are told; false: they look again at intervals
	WaitersExpire bool          // waiting claims must be renewed like held ones
	HostOnly      bool          // excludes on one host only
	ProcessOnly   bool          // excludes in this process only
	MinTTL        time.Duration // shorter leases are refused
}

// Covers reports what of want is missing. Of a want's MinTTL the store's may be at
// most that, unless it is 0; a want with HostOnly or ProcessOnly means nothing.
func (f Features) Covers(want Features) error {
	var missing []string
	need := func(wanted, had bool, what string) {
		if wanted && !had {
			missing = append(missing, what)
		}
	}
	need(want.Fence, f.Fence, "fencing tokens")
	need(want.FIFO, f.FIFO, "first come, first served")
	need(want.Seal, f.Seal, "seals")
	need(want.Push, f.Push, "waking its waiters")
	for _, m := range want.Modes {
		need(true, slices.Contains(f.Modes, m), m.String()+" locks")
	}
	need(want.MinTTL > 0, f.MinTTL <= want.MinTTL, fmt.Sprintf("leases of %v (its shortest is %v)", want.MinTTL, f.MinTTL))
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("the store lacks %s", strings.Join(missing, ", "))
}
