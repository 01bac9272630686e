package verify

import (
	"syscall"
	"time"
	"unsafe"
)

// hostNow is CLOCK_MONOTONIC: one clock for all processes of the host.
func hostNow() time.Duration {
	var ts syscall.Timespec
	_, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, 1, uintptr(unsafe.Pointer(&ts)), 0)
	if errno != 0 {
		panic(errno)
	}
	return time.Duration(ts.Nano())
}
