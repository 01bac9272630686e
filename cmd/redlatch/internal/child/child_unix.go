//go:build unix

package child

import (
	"errors"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Child is a command that was started. It leads a process group of its own, so that
// signals reach what it has started too. All methods belong to one goroutine.
type Child struct {
	pid    int
	exited chan struct{}
	stops  chan syscall.Signal
	tty    *terminal
	gone   bool

	code   int            // valid once exited is closed
	signal syscall.Signal // 0: it exited
}

// Start runs the command with our standard input, output and error and nothing else
// that is open here. The error is a *CannotRunError.
func Start(cmd Command) (*Child, error) {
	c := &Child{exited: make(chan struct{}), stops: make(chan syscall.Signal, 8), tty: openTerminal()}
	attr := &syscall.ProcAttr{
		Env:   cmd.Env,
		Files: []uintptr{0, 1, 2},
		Sys:   &syscall.SysProcAttr{Setpgid: true},
	}
	dieWithUs(attr.Sys)
	if c.tty.wanted() {
		attr.Sys.Foreground, attr.Sys.Ctty = true, c.tty.fd
		c.tty.lent = true
	}
	started := make(chan error, 1)
	go func() {
		// The parent death signal is sent when the thread ends that started the child,
		// so this thread does nothing else until the child has ended.
		runtime.LockOSThread()
		var err error
		c.pid, err = syscall.ForkExec(cmd.Path, cmd.Args, attr)
		if errors.Is(err, syscall.ENOEXEC) {
			// A script without #! is the shell's, as execvp has it.
			c.pid, err = syscall.ForkExec("/bin/sh", append([]string{"sh", cmd.Path}, cmd.Args[1:]...), attr)
		}
		started <- err
		if err == nil {
			c.reap()
		}
	}()
	if err := <-started; err != nil {
		c.tty.back(0)
		return nil, startError(cmd.Args[0], err)
	}
	c.tty.ignoreWriteStops()
	return c, nil
}

// reap waits for the child and, where we are a container's first process, for all who
// become orphans there: nobody else does.
func (c *Child) reap() {
	whom := c.pid
	if os.Getpid() == 1 {
		whom = -1
	}
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(whom, &ws, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return // ECHILD: nobody is left
		case pid != c.pid:
		case ws.Stopped():
			select {
			case c.stops <- ws.StopSignal():
			default:
			}
		case ws.Signaled():
			c.signal, c.code = ws.Signal(), 128+int(ws.Signal())
			close(c.exited)
		default:
			c.code = ws.ExitStatus()
			close(c.exited)
		}
		if whom > 0 && (ws.Exited() || ws.Signaled()) && err == nil {
			return
		}
	}
}

// PID is the command's process ID, and its group's.
func (c *Child) PID() int { return c.pid }

// Exited is closed when the command itself has ended. Others of its group may live on.
func (c *Child) Exited() <-chan struct{} { return c.exited }

// Code is the command's exit code, 128 and the signal's number if that ended it, and
// the signal's name then. It is known once Exited is closed.
func (c *Child) Code() (code int, signal string) {
	if c.signal != 0 {
		signal = unix.SignalName(c.signal)
	}
	return c.code, signal
}

// Signal sends a signal to the whole group.
func (c *Child) Signal(sig os.Signal) {
	if n, ok := sig.(syscall.Signal); ok && !c.gone {
		_ = syscall.Kill(-c.pid, n) // nobody there, or not ours to signal: Alive tells
	}
}

// Kill ends the whole group.
func (c *Child) Kill() { c.Signal(syscall.SIGKILL) }

// Alive reports whether anybody of the group still runs.
func (c *Child) Alive() bool {
	select {
	case <-c.exited:
	default:
		return true
	}
	if c.gone {
		return false
	}
	// After the last of the group has gone its number may be somebody else's, so it is
	// not looked at again.
	if errors.Is(syscall.Kill(-c.pid, 0), syscall.ESRCH) || onlyZombies(c.pid) {
		c.gone = true
	}
	return !c.gone
}

// Close takes the terminal back that was lent to the group.
func (c *Child) Close() {
	c.tty.back(c.pid)
	c.tty.close()
}
