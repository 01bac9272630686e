package filestore

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

const clockBoottime = 7

// thisHost has CLOCK_BOOTTIME: the same for all processes, set by nobody, and it goes on
// while the host sleeps. A container may see it shifted; the shift is taken out again.
func thisHost() host {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	shift := bootShift()
	return host{
		boot:   strings.TrimSpace(string(id)),
		uptime: func() time.Duration { return bootTime() - shift },
		wall:   time.Now,
	}
}

func bootTime() time.Duration {
	var ts syscall.Timespec
	_, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&ts)), 0)
	if errno != 0 {
		panic("filestore: no CLOCK_BOOTTIME: " + errno.Error()) // Linux has had it since 2.6.39
	}
	return time.Duration(ts.Nano())
}

// bootShift is the offset of this process's time namespace.
func bootShift() time.Duration {
	text, _ := os.ReadFile("/proc/self/timens_offsets")
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "boottime" {
			sec, _ := strconv.ParseInt(f[1], 10, 64)
			nsec, _ := strconv.ParseInt(f[2], 10, 64)
			return time.Duration(sec)*time.Second + time.Duration(nsec)
		}
	}
	return 0
}
