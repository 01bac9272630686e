// Package child runs the one command that a lock is held for, and everything that it
// starts and that stays in its process group: it starts it, passes signals on, stops
// it, and knows when the last of the group is gone. When to do what is decided by the
// caller, but for one thing: a guard, which is a process of its own, ends the command
// when the caller is killed or does not run.
//
// What leaves the group (setsid, a daemon that detaches itself) is found on Linux only.
package child

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// Command is what to run.
type Command struct {
	Path string   // from Look
	Args []string // with the name as the first
	Env  []string

	Guard *Orders // nil: no guard; there is none on Windows
}

// GuardName is what the guard is called in lists of processes. It does not have our own
// name in it: whoever kills all processes of that name would kill the guard too.
const GuardName = "rl-guard"

// Orders are what the guard goes by. See Child.Extend.
type Orders struct {
	For    time.Duration  // nobody of the command may be alive after that, from now; 0: no limit
	Grace  time.Duration  // between asking the command to end and killing it
	Signal syscall.Signal // what to ask with; 0: kill at once
	Keep   *os.File       // stays open until nobody is left; Start lets what it starts inherit it
}

// CodeUnknown is the exit code of a command whose end nobody saw who could tell.
const CodeUnknown = -1

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

// guardError says that the guard did not come to start the command.
func guardError(err error) error { return fmt.Errorf("the guard cannot be started: %w", err) }
