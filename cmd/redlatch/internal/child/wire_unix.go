//go:build unix

package child

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A word is what redlatch and the guard say to each other. A number goes with each.
type word byte

const (
	// To the guard.
	wordStart word = 's' // so many bytes of orders follow
	wordUntil word = 'u' // nobody may be alive at this time of the system's clock
	wordAsked word = 'a' // the command was asked to end, and is to be killed at this time
	wordDone  word = 'd' // nobody is to be stopped any more

	// From the guard.
	wordStarted word = 'p' // the command's process ID
	wordRefused word = 'e' // the system's reason not to start it
	wordStopped word = 't' // the signal that stopped the command
	wordExited  word = 'x' // how the command has ended
	wordActed   word = 'k' // the guard ends the command by itself
)

// link is one end of the connection between redlatch and the guard. When one of them
// dies, however it does, the kernel tells the other.
type link struct{ f *os.File }

// patience is how long something is said to one who does not listen, because he was
// stopped. He does not need it then: he looks at the clock when he goes on.
const patience = 100 * time.Millisecond

// pair makes a connection. theirs is inherited by whom we start from now on.
func pair() (ours link, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return link{}, nil, os.NewSyscallError("socketpair", err)
	}
	unix.CloseOnExec(fds[0])
	if err := unix.SetNonblock(fds[0], true); err != nil {
		return link{}, nil, os.NewSyscallError("fcntl", err)
	}
	return link{os.NewFile(uintptr(fds[0]), "guard")}, os.NewFile(uintptr(fds[1]), "redlatch"), nil
}

const wordSize = 9

func (l link) say(w word, n int64) error {
	_ = l.f.SetWriteDeadline(time.Now().Add(patience))
	_, err := l.f.Write(binary.BigEndian.AppendUint64([]byte{byte(w)}, uint64(n)))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		_ = l.f.Close() // half a word may have gone out
	}
	return err
}

func (l link) hear() (word, int64, error) {
	var b [wordSize]byte
	if _, err := io.ReadFull(l.f, b[:]); err != nil {
		return 0, 0, err
	}
	return word(b[0]), int64(binary.BigEndian.Uint64(b[1:])), nil
}

// orders are what the guard is told at first. They do not stand in its arguments:
// whoever kills all processes that have the command's name in them would kill the
// guard, too, and leave alone what the command has started.
type orders struct {
	path       string
	args       []string
	foreground bool
	until      int64 // of clock; never: no limit
	grace      time.Duration
	signal     syscall.Signal // 0: kill at once
}

func (l link) sayOrders(o orders) error {
	text := strings.Join(append([]string{
		strconv.FormatBool(o.foreground), strconv.FormatInt(o.until, 10), strconv.FormatInt(int64(o.grace), 10), strconv.Itoa(int(o.signal)), o.path,
	}, o.args...), "\x00")
	if err := l.say(wordStart, int64(len(text))); err != nil {
		return err
	}
	_ = l.f.SetWriteDeadline(time.Now().Add(startTime))
	_, err := io.WriteString(l.f, text)
	return err
}

// startTime is how long the guard may take until it listens, on a machine that swaps.
const startTime = 20 * time.Second

func (l link) hearOrders() (orders, error) {
	w, n, err := l.hear()
	if err != nil || w != wordStart {
		return orders{}, errors.Join(err, errNoOrders)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(l.f, text); err != nil {
		return orders{}, err
	}
	f := strings.Split(string(text), "\x00") // no argument has a zero byte in it
	if len(f) < 6 {
		return orders{}, errNoOrders
	}
	until, err1 := strconv.ParseInt(f[1], 10, 64)
	grace, err2 := strconv.ParseInt(f[2], 10, 64)
	sig, err3 := strconv.Atoi(f[3])
	return orders{
		foreground: f[0] == "true", until: until, grace: time.Duration(grace), signal: syscall.Signal(sig), path: f[4], args: f[5:],
	}, errors.Join(err1, err2, err3)
}

var errNoOrders = errors.New("the guard was not told what to do")

// until is the limit as a time.
func (o *Orders) until() int64 {
	if o.For == 0 {
		return never
	}
	return after(o.For)
}

// never is a time that does not come.
const never = int64(1<<63 - 1)

// after is the time on the system's clock d from now.
func after(d time.Duration) int64 { return clock() + int64(d) }

// clock is the time on a clock that all processes of the machine share, that nobody sets, and
// that goes on while the machine sleeps, so that the guard can be told of a time: a
// length would stretch for as long as the guard does not listen.
func clock() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(systemClock, &ts); err != nil {
		panic(err) // there is no such clock, on any call
	}
	return ts.Nano()
}
