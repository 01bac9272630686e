//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filestore

import (
	"errors"
	"os"
	"syscall"
)

// supported is nil where the system has what the store needs.
var supported error

// The locks are flock's. Those of fcntl belong to the process: two Stores in one would
// not exclude each other, and closing any descriptor of the file would give them up.

func tryLock(f *os.File) (bool, error)   { return flock(f, syscall.LOCK_EX|syscall.LOCK_NB) }
func tryShared(f *os.File) (bool, error) { return flock(f, syscall.LOCK_SH|syscall.LOCK_NB) }

func unlock(f *os.File) error {
	_, err := flock(f, syscall.LOCK_UN)
	return err
}

func flock(f *os.File, how int) (bool, error) {
	for {
		err := syscall.Flock(int(f.Fd()), how)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, syscall.EWOULDBLOCK):
			return false, nil
		case !errors.Is(err, syscall.EINTR):
			return false, os.NewSyscallError("flock", err)
		}
	}
}

// duplicate opens what is open once more: it is the same opening, with the same lock.
func duplicate(f *os.File) (*os.File, error) {
	syscall.ForkLock.RLock() // no child is started before the copy is closed to it
	defer syscall.ForkLock.RUnlock()
	fd, err := syscall.Dup(int(f.Fd()))
	if err != nil {
		return nil, os.NewSyscallError("dup", err)
	}
	syscall.CloseOnExec(fd)
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// makePipe makes the pipe and opens it for reading. It is opened for writing too, so that
// it does not end when the last one who wrote closes it.
func makePipe(path string) (*os.File, error) {
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		return nil, &os.PathError{Op: "mkfifo", Path: path, Err: err}
	}
	fd, err := syscall.Open(path, syscall.O_RDWR|syscall.O_NONBLOCK|syscall.O_CLOEXEC|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// writePipe writes to a pipe if somebody reads it and there is room. A message shorter
// than 512 bytes arrives whole or not at all.
func writePipe(path string, message []byte) {
	fd, err := syscall.Open(path, syscall.O_WRONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return
	}
	_, _ = syscall.Write(fd, message)
	_ = syscall.Close(fd)
}
