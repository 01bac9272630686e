package main

import (
	"os"
	"syscall"

	"golang.org/x/sys/windows"
)

func apart() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP | windows.DETACHED_PROCESS, HideWindow: true}
}

func checkProcess(pid int) error {
	h, err := openProcess(pid)
	if err != nil {
		return usage("--for-pid %d: there is no such process, or it is not yours: %v", pid, err)
	}
	return windows.CloseHandle(h)
}

func openProcess(pid int) (windows.Handle, error) {
	return windows.OpenProcess(windows.SYNCHRONIZE, false, uint32(pid))
}

// processEnd is closed when the process has ended.
func processEnd(pid int) (<-chan struct{}, error) {
	h, err := openProcess(pid)
	if err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = windows.WaitForSingleObject(h, windows.INFINITE) // a failure frees the lock, which is the lesser evil
		_ = windows.CloseHandle(h)
	}()
	return ended, nil
}

func parentName() string { return "" }

func isTerminal(f *os.File) bool {
	var mode uint32
	return windows.GetConsoleMode(windows.Handle(f.Fd()), &mode) == nil
}
