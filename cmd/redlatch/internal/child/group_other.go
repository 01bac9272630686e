//go:build unix && !linux

package child

import "syscall"

// dieWithUs has no counterpart outside Linux: a command whose redlatch is killed with
// SIGKILL goes on.
func dieWithUs(*syscall.SysProcAttr) {}

// onlyZombies cannot be asked for cheaply here.
func onlyZombies(int) bool { return false }
