//go:build unix && !linux

package main

const runSystem = `
Who has left the command's group (setsid) is not found on this system, and lives on. If
rl-guard is killed, the command is stopped: exit code 70. With --no-guard nobody stops a
command whose redlatch is killed.`
