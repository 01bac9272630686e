//go:build unix

package child

import (
	"errors"
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Child is a command that was started. It leads a process group of its own, so that
// signals reach what it has started too. All methods but Extend belong to one goroutine.
type Child struct {
	pid    int
	exited chan struct{}
	stops  chan syscall.Signal
	tty    *terminal
	family family

	once   sync.Once
	code   int            // valid once exited is closed
	signal syscall.Signal // 0: it exited

	guard *watcher // nil: there is none
}

// watcher is the guard as redlatch sees it.
type watcher struct {
	pid   int
	link  link
	acted chan struct{} // it ends the command by itself
	heard chan struct{} // all that it has said was heard
	ended chan struct{} // it has
}

// Start runs the command with our standard input, output and error and nothing else
// that is open here. The error is a *CannotRunError if it is the command's fault.
func Start(cmd Command) (*Child, error) {
	c := &Child{exited: make(chan struct{}), stops: make(chan syscall.Signal, 8), tty: openTerminal()}
	c.tty.lent(c.tty.wanted())
	adoptOrphans() // the guard's, should it die
	var err error
	if cmd.Guard == nil {
		err = c.alone(cmd)
	} else {
		err = c.guarded(cmd)
	}
	if err != nil {
		c.tty.back(0)
		c.tty.close()
		return nil, err
	}
	c.tty.ignoreWriteStops()
	c.family = family{group: c.pid, root: os.Getpid()}
	if c.guard != nil {
		c.family.spare = c.guard.pid
	}
	return c, nil
}

// alone starts the command as our own child.
func (c *Child) alone(cmd Command) error {
	attr := &syscall.ProcAttr{Env: cmd.Env, Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setpgid: true}}
	dieWithUs(attr.Sys)
	if c.tty.isLent() {
		attr.Sys.Foreground, attr.Sys.Ctty = true, c.tty.fd
	}
	started := make(chan error, 1)
	go func() {
		// The parent death signal is sent when the thread ends that started the child,
		// so this thread does nothing else until the child has ended.
		runtime.LockOSThread()
		var err error
		c.pid, err = forkExec(cmd.Path, cmd.Args, attr)
		started <- err
		if err == nil {
			c.reap()
		}
	}()
	if err := <-started; err != nil {
		return startError(cmd.Args[0], err)
	}
	return nil
}

// guarded starts the guard, and has it start the command.
func (c *Child) guarded(cmd Command) error {
	ours, theirs, err := pair()
	if err != nil {
		return guardError(err)
	}
	defer theirs.Close()
	// What else our caller has left open for the command (3<file, a socket of systemd's, the
	// jobs of make) goes through the guard: its own descriptors take no number of those.
	attr := &syscall.ProcAttr{
		Env:   cmd.Env,
		Files: []uintptr{0, 1, 2},
		Sys:   &syscall.SysProcAttr{Setpgid: true}, // what is typed at the terminal is not for it
	}
	args := []string{GuardName, strconv.Itoa(int(theirs.Fd()))}
	if keep := cmd.Guard.Keep; keep != nil {
		if _, err := unix.FcntlInt(keep.Fd(), unix.F_SETFD, 0); err != nil {
			return guardError(err)
		}
		args = append(args, strconv.Itoa(int(keep.Fd())))
	}
	g := &watcher{link: ours, acted: make(chan struct{}), heard: make(chan struct{}), ended: make(chan struct{})}
	if g.pid, err = syscall.ForkExec(ownProgram, args, attr); err != nil {
		_ = ours.f.Close()
		return guardError(err)
	}
	_ = theirs.Close() // or its end would not be told
	c.guard = g
	err = c.startUnder(g, cmd)
	if err != nil {
		_ = ours.f.Close()
		var ws syscall.WaitStatus
		_, _ = syscall.Wait4(g.pid, &ws, 0, nil)
		return err
	}
	go c.listen()
	go c.reap()
	return nil
}

func (c *Child) startUnder(g *watcher, cmd Command) error {
	err := g.link.sayOrders(orders{
		path: cmd.Path, args: cmd.Args, foreground: c.tty.isLent(),
		until: cmd.Guard.until(), grace: cmd.Guard.Grace, signal: cmd.Guard.Signal,
	})
	if err != nil {
		return guardError(err)
	}
	_ = g.link.f.SetReadDeadline(time.Now().Add(startTime))
	w, n, err := g.link.hear()
	switch {
	case err != nil:
		return guardError(err)
	case w == wordRefused:
		return startError(cmd.Args[0], syscall.Errno(n))
	case w != wordStarted:
		return guardError(errors.New("it says what it should not"))
	}
	c.pid = int(n)
	return g.link.f.SetReadDeadline(time.Time{})
}

