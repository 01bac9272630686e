//go:build unix

package child

import (
	"errors"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// HasGuard tells whether there is a guard on this system.
const HasGuard = true

// lead is how much earlier redlatch asks the command to end than the guard does, if
// both are well.
const lead = 250 * time.Millisecond

// guard is a process between redlatch and the command. It sees to it that nobody works
// on under a lock that nobody keeps: when redlatch dies, and when it does not do what is
// due, because it was stopped or hangs in a write to a full pipe.
//
// It is the command's parent, and on Linux becomes the parent of all descendants that lose
// theirs. So it finds them also when they have left the command's group, and after
// redlatch has died: then they would be init's children if it were only a sibling.
//
// It says nothing to anybody but redlatch and writes nothing: no full pipe and no full
// disk can hold it up.
type guard struct {
	link   link
	orders orders
	family family

	asked    bool // redlatch has asked the command to end
	orphaned bool // redlatch is dead
	acts     bool // the guard ends the command
	killAt   int64
}

// Guard is the guard's life. Its arguments are the numbers of the descriptors that it
// inherits beside the command's: the connection, and what is to stay open as long as
// anybody is left. It returns the exit code, which nobody looks at.
func Guard(args []string) int {
	fd := 0
	for i, arg := range args {
		n, err := strconv.Atoi(arg)
		if err != nil || n < 3 {
			return CodeCannotRun // somebody has typed our name
		}
		unix.CloseOnExec(n) // the command shall not have it
		if i == 0 {
			fd = n
		}
	}
	if kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE); err != nil || kind != unix.SOCK_STREAM {
		return CodeCannotRun
	}
	_ = unix.SetNonblock(fd, true) // else a word could wait for ever for one who does not listen
	nameProcess(GuardName)
	deafen()
	adoptOrphans()
	g := &guard{link: link{os.NewFile(uintptr(fd), "redlatch")}, killAt: never}
	var err error
	if g.orders, err = g.link.hearOrders(); err != nil {
		return CodeCannotRun // there is nobody to guard
	}
	g.run()
	return 0
}

// deafen lets no signal end or stop the guard that can be caught. They are caught, not
// ignored: the command would inherit that.
func deafen() {
	unheard := make(chan os.Signal, 1)
	for _, sig := range []os.Signal{
		syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM,
		syscall.SIGPIPE, syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU, syscall.SIGXCPU, syscall.SIGXFSZ, syscall.SIGVTALRM, syscall.SIGPROF,
	} {
		if !signal.Ignored(sig) {
			signal.Notify(unheard, sig)
		}
	}
}

type heard struct {
	word word
	n    int64
}

func (g *guard) run() {
	pid, err := g.start()
	if err != nil {
		var errno syscall.Errno
		if !errors.As(err, &errno) {
			errno = syscall.EINVAL
		}
		_ = g.link.say(wordRefused, int64(errno)) // redlatch is dead: nothing runs
		return
	}
	g.family = family{group: pid, root: os.Getpid(), all: true}
	_ = g.link.say(wordStarted, int64(pid)) // if redlatch is dead, that is heard below
	g.letGo()
	go g.reap(pid)

	words := make(chan heard)
	go func() {
		defer close(words)
		for {
			w, n, err := g.link.hear()
			if err != nil {
				return
			}
			words <- heard{w, n}
		}
	}()
	tick := time.NewTimer(0)
	defer tick.Stop()
	for {
		select {
		case h, ok := <-words:
			switch {
			case !ok:
				words, g.orphaned = nil, true
			case h.word == wordUntil:
				g.orders.until = max(g.orders.until, h.n)
			case h.word == wordAsked:
				g.asked, g.killAt = true, min(g.killAt, h.n)
			case h.word == wordDone:
				return
			}
		case <-tick.C:
		}
		pause, over := g.look()
		if over {
			return
		}
		tick.Reset(pause)
	}
}

// start starts the command.
func (g *guard) start() (int, error) {
	attr := &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setpgid: true}}
	if g.orders.foreground {
		if tty := openTerminal(); tty != nil {
			attr.Sys.Foreground, attr.Sys.Ctty = true, tty.fd
			defer tty.close()
		}
	}
	return forkExec(g.orders.path, g.orders.args, attr)
}

// letGo gives up what is the command's now: whoever reads from our output waits for the end
// of all who have it open.
func (g *guard) letGo() {
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	for fd := range 3 {
		_ = dup(null, fd)
	}
	_ = unix.Close(null)
	_ = os.Chdir("/")
}

// reap tells redlatch of the command, and buries whom the command has left.
func (g *guard) reap(pid int) {
	for {
		var ws syscall.WaitStatus
		who, err := syscall.Wait4(-1, &ws, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return // nobody is left
		case who != pid:
		case ws.Stopped():
			_ = g.link.say(wordStopped, int64(ws.StopSignal()))
		default:
			_ = g.link.say(wordExited, int64(ws))
		}
	}
}

// look does what is due and says when to look again, or that all is over.
func (g *guard) look() (pause time.Duration, over bool) {
	now := clock()
	if g.orphaned || !g.asked && now >= g.askAt() {
		g.act()
	}
	kills := now >= min(g.killAt, g.orders.until)
	if kills {
		g.say()
		g.family.signal(syscall.SIGKILL)
	}
	switch {
	case !g.acts:
		// Timers stand still while the machine sleeps: never trust one for longer.
		due := min(g.killAt, g.orders.until)
		if !g.asked {
			due = min(due, g.askAt())
		}
		return min(time.Duration(due-now), time.Second), false
	case g.family.alive() && kills:
		return 5 * time.Millisecond, false
	case g.family.alive():
		return min(time.Duration(min(g.killAt, g.orders.until)-now), 20*time.Millisecond), false
	}
	return time.Second, g.orphaned // else redlatch says when it is over
}

// askAt is when redlatch must have asked the command to end, or have moved the limit.
func (g *guard) askAt() int64 {
	if g.orders.until == never || g.orders.signal == 0 {
		return g.orders.until
	}
	return g.orders.until - int64(g.orders.grace+lead)
}

// act ends the command because redlatch does not.
func (g *guard) act() {
	if g.acts {
		return
	}
	g.say()
	if g.orders.signal == 0 {
		g.killAt = clock()
		return
	}
	g.killAt = min(g.killAt, after(g.orders.grace))
	if !g.asked {
		g.family.signal(g.orders.signal)
		g.family.signal(syscall.SIGCONT)
	}
}

func (g *guard) say() {
	if !g.acts {
		g.acts = true
		_ = g.link.say(wordActed, 0) // if redlatch is dead it need not know
	}
}
