//go:build unix

// Package history is a record of who held what when, written by the holders themselves
// outside of the product, and [Check], which says what in it must not be.
//
// # What a record proves
//
// A holder that has the lock reads the clock, asks Held.Valid, and writes a stamp with
// that time only if the answer is yes. This proves that it trusted the lock at that time:
// it had it by then, and trust that has ended never comes back, because a renewal does
// not revive. For the same reason it trusted the lock all the time from its first to its
// last stamp. If its process was stopped in between, it looked at the clock afterwards,
// and still believed. After its last stamp nothing is claimed: one that is stopped there
// and wakes up when its lease is over writes none, unless it trusts wrongly.
//
// That is what "trusted, running holders" means here. Nobody has to know when a process
// did not run in order to judge who overlapped, and slowness of the machine cannot make a
// report. All processes of one host read the same clock, CLOCK_MONOTONIC.
//
// # Overlap
//
// Two holds of a name overlap if each has its first stamp before the other's last. A lone
// stamp between two of another hold is enough.
//
// # Fences
//
// If A's hold began before B's, B's fence is the higher one. Nobody can begin before A
// has ended, and A stamps before it ends; so the first stamps say who began first.
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
