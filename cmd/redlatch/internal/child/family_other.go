//go:build unix && !linux

package child

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

const systemClock = unix.CLOCK_MONOTONIC

var ownProgram, _ = os.Executable()

// What Linux has and these do not: adopting orphans, a command that the kernel kills
// with us, other names for processes. Who descends from whom could be asked for, but who
// has lost his parent descends from nobody.

const adoptive = false

func adoptOrphans()                  {}
func nameProcess(string)             {}
func dieWithUs(*syscall.SysProcAttr) {}

func dup(from, to int) error { return unix.Dup2(from, to) }

type process struct{}

func (process) signal(syscall.Signal) {}

func (f *family) strays() []process { return nil }

// onlyZombies cannot be asked for cheaply here.
func onlyZombies(int) bool { return false }
