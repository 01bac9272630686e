package elapsed

import (
	"syscall"
	"time"
	"unsafe"
)

const (
	clockMonotonic = 1
	clockBoottime  = 7
)

// asleep is how long the machine has slept since it booted: CLOCK_BOOTTIME is
// CLOCK_MONOTONIC and that. Boot time is read first, so that a preemption between
// the two makes the sleep look shorter by nanoseconds, which the next call mends,
// rather than making one up.
func asleep() time.Duration {
	boot, mono := read(clockBoottime), read(clockMonotonic)
	return (boot - mono).Round(time.Millisecond)
}

func read(clock uintptr) time.Duration {
	var ts syscall.Timespec
	_, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clock, uintptr(unsafe.Pointer(&ts)), 0)
	if errno != 0 {
		return 0
	}
	return time.Duration(ts.Nano())
}
