package main

// runPlatform is what run does and does not do on this system.
const runPlatform = `
On Windows, this release asks the command to stop with Ctrl-Break and then ends that
one process: what it has started itself goes on, also when redlatch is killed. There
are no other signals, so --on-lost takes term, kill and warn only. There is no guard
that stops the command if redlatch is killed or hangs.`

// shell is how -c runs its string.
func shell(command string) []string { return []string{"cmd.exe", "/c", command} }
