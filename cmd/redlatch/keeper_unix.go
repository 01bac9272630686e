//go:build unix

package main

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// apart takes a process out of the session: what the terminal or the shell does to its
// jobs does not reach it.
func apart() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// checkProcess refuses what is no process.
func checkProcess(pid int) error {
	if pid < 1 {
		return usage("--for-pid %d: that is no process", pid)
	}
	if !processLives(pid) {
		f := usage("--for-pid %d: there is no such process", pid)
		f.next = "for the shell that runs this, write --for-pid $$"
		return f
	}
	return nil
}

func processLives(pid int) bool {
	err := syscall.Kill(pid, 0)
	return err == nil || errors.Is(err, syscall.EPERM)
}

// look is how often a process is looked at where the kernel does not tell of its end.
// Its number is not given to another one within that: they go round in turn.
const look = 100 * time.Millisecond

// processEnd is closed when the process has ended.
func processEnd(pid int) (<-chan struct{}, error) {
	if err := checkProcess(pid); err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	wait := waitProcess(pid)
	go func() {
		defer close(ended)
		if wait != nil && wait() {
			return
		}
		for processLives(pid) {
			time.Sleep(look)
		}
	}()
	return ended, nil
}

// parentName is the name of the program that has started us: the one that holds what
// acquire leaves.
func parentName() string {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(os.Getppid()), "comm"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	return err == nil
}
