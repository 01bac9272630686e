//go:build unix

package child

import (
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// terminal is the controlling terminal, nil if there is none.
//
// The command has a group of its own, and only one group of a terminal may read from
// it: the foreground's. If we are alone on the terminal (our input and output are it)
// the command gets it at once, and Ctrl-C and Ctrl-Z are the command's own affair. In
// a pipeline such as "redlatch run x -- cmd | less" the others need it too, so the
// command gets it when it is stopped for touching it; until then Ctrl-C comes to us
// and is passed on.
type terminal struct {
	fd   int
	own  int  // our group
	away bool // it was lent
}

func openTerminal() *terminal {
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		return nil
	}
	return &terminal{fd: fd, own: unix.Getpgrp()}
}

// wanted reports whether the command should have the terminal from the start.
func (t *terminal) wanted() bool {
	return t != nil && t.foreground() && IsTerminal(0) && IsTerminal(1)
}

// lent notes whether the command gets it as it starts.
func (t *terminal) lent(away bool) {
	if t != nil {
		t.away = away
	}
}

func (t *terminal) isLent() bool { return t != nil && t.away }

// IsTerminal reports whether a descriptor is a terminal.
func IsTerminal(fd int) bool {
	_, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ)
	return err == nil
}

// foreground reports whether the terminal is our group's.
func (t *terminal) foreground() bool {
	group, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	return err == nil && group == t.own
}

func (t *terminal) lend(group int) {
	if t != nil && t.foreground() {
		t.away = unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, group) == nil
	}
}

// back takes the terminal from the group, if it still has it; 0 is whoever has it.
func (t *terminal) back(group int) {
	if t == nil || !t.away {
		return
	}
	now, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	if err == nil && (group == 0 || now == group) {
		t.ignoreWriteStops()
		_ = unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, t.own)
	}
}

// ignoreWriteStops lets us take the terminal back while another group has it, which
// otherwise stops us. It waits until the command has started: that would inherit it.
func (t *terminal) ignoreWriteStops() {
	if t != nil {
		signal.Ignore(syscall.SIGTTOU)
	}
}

func (t *terminal) close() {
	if t != nil {
		unix.Close(t.fd)
	}
}

// Stops tells the signals that stop the command itself (not the others of its group).
func (c *Child) Stops() <-chan syscall.Signal { return c.stops }

// NeedsTerminal hands the terminal to the group if that is what sig stopped it for and
// we have it, and reports whether that is so. Then Continue is due.
func (c *Child) NeedsTerminal(sig syscall.Signal) bool {
	if c.tty == nil || sig != syscall.SIGTTIN && sig != syscall.SIGTTOU || !c.tty.foreground() {
		return false
	}
	c.tty.lend(c.pid)
	return true
}

// Suspend stops us as somebody at the terminal has stopped the command, or wants to
// stop us, and reports whether that is possible. The group is stopped first, and by a
// signal that cannot be caught: while we stand still nothing renews the lock, so
// nothing may work under it. We go on when SIGCONT comes; then Continue is due, if the
// lock is still held.
func (c *Child) Suspend() bool {
	if c.tty == nil || !jobControl() {
		return false
	}
	c.Signal(syscall.SIGSTOP)
	if now, err := unix.IoctlGetInt(c.tty.fd, unix.TIOCGPGRP); err == nil && now == c.pid {
		_ = unix.IoctlSetPointerInt(c.tty.fd, unix.TIOCSPGRP, c.tty.own)
	}
	// The shell waits for all of its job, so those who share our group stop too.
	_ = syscall.Kill(0, syscall.SIGSTOP)
	return true
}

// jobControl reports whether there is a shell that would notice that we have stopped
// and could continue us: we are in its session, but not in its group.
func jobControl() bool {
	session, err := unix.Getsid(0)
	if err != nil || session == unix.Getpgrp() {
		return false
	}
	parents, err := unix.Getsid(unix.Getppid())
	return err == nil && parents == session
}

// Continue lets the group go on after a stop, with the terminal if it had it.
func (c *Child) Continue() {
	if c.tty != nil && c.tty.away {
		c.tty.lend(c.pid)
	}
	c.Signal(syscall.SIGCONT)
}
