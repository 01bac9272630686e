package main

import "golang.org/x/sys/unix"

// waitProcess returns what waits for a process's end, and reports whether it could.
// Asked for while the process lives, it means that process and no later one.
func waitProcess(pid int) func() bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil
	}
	return func() bool {
		defer unix.Close(fd)
		for {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
			switch {
			case n == 1:
				return true
			case err != unix.EINTR:
				return false
			}
		}
	}
}
