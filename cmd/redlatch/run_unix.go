//go:build unix

package main

// runPlatform is what run does and does not do on this system.
const runPlatform = `
The command has a process group of its own. TERM, INT, HUP, QUIT, ABRT, USR1, USR2,
WINCH, CONT, those of a fault (ILL, TRAP, BUS, FPE, SEGV, SYS) and, at a terminal,
TSTP are passed on to it. When it must stop, the whole group gets TERM, and KILL after
the grace, in any case before the lock can be anybody else's. What the command leaves
running in its group when it ends gets half a second to end, then TERM, then KILL: it
works under the lock, so it ends with it. What must outlive the lock is started with
setsid.

Between redlatch and the command stands a small process, rl-guard. If redlatch is
killed, with SIGKILL too, or does not run when it must act (SIGSTOP, Ctrl-Z), rl-guard
stops the command: TERM, the grace, KILL, before the lock can be anybody else's.
` + runSystem

// shell is how -c runs its string.
func shell(command string) []string { return []string{"/bin/sh", "-c", command} }
