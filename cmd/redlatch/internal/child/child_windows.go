package child

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/windows"
)

// Child is a command that was started. What it starts itself is not followed here: a
// stop reaches the command alone.
type Child struct {
	cmd    *exec.Cmd
	exited chan struct{}
	stops  chan syscall.Signal
	code   int
}

// HasGuard tells whether there is a guard on this system.
const HasGuard = false

// Guard is there for main to call.
func Guard([]string) int { return CodeCannotRun }

// IsTerminal reports whether a descriptor is a terminal. Here none is taken for one that
// a line can be written anew on.
func IsTerminal(int) bool { return false }

// Look finds the file of a command.
func Look(name string) (string, error) {
	path, err := exec.LookPath(name)
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return "", &CannotRunError{Name: name, Code: CodeNotFound, Err: errNotFound}
	case isNotExist(err):
		return "", &CannotRunError{Name: name, Code: CodeNotFound, Err: errNoFile}
	case err != nil:
		return "", &CannotRunError{Name: name, Code: CodeCannotRun, Err: err}
	}
	return path, nil
}

func isNotExist(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// Start runs the command with our standard input, output and error.
func Start(c Command) (*Child, error) {
	cmd := &exec.Cmd{Path: c.Path, Args: c.Args, Env: c.Env, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP}
	if err := cmd.Start(); err != nil {
		return nil, startError(c.Args[0], err)
	}
	child := &Child{cmd: cmd, exited: make(chan struct{}), stops: make(chan syscall.Signal)}
	go func() {
		_ = cmd.Wait() // says what ProcessState says
		child.code = cmd.ProcessState.ExitCode()
		close(child.exited)
	}()
	return child, nil
}

// PID is the command's process ID.
func (c *Child) PID() int { return c.cmd.Process.Pid }

// Exited is closed when the command has ended.
func (c *Child) Exited() <-chan struct{} { return c.exited }

// Code is the command's exit code. It is known once Exited is closed.
func (c *Child) Code() (code int, signal string) { return c.code, "" }

// Signal sends Ctrl-Break, the one thing that a process here can be asked with.
func (c *Child) Signal(os.Signal) {
	_ = windows.GenerateConsoleCtrlEvent(windows.CTRL_BREAK_EVENT, uint32(c.PID())) // without a console: Kill follows
}

// Kill ends the command.
func (c *Child) Kill() { _ = c.cmd.Process.Kill() } // it has ended by itself: Alive tells

// Alive reports whether the command still runs.
func (c *Child) Alive() bool {
	select {
	case <-c.exited:
		return false
	default:
		return true
	}
}

// Stops never tells anything: there is no job control here.
func (c *Child) Stops() <-chan syscall.Signal { return c.stops }

// NeedsTerminal, Suspend and Continue belong to job control too.
func (c *Child) NeedsTerminal(syscall.Signal) bool { return false }
func (c *Child) Suspend() bool                     { return false }
func (c *Child) Continue()                         {}

// Hunt finds nobody: whom the command has started is not known.
func (c *Child) Hunt(time.Duration) {}

// Acted, Unguarded, Orphaned and Extend belong to the guard.
func (c *Child) Acted() <-chan struct{}     { return nil }
func (c *Child) Unguarded() <-chan struct{} { return nil }
func (c *Child) Orphaned() bool             { return false }
func (c *Child) Extend(time.Duration)       {}

// Close has nothing to give back.
func (c *Child) Close() {}
