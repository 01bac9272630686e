//go:build unix

package main

// runPlatform is what run does and does not do on this system.
const runPlatform = `
The command has a process group of its own; TERM, INT, HUP, QUIT, USR1, USR2, WINCH,
CONT and, at a terminal, TSTP are passed on to it. When it must stop, the whole group
gets TERM, and KILL after the grace, in any case before the lock can be anybody
else's. What the command leaves running in its group when it ends gets half a second
to end, then TERM, then KILL: it works under the lock, so it ends with it. What must
outlive the lock is started with setsid.

If redlatch itself is killed with SIGKILL, the kernel kills the command on Linux, but
not what that has started; on other systems nobody does. If it is stopped with
SIGSTOP, the command runs on, beyond the lease's end too: its fence is what tells.`

// shell is how -c runs its string.
func shell(command string) []string { return []string{"/bin/sh", "-c", command} }
