package lease

import "time"

// Ask is the way of one claim to its hold. It is told of each look at the store and its
// answer, and says whether the next look joins or waits, whether a grant may be taken as
// it is, and whether a claim that is given up has to leave.
//
// However often it asks, it asks under one claim ID, so that a lost reply costs nothing
// and one leave undoes all of it.
type Ask struct {
	Terms   Terms
	Confirm bool // a grant that comes without being asked for is always confirmed

	Looks int
	Last  Standing // as last heard; Gone: nothing yet, or nothing that counts any more
	Sent  Instant  // when the last join was sent; 0: none was

	joined  bool // the last look was a join: its answer is as fresh as it can be
	refused bool // the store has said that it keeps nothing of the claim
}

// Verdict is what an answer means for the one who asks.
type Verdict uint8

const (
	Holds     Verdict = iota // the claim has the lock
	LookAgain                // look again at once
	Queued                   // it waits
	Refused                  // somebody else has the name
	TooLate                  // the answer took so long that nothing would be left of the lease
	Overtaken                // the store takes the claim for one that has left
)

// sentOnce is shorter than any client library waits before it sends a call again.
const sentOnce = 5 * time.Millisecond

// Look begins the next look and reports whether it is a join: a waiting claim waits for
// news, any other one joins.
func (a *Ask) Look(now Instant) (joins bool) {
	a.Looks++
	a.joined = a.Last.State != Waiting
	if a.joined {
		a.Sent = now
	}
	return a.joined
}

// Answered takes in what the look was answered. A grant of which too little is left is
// confirmed by joining once more, which also queues again if it is lost.
func (a *Ask) Answered(st Standing, now Instant) Verdict {
	a.Last = st
	switch st.State {
	case Held:
		enough := a.Terms.Sufficient(st.Asked, st.Lease, now)
		switch {
		case a.joined && !enough:
			return TooLate
		case !a.joined && (!enough || a.Confirm):
			a.Last.State = Gone // so that the next look joins
			return LookAgain
		}
		return Holds
	case Busy:
		a.refused = a.Looks == 1 && now.Sub(a.Sent) < sentOnce
		return Refused
	case Left:
		return Overtaken
	}
	return Queued
}

// Owes reports whether a claim that was given up must leave, and until when: any of its
// joins may have been carried out, or may still be. Not so where the only one was answered
// with a refusal, and so quickly that no client library underneath can have sent it twice.
func (a *Ask) Owes(ttl time.Duration) (until Instant, owes bool) {
	return a.Sent.Add(ttl + Drift(ttl)), a.Sent != 0 && !a.refused
}
