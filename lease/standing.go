package lease

import "time"

// State is where a claim stands.
type State uint8

const (
	Gone    State = iota // no such claim here: never joined, expired, dropped or broken
	Waiting              // queued
	Held                 // granted
	Busy                 // asked not to wait (or not behind a seal) and could not be granted: not queued
	Left                 // it has left already: this join came after its own leave
)

func (s State) String() string {
	return [...]string{"gone", "waiting", "held", "busy", "left"}[s]
}

// Standing is a store's answer about one claim.
type Standing struct {
	State State

	// Ticket is the claim's place in line and, once held, its fence. The claim owns
	// the Room numbers below it too. Prev is the highest ticket of the name before it.
	Ticket uint64
	Room   int
	Prev   uint64

	// Asked is the caller's own time just before the call was sent that this answer
	// dates from; Lease is how long the store keeps a held claim at least, counted
	// from then. A store that grants without being asked again dates the grant from
	// the last answered call that came before it, and may grant for less than the TTL.
	Asked Instant
	Lease time.Duration

	// Ahead is how many claims stand before a waiting one, holders included.
	Ahead int

	// Holder is who has the name, where the claim does not; Left is how long that
	// lease still runs by the store's clock (0: unknown or without end).
	Holder *Holder
	Left   time.Duration

	Seal Seal // closed: why nobody is granted
	Node Node // with Claim.Vote: who answered

	// Once says of a Leave's answer that the call was surely carried out one time only:
	// a claim that it did not find had not been released by an earlier copy of it.
	Once bool

	// Rev is for Wait: it returns when the standing may differ from this one's.
	Rev uint64
}

// Holder is somebody who holds a name, as others see it.
type Holder struct {
	ID     string // "" where the holder does not use redlatch
	Ticket uint64
	Owner  Owner

	Foreign string // the holder's raw value where it does not use redlatch: another library's lock
}

// Node is what a quorum must know about the server that answered.
type Node struct {
	ID      string        // changes with every start of the server (Redis: run_id)
	Uptime  time.Duration // since that start
	Durable bool          // what it acknowledged survives a crash of it
	Clock   time.Time     // its clock
}