// forkExec is execvp: a script without #! is the shell's.
func forkExec(path string, args []string, attr *syscall.ProcAttr) (int, error) {
	pid, err := syscall.ForkExec(path, args, attr)
	if errors.Is(err, syscall.ENOEXEC) {
		return syscall.ForkExec("/bin/sh", append([]string{"sh", path}, args[1:]...), attr)
	}
	return pid, err
}

// listen hears what the guard says until it is dead.
func (c *Child) listen() {
	defer close(c.guard.heard)
	for {
		w, n, err := c.guard.link.hear()
		if err != nil {
			return
		}
		switch w {
		case wordStopped:
			c.stopped(syscall.Signal(n))
		case wordExited:
			c.exit(syscall.WaitStatus(n))
		case wordActed:
			close(c.guard.acted) // it says it once
		}
	}
}

// reap waits for our children: the command, or the guard, and, where that dies before
// the command does, and where we are a container's first process, for all who became
// orphans. Nobody else in this program has children.
func (c *Child) reap() {
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil: // ECHILD: nobody is left
			if c.guard != nil {
				<-c.guard.heard
			}
			c.exitUnknown()
			return
		case ws.Stopped():
			if pid == c.pid {
				c.stopped(ws.StopSignal())
			}
		case pid == c.pid:
			c.exit(ws)
		case c.guard != nil && pid == c.guard.pid:
			close(c.guard.ended)
		}
	}
}

func (c *Child) stopped(sig syscall.Signal) {
	select {
	case c.stops <- sig:
	default:
	}
}

func (c *Child) exit(ws syscall.WaitStatus) {
	c.once.Do(func() {
		c.code = ws.ExitStatus()
		if ws.Signaled() {
			c.signal, c.code = ws.Signal(), 128+int(ws.Signal())
		}
		close(c.exited)
	})
}

// exitUnknown is for a command whose end only the guard has seen, which is dead.
func (c *Child) exitUnknown() {
	c.once.Do(func() {
		c.code = CodeUnknown
		close(c.exited)
	})
}

// PID is the command's process ID, and its group's.
func (c *Child) PID() int { return c.pid }

// Exited is closed when the command itself has ended. Others of its group may live on.
func (c *Child) Exited() <-chan struct{} { return c.exited }

// Code is the command's exit code, 128 and the signal's number if that ended it, and
// the signal's name then, or CodeUnknown. It is known once Exited is closed.
func (c *Child) Code() (code int, signal string) {
	if c.signal != 0 {
		signal = unix.SignalName(c.signal)
	}
	return c.code, signal
}

// Acted is closed when the guard has begun to end the command by itself, because it was
// time to and nobody else did.
func (c *Child) Acted() <-chan struct{} {
	if c.guard == nil {
		return nil
	}
	return c.guard.acted
}

// Unguarded is closed when the guard is dead.
func (c *Child) Unguarded() <-chan struct{} {
	if c.guard == nil {
		return nil
	}
	return c.guard.ended
}

// Orphaned reports whether the command is nobody's child when the guard is dead: then
// there is no telling how it ends.
func (c *Child) Orphaned() bool { return !adoptive }

// Extend tells the guard that the command may run for d from now.
func (c *Child) Extend(d time.Duration) {
	if c.guard != nil {
		_ = c.guard.link.say(wordUntil, after(d)) // if it is dead, Unguarded tells
	}
}

// Hunt extends Signal, Kill, Continue and Alive to those who have left the group, where
// that is possible, and has the guard kill them all if Kill does not come within d.
func (c *Child) Hunt(d time.Duration) {
	c.family.all = true
	if c.guard == nil {
		return
	}
	_ = c.guard.link.say(wordAsked, after(d+lead))
	select {
	case <-c.guard.ended:
	default:
		_ = syscall.Kill(c.guard.pid, syscall.SIGCONT) // or it could not tell of the command's end
	}
}

// Signal sends a signal to the whole group.
func (c *Child) Signal(sig os.Signal) {
	if n, ok := sig.(syscall.Signal); ok {
		c.family.signal(n)
	}
}

// Kill ends the whole group.
func (c *Child) Kill() { c.Signal(syscall.SIGKILL) }

// Alive reports whether anybody of the group still runs.
func (c *Child) Alive() bool {
	select {
	case <-c.exited:
		return c.family.alive()
	default:
		return true
	}
}

// Close takes the terminal back that was lent to the group, and sends the guard away
// unless there is somebody left to kill.
func (c *Child) Close() {
	c.tty.back(c.pid)
	c.tty.close()
	if c.guard == nil {
		return
	}
	if !c.Alive() {
		_ = c.guard.link.say(wordDone, 0)
		select {
		case <-c.guard.ended:
		case <-time.After(time.Second):
		}
	}
	_ = c.guard.link.f.Close()
}
