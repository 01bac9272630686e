// Package vote is what a quorum decides: when a majority of independent servers has given
// a lock, kept it or let it go, and with which fencing token. It has no clock, no I/O, no
// goroutine: package quorum feeds it with what the servers answer, and so does the
// simulator.
package vote

import (
	"github.com/redlatch/redlatch/lease"
)

// Majority is how many of n servers two of which always have one in common.
func Majority(n int) int { return n/2 + 1 }

// State is how a vote stands.
type State uint8

const (
	Open State = iota // more answers are needed
	Won
	Lost
)

// Acquire is one round of asking all servers for a name.
//
// The fencing token is proposed by the client, and costs no second round in most cases.
// A server that gives the lock keeps F = max(F + 1, proposed) for the name, in the same
// step, and answers the F it had before. The proposal stands if a majority gave the lock
// with an older F below it. Else the client takes the highest F that it was answered, and
// has those who gave the lock raise theirs to it, each in one step with the check that the
// lock is still this claim's there. A majority of such answers settles it.
//
// Why fences then never repeat and grow from one holder to the next, whatever clocks do:
// let a and b be two acquisitions that were completed. The majorities that settled them
// share a server k. There both had the lock, and one server gives it to one at a time, so
// one had it first, say a, and F on k was a's fence or more before b was given the lock
// there. b's fence counts on k only if k's F at b's grant was below it. Hence a < b, in
// the order of their holds on k; and if a was complete before b began, k gave a the lock
// first. Nothing in this says that their holds do not overlap, which is a matter of clocks;
// and it needs every server to keep F for good, through crashes too. (F alone, counted by
// each server for itself, repeats: two holders with different majorities may meet the same
// numbers. And a write-back without the check for the lock may come after the next holder's.)
type Acquire struct {
	proposed uint64
	seats    []seat
	fence    uint64 // what is to be settled, once a majority has given the lock
}

type seat struct {
	state   seatState
	ticket  uint64 // granted: what the server drew
	prev    uint64
	written uint64 // the server has raised its F to that while the lock was ours
	asked   bool   // to raise it
}

type seatState uint8

const (
	silent  seatState = iota // has not answered
	granted                  // the lock is ours there
	refused                  // it is another's, or closed
	failed                   // no answer, or one that does not count
	left                     // the claim's own leave was there first
)

// NewAcquire begins a round over n servers, each of which is asked with this proposal.
func NewAcquire(n int, proposed uint64) *Acquire {
	return &Acquire{proposed: proposed, seats: make([]seat, n)}
}

// Answered says what server i answered. counts says whether it may vote: one that has just
// restarted may have forgotten a lock that still lasts.
func (a *Acquire) Answered(i int, st lease.Standing, counts bool) {
	s := &a.seats[i]
	switch st.State {
	case lease.Held:
		s.state, s.ticket, s.prev = granted, st.Ticket, st.Prev
		if !counts {
			s.state = failed
		}
	case lease.Left:
		s.state = left
	default:
		s.state = refused
	}
}

// Failed says that server i gave no answer, or none about the lock.
func (a *Acquire) Failed(i int) { a.seats[i].state = failed }

// Raised says that server i has raised its F to fence, the lock being still ours there;
// or that it is not.
func (a *Acquire) Raised(i int, fence uint64, held bool) {
	s := &a.seats[i]
	s.asked = false
	if !held {
		s.state = failed
		return
	}
	s.written = max(s.written, fence)
}

// State is how the round stands.
func (a *Acquire) State() State {
	switch most := a.count(granted) + a.count(silent); {
	case a.count(left) > 0, most < Majority(len(a.seats)) && a.known():
		return Lost
	case a.common() != 0, a.fence != 0 && a.settled(a.fence):
		return Won
	}
	return Open
}

// known reports that enough is known to say why a round is lost: that others have the name
// is not the same as that too few have answered.
func (a *Acquire) known() bool {
	n, yes, no := len(a.seats), a.count(granted), a.count(refused)
	return a.count(silent) == 0 || yes+no >= Majority(n) || no > n-Majority(n)
}

// common is the ticket that a majority gave, 0 if there is none: in most cases the proposed
// one. Each of them had an older F before, so it needs no second round.
func (a *Acquire) common() uint64 {
	for _, s := range a.seats {
		n := 0
		for _, o := range a.seats {
			if s.state == granted && o.state == granted && o.ticket == s.ticket {
				n++
			}
		}
		if n >= Majority(len(a.seats)) {
			return s.ticket
		}
	}
	return 0
}

// settled reports whether that fence stands at a majority.
func (a *Acquire) settled(fence uint64) bool {
	n := 0
	for _, s := range a.seats {
		if s.state == granted && s.ticket <= fence && (s.ticket == fence || s.written >= fence) {
			n++
		}
	}
	return n >= Majority(len(a.seats))
}

// Fence is the fencing token of a round that is won.
func (a *Acquire) Fence() uint64 {
	if common := a.common(); common != 0 {
		return common
	}
	return a.fence
}

// Raise returns which servers must raise their F now, and to what, if any. Each is returned
// once.
func (a *Acquire) Raise() (servers []int, fence uint64) {
	if a.count(granted) < Majority(len(a.seats)) || a.State() != Open || a.again() && a.count(silent) > 0 {
		return nil, 0
	}
	if a.fence == 0 {
		for _, s := range a.seats {
			if s.state == granted {
				a.fence = max(a.fence, s.ticket)
			}
		}
	}
	for i := range a.seats {
		s := &a.seats[i]
		if s.state == granted && s.ticket < a.fence && s.written < a.fence && !s.asked {
			s.asked = true
			servers = append(servers, i)
		}
	}
	return servers, a.fence
}

// again reports that the claim had the lock at some server before this round: another copy of
// the same join has asked, or an answer was lost. Then all who answer are heard before a
// fence is chosen, so that both copies choose the same.
func (a *Acquire) again() bool {
	for _, s := range a.seats {
		if s.state == granted && s.prev == 0 && s.ticket != a.proposed {
			return true
		}
	}
	return false
}

// SecondRound reports whether the proposal was not high enough.
func (a *Acquire) SecondRound() bool { return a.fence != 0 }

// Answers is how many servers said yes, and how many that another has it.
func (a *Acquire) Answers() (yes, no int) { return a.count(granted), a.count(refused) }

// Left reports that a server knows of the claim's own leave.
func (a *Acquire) Left() bool { return a.count(left) > 0 }

// Prev is the highest fence that a server had before.
func (a *Acquire) Prev() uint64 {
	var prev uint64
	for _, s := range a.seats {
		if s.state == granted {
			prev = max(prev, s.prev)
		}
	}
	return prev
}

func (a *Acquire) count(state seatState) int {
	n := 0
	for _, s := range a.seats {
		if s.state == state {
			n++
		}
	}
	return n
}
