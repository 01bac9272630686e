//go:build unix

// Package history is a record of who held what when, written by the holders themselves
// outside of the product, and [Check], which says what in it must not be.
//
// # What a record proves
//
// A holder's stamp is three steps: read the clock (Before), ask Held.Valid, read the
// clock again (After). If Valid said no, nothing is written. So a stamp proves that at
// some instant between its Before and its After the holder trusted its hold, and no
// more: the process may have been stopped between any two of the steps. All processes
// of one host read the same clock, CLOCK_MONOTONIC, so their stamps can be compared.
//
// Trust that has ended never comes back, because a renewal does not revive. So between
// the instants of its first and its last stamp a holder claims the name without a gap,
// also if it was stopped in between: it looked at the clock afterwards, and still
// believed. Nothing is claimed after the last stamp. A process that is stopped there and
// wakes up when its lease is over writes no further one, unless it trusts wrongly. That
// is what "trusted, running holders" means here: nobody has to know when a process did
// not run in order to judge who overlapped.
//
// # Overlap
//
// Of hold A it is known that it lasted from A.first.After at the latest to
// A.last.Before at the earliest. Two holds of one name overlap beyond doubt if
//
//	A.first.After < B.last.Before  and  B.first.After < A.last.Before
//
// and only then is it reported. What was written stays within what was true, so a
// report is never a matter of scheduling. Two lone stamps can never prove an overlap;
// one inside another's span can.
//
// # Fences
//
// If A's first stamp was over before B's first began, B's fence must be the higher one.
//
// # Stuck
//
// A name is stuck when a call waits for it, in a process that runs, for longer than a
// limit (the TTL and a second), and all that time nobody holds it. A dead or stopped
// holder costs its lease, which the limit has room for. A frozen process may be given the
// lock once more, since its subscription looks alive: the service's keys are watched from
// outside, and where they show that a process was given the lock that did not run, or
// stopped running at once, the limit counts anew. Calls that were stopped themselves
// count from when they went on.
//
// What this leaves out: shared and permit claims, the order of waiters, and time that
// passes while the whole machine stands still, which looks like slowness.
package history
