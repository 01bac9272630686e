// Package child runs the one command that a lock is held for, and everything that it
// starts and that stays in its process group: it starts it, passes signals on, stops
// it, and knows when the last of the group is gone. When to do what is decided by the
// caller.
//
// What leaves the group (setsid, a daemon that detaches itself) is out of its sight.
package child

import (
	"errors"
	"fmt"
	"os/exec"
)

// Command is what to run.
type Command struct {
	Path string   // from Look
	Args []string // with the name as the first
	Env  []string
}

// The shell's exit codes for what cannot be run, which timeout, env and nohup use too.
const (
	CodeCannotRun = 126
	CodeNotFound  = 127
)

// CannotRunError says that there is no running this command, and the exit code for that.
type CannotRunError struct {
	Name string
	Code int
	Err  error
}

func (e *CannotRunError) Error() string { return fmt.Sprintf("cannot run %q: %v", e.Name, e.Err) }
func (e *CannotRunError) Unwrap() error { return e.Err }

var (
	errNotFound    = errors.New("there is no such command in PATH")
	errNoFile      = errors.New("there is no such file")
	errDirectory   = errors.New("it is a directory")
	errNoExecution = errors.New("it may not be executed (chmod +x?)")
)

// startError sorts what the system said when it refused to start a command that was
// found before: it has been removed since, its interpreter is missing, it is for
// another machine.
func startError(name string, err error) error {
	code := CodeCannotRun
	if errors.Is(err, exec.ErrNotFound) || isNotExist(err) {
		code = CodeNotFound
	}
	return &CannotRunError{Name: name, Code: code, Err: err}
}
