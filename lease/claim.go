package lease

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"time"
)

// Whole is the capacity of a name that is locked exclusively or shared, and the
// weight of an exclusive claim. It is large enough that readers never fill it.
const Whole = 1 << 30

// MaxRoom bounds how many further tickets one claim may ask for (see [Claim.Room]).
const MaxRoom = 64

// MaxTicket is the highest ticket: the highest number that scripts and JSON count to in
// steps of one. Drawn from a clock in microseconds, tickets get there in the year 2255.
const MaxTicket = 1<<53 - 1

// Mode is what kind of claim stands on a name. The zero value is Exclusive.
type Mode uint8

const (
	Exclusive Mode = iota // one holder: weight Whole of capacity Whole
	Shared                // many readers: weight 1 of capacity Whole
	Permit                // k of n permits: weight k of capacity n
)

func (m Mode) String() string {
	switch m {
	case Exclusive:
		return "exclusive"
	case Shared:
		return "shared"
	case Permit:
		return "permit"
	}
	return fmt.Sprintf("mode(%d)", uint8(m))
}

// OnSeal says what a claim does that meets a sealed name.
type OnSeal uint8

const (
	SealWait OnSeal = iota // keep the place, look again when the seal ends
	SealFail               // do not queue
)

// Claim is one party's wish for a name. Its ID is its identity: whoever asks twice
// under one ID asks once.
type Claim struct {
	ID    string
	Mode  Mode
	Slots int // Permit: the capacity n
	Need  int // Permit: the weight k; 0 means 1
	Owner Owner
	TTL   time.Duration

	// NoWait asks for the lock now or not at all. It does not pass those who wait.
	NoWait bool

	OnSeal OnSeal

	// MaxWaiters refuses the claim when that many already wait; 0 is no bound.
	MaxWaiters int

	// Fence is a proposed ticket, for a quorum that must agree on one over several
	// stores. 0: the store draws it from its clock.
	Fence uint64

	// Room asks for that many more tickets below the claim's own, all of them its
	// own: a process hands the lock on among its goroutines with a growing fence
	// and no further call. At most MaxRoom; a store may give less.
	Room int

	// Vote asks the store to answer with its identity and uptime (Standing.Node)
	// taken in the same step: a quorum does not count a server that restarted.
	Vote bool
}

// Weight is how much of the capacity the claim takes.
func (c Claim) Weight() int {
	switch c.Mode {
	case Shared:
		return 1
	case Permit:
		return max(c.Need, 1)
	}
	return Whole
}

// Capacity is the capacity that the claim expects the name to have.
func (c Claim) Capacity() int {
	if c.Mode == Permit {
		return c.Slots
	}
	return Whole
}

// Check reports the first thing about the claim that no store could honour.
func (c Claim) Check() error {
	switch {
	case !validID(c.ID):
		return fmt.Errorf("claim ID %q is not %d URL-safe characters", c.ID, idLen)
	case c.Mode > Permit:
		return fmt.Errorf("unknown mode %d", c.Mode)
	case c.TTL <= 0:
		return fmt.Errorf("a TTL of %v is not positive", c.TTL)
	case c.Mode == Permit && (c.Slots < 1 || c.Slots >= Whole):
		return fmt.Errorf("%d slots: a semaphore has 1 to %d", c.Slots, Whole-1)
	case c.Mode == Permit && (c.Need < 0 || c.Need > c.Slots):
		return fmt.Errorf("%d of %d slots can never be had", c.Need, c.Slots)
	case c.Mode != Permit && (c.Slots != 0 || c.Need != 0):
		return fmt.Errorf("slots belong to a semaphore, not to a claim that is %v", c.Mode)
	case c.Room < 0 || c.Room > MaxRoom:
		return fmt.Errorf("room for %d tickets: at most %d", c.Room, MaxRoom)
	case c.Fence > MaxTicket:
		return fmt.Errorf("a proposed ticket of %d: at most %d", c.Fence, uint64(MaxTicket))
	case c.MaxWaiters < 0:
		return fmt.Errorf("a bound of %d waiters is negative", c.MaxWaiters)
	}
	return nil
}

const idLen = 22

// NewID draws a claim ID: nearly 132 random bits as 22 URL-safe characters. The length is
// fixed so that no ID is the beginning of another (some libraries compare only as
// many bytes as their own token has). It does not begin with a "-": a token is an
// argument in scripts, and would be taken for a flag.
func NewID() string {
	var b [17]byte
	for {
		rand.Read(b[:]) // never fails: crypto/rand crashes the program instead
		if id := base64.RawURLEncoding.EncodeToString(b[:])[:idLen]; id[0] != '-' {
			return id
		}
	}
}

func validID(id string) bool {
	if len(id) != idLen {
		return false
	}
	for i := range len(id) {
		c := id[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_':
		default:
			return false
		}
	}
	return true
}

// ErrQueueFull refuses a claim because its MaxWaiters already wait.
var ErrQueueFull = errors.New("too many waiters")

// ModeError refuses a claim on a name that is in use with another capacity: a
// mutex is not a semaphore, and a semaphore of 3 is not one of 5.
type ModeError struct {
	Want, Have          Mode
	WantSlots, HasSlots int
}

func (e *ModeError) Error() string {
	return fmt.Sprintf("wanted as %s, in use as %s", kind(e.Want, e.WantSlots), kind(e.Have, e.HasSlots))
}

func kind(m Mode, slots int) string {
	if m == Permit {
		return fmt.Sprintf("a semaphore of %d", slots)
	}
	return "a mutex or read-write lock"
}
