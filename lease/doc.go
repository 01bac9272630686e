// Package lease holds the rules of redlatch, and nothing that moves.
//
// There are two of them. A [Queue] says who holds a name: claims with weights
// stand in ticket order, and a claim is held when it and all claims ahead of it
// fit into the capacity. A [Keeper] says how long one holder may believe that it
// still holds: when to renew, until when trust lasts, when the hold is lost and
// why.
//
// The package reads no clock, does no I/O and starts no goroutine: it is told the
// time. A queue is told the store's time, a keeper the holder's own; the two have
// different types ([time.Time] and [Instant]) because comparing them is the classic
// fault of lease libraries. Production, the in-memory store, the conformance suite
// and the simulator all run this code.
package lease
