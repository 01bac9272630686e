package elapsed

import (
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

const (
	clockMonotonic = 1
	clockBoottime  = 7
)

// asleep is how long the machine has slept since it booted: CLOCK_BOOTTIME is
// CLOCK_MONOTONIC and that. Boot time is read first, so that a preemption between the
// two makes the sleep look shorter, never longer. The most that was ever seen is
// therefore what is known, and the clock that it is added to does not go back when one
// reading is interrupted.
func asleep() time.Duration {
	boot, mono := read(clockBoottime), read(clockMonotonic)
	now := int64((boot - mono).Truncate(time.Millisecond))
	for {
		most := seen.Load()
		if now <= most {
			return time.Duration(most)
		}
		if seen.CompareAndSwap(most, now) {
			return time.Duration(now)
		}
	}
}

var seen atomic.Int64

func read(clock uintptr) time.Duration {
	var ts syscall.Timespec
	_, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clock, uintptr(unsafe.Pointer(&ts)), 0)
	if errno != 0 {
		return 0
	}
	return time.Duration(ts.Nano())
}
