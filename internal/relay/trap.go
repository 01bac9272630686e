package relay

import "slices"

type action int

const (
	hold action = iota
	dropReply
	cutReply
)

// A Trap waits for one request and catches it once: a client that sends it again gets through, unless another trap is set.
type Trap struct {
	relay    *Relay
	match    Match
	action   action
	caught   chan struct{}
	released bool // guarded by the relay
}

// Caught is closed when it has happened: for Hold, when the request has reached the relay and the server knows nothing of it; for the
// replies, when the server has carried the request out and the reply is lost.
func (t *Trap) Caught() <-chan struct{} { return t.caught }

// Release lets a held request go, and takes away a trap that has caught nothing. More than once is as good as once.
func (t *Trap) Release() {
	t.relay.change(func() {
		t.released = true
		t.relay.traps = slices.DeleteFunc(t.relay.traps, func(other *Trap) bool { return other == t })
	})
}

// spring returns the traps that this request walks into, at most one that holds it and one for its reply, and takes them away. The
// caller has the lock.
func (r *Relay) spring(args []string) (holds, reply *Trap) {
	r.traps = slices.DeleteFunc(r.traps, func(t *Trap) bool {
		place := &reply
		if t.action == hold {
			place = &holds
		}
		if *place != nil || !t.match(args) {
			return false
		}
		*place = t
		return true
	})
	return holds, reply
}
