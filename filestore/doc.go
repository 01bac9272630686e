// Package filestore keeps locks in a directory, for the processes of one host. It needs
// no server, and a lock whose holder crashes is free at once.
//
// # What it promises
//
// Who may hold is decided by [lease.Queue]: first come, first served, all modes, seals,
// a fence. The directory is its storage, and two kinds of kernel locks (flock) are
// around it:
//
//   - Each Store keeps a file of its own locked for as long as it lives. A claim is
//     bound to the Store that joined it, and falls out, held or waiting, as soon as
//     anybody sees that this file is not locked any more. The kernel unlocks it however
//     the process ends, and no process identifier is looked at, so none can be reused.
//     A Store with Options.Detached binds its claims to no process: they live by their
//     leases alone, until somebody with the token leaves them.
//   - A name changes only under one of the directory's 64 lock files, for some
//     microseconds. They stay where they are; the files with the names' state are
//     replaced whole, by rename, so that a process that is killed between any two
//     instructions leaves the old state or the new one.
//
// A claim also ends with its lease, as in every store, on a clock that all processes of
// the host share and that goes on while the host sleeps. For a process that is alive but
// does not run (SIGSTOP, a debugger, a frozen container) the two disagree, and the lease
// wins: its hold ends when the TTL is over. A pure kernel lock would be held on, which is
// what users of flock expect, but a frozen process would then stop all others for good,
// here and in no other store; and what woke up would have been told by its context that
// its hold is over. A lock over a lease is advice; the fence is for the rest.
//
// Fences grow through crashes of processes, through restarts and reboots. They follow
// the wall clock in microseconds and never fall below the last one that the name's file,
// or the lock file of its shard, remembers. Nothing is therefore synced to the disk for
// a fence: if a power failure loses the files, the clock alone is ahead of all that was
// given. Only the two together, lost files and a clock set back, give a lower fence.
// What must outlive the machine's crash is synced: a seal. Claims end with the boot, for
// their processes did not survive it either.
//
// # On a shared host
//
// A directory is one user's. New refuses one that belongs to somebody else or that others
// can write to or could replace by another, and one inside a directory that somebody but
// root could; it makes its own for the user alone. So nobody else can read a token, end a
// lock or pretend to have one. Nothing in it is opened that is a link, a pipe or another
// user's file.
//
// # Processes
//
// What a holder starts inherits nothing of the Store, so a daemon that was started under
// a lock does not keep it. What is to keep it gets [Store.Lifeline]: a guard that ends a
// command whose wrapper was killed closes it when the command is dead.
//
// # Trouble
//
// On a full disk nobody new gets a lock. Who holds one renews and releases it from a room
// that is set aside, as long as nobody else takes that. A record is written beside the
// old one and takes its place when it is whole; a damaged one keeps its lock closed.
// A directory that is removed or moved away is an error to all who have it open.
//
// # What it leaves out
//
// It excludes on one host. File systems that other hosts may see are refused, as far as
// they can be told (Linux by kind; macOS and FreeBSD by what the system calls local), and
// so is a directory in use under another boot id. An overlay excludes in its container
// only. Whoever deletes files in the directory takes locks away from their holders.
//
// # The directory
//
//	lock-00 … lock-3f  locked while a name changes; in them the last ticket of names that are forgotten
//	names/             one file per name in use: see record.go
//	alive/             one file per Store, locked while it lives
//	wake/              one pipe per Store, through which it is told that a claim of its own has moved
//	boot               the boot in which the directory was last used first
//	swept              when somebody last cleaned up
//	spare              room for holders on a full disk
package filestore
