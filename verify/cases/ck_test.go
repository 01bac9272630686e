//go:build unix

package cases

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/elapsed"
	"github.com/redlatch/redlatch/internal/relay"
	"github.com/redlatch/redlatch/internal/servertest"
	"github.com/redlatch/redlatch/lease"
	"github.com/redlatch/redlatch/redisstore"
)

// What a step of the server's clock does to a lock is done to it: the clock itself is
// the whole machine's. An hour forwards is the end of every lease; an hour back leaves
// the lease an hour longer than anybody asked for.
func TestCK01AServerClockThatSteps(t *testing.T) {
	t.Parallel()
	server := stateServer(t)
	l := stateProcess(t, server)
	held := stateTake(t, l, "forwards", redlatch.Options{TTL: 2 * time.Second})
	stateDo(t, server, "PEXPIRE", "lock:forwards", "1")
	if lost := stateLost(t, held); lost.Loss.Why != lease.Vanished {
		t.Errorf("lost: %v", lost)
	}
	dead := stateTake(t, l, "back", redlatch.Options{TTL: time.Minute, NoRenew: true})
	stateDo(t, server, "PEXPIRE", "lock:back", "3660000")
	_, err := stateProcess(t, server).TryLock(t.Context(), "back", redlatch.Options{})
	var taken *redlatch.HeldError
	if !errors.As(err, &taken) || taken.Left < time.Hour || !strings.Contains(err.Error(), "lease ends in 1h") {
		t.Errorf("who asks does not see how long it would last: %v", err)
	}
	stateUnlock(t, dead)
	stateUnlock(t, stateTake(t, l, "back", redlatch.Options{}))
}

// Between what a process decides and what the server gets, time passes: the lease counts
// from the sending, and what comes too late is no lock and is taken back.
func TestCK02ACallThatIsStuckOnItsWayIsNoLock(t *testing.T) {
	t.Parallel()
	server := stateServer(t)
	r := relay.Start(t, server.Addr())
	l := stateLocker(t, stateStore(t, &redis.Options{Addr: r.Addr()}, redisstore.Options{}), redlatch.Config{})
	other := stateProcess(t, server)
	stateUnlock(t, stateTake(t, l, "warm", redlatch.Options{}))
	const ttl = 300 * time.Millisecond
	for i := range 3 {
		trap := r.Hold(relay.Command("EVALSHA"))
		answer := stateAsk(t.Context(), l, "n", redlatch.Options{TTL: ttl})
		<-trap.Caught()
		sent := time.Now()
		servertest.Eventually(t, stateSoon, "the lease to be over", func() bool { return time.Since(sent) > ttl })
		trap.Release()
		a := <-answer
		stateIs(t, a.err, redlatch.ErrUnavailable, "nothing would be left of the lease")
		got, err := other.TryLock(t.Context(), "n", redlatch.Options{})
		if errors.Is(err, redlatch.ErrHeld) {
			got = stateTake(t, other, "n", redlatch.Options{}) // its leave may still be on its way
		} else if err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
		stateUnlock(t, got)
	}
}

// stateHolder runs in a process of its own, this test's binary started again: it holds
// the lock "n" and says what becomes of it.
func TestStateHolder(t *testing.T) {
	addr := os.Getenv("REDLATCH_STATE_ADDR")
	if addr == "" {
		return // the tests below start it
	}
	ttl, err := time.ParseDuration(os.Getenv("REDLATCH_STATE_TTL"))
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	say := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Printf("\n> "+format+"\n", args...)
	}
	l := stateLocker(t, stateStore(t, &redis.Options{Addr: addr}, redisstore.Options{}), redlatch.Config{Observer: redlatch.Observer{
		Renewed: func(e redlatch.Event) { say("renewed %v", e.Slack) },
		Late:    func(e redlatch.Event) { say("late %v", e.Slack) },
	}})
	held := stateTake(t, l, "n", redlatch.Options{TTL: ttl})
	say("held %d", held.Fence())
	for range len(os.Getenv("REDLATCH_STATE_SPIN")) {
		go func() {
			for n := 0; ; n++ { //nolint:staticcheck // it is to waste time
				_ = n
			}
		}()
	}
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		switch word := input.Text(); word {
		case "sleep":
			elapsed.Sleep(2 * ttl)
			say("valid %v", held.Valid())
		case "valid":
			say("valid %v", held.Valid())
		case "why":
			<-held.Context().Done()
			say("lost %v", context.Cause(held.Context()))
		case "again":
			_ = held.Unlock()
			held = stateTake(t, l, "n", redlatch.Options{TTL: ttl})
			say("held %d", held.Fence())
		}
	}
	_ = held.Unlock()
}

type stateChild struct {
	t     *testing.T
	cmd   *exec.Cmd
	tell  func(word string)
	lines chan string
}

func stateStart(t *testing.T, addr string, ttl time.Duration, env ...string) *stateChild {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestStateHolder$", "-test.count=1")
	cmd.Env = append(os.Environ(), append(env, "REDLATCH_STATE_ADDR="+addr, "REDLATCH_STATE_TTL="+ttl.String())...)
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	c := &stateChild{t: t, cmd: cmd, lines: make(chan string, 10000)}
	c.tell = func(word string) { fmt.Fprintln(in, word) }
	done := make(chan struct{})
	go func() {
		defer close(done)
		for s := bufio.NewScanner(out); s.Scan(); {
			if line, ok := strings.CutPrefix(s.Text(), "> "); ok {
				c.lines <- line
			}
		}
	}()
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Process.Kill()
		<-done
		_ = cmd.Wait()
	})
	return c
}

// says waits for the child to say something that begins like that, and returns the rest.
func (c *stateChild) says(begins string) string {
	c.t.Helper()
	timeout := time.After(stateSoon)
	for {
		select {
		case line := <-c.lines:
			if rest, ok := strings.CutPrefix(line, begins); ok {
				return strings.TrimSpace(rest)
			}
			if strings.HasPrefix(line, "lost") {
				c.t.Fatalf("waiting for %q it said %q", begins, line)
			}
		case <-timeout:
			c.t.Fatalf("it does not say %q", begins)
		}
	}
}

func (c *stateChild) signal(s syscall.Signal) {
	c.t.Helper()
	if err := c.cmd.Process.Signal(s); err != nil {
		c.t.Fatal(err)
	}
}

// A machine that sleeps: all clocks go on but Go's monotonic one. The hold is over at
// first use, before the store is asked, and the next one can be had.
func TestCK05AHoldDoesNotOutliveASuspend(t *testing.T) {
	t.Parallel()
	server := stateServer(t)
	c := stateStart(t, server.Addr(), 20*time.Second)
	c.says("held")
	calls := server.CommandStats()["evalsha"]
	c.tell("sleep")
	if valid := c.says("valid"); valid != "false" {
		t.Error("it believes that it holds the lock")
	}
	if n := server.CommandStats()["evalsha"]; n > calls+1 { // the list of names is written once
		t.Errorf("the store was asked %d times", n-calls)
	}
	c.tell("why")
	if why := c.says("lost"); !strings.Contains(why, "without a renewal") {
		t.Errorf("lost: %s", why)
	}
	c.tell("again")
	c.says("held")
}

// A process that is stopped for longer than its lease.
func TestCK05AStoppedHolderKnowsItAtFirstUse(t *testing.T) {
	t.Parallel()
	server := stateServer(t)
	c := stateStart(t, server.Addr(), time.Second)
	first := c.says("held")
	c.signal(syscall.SIGSTOP)
	got := stateTake(t, stateProcess(t, server), "n", redlatch.Options{})
	c.tell("valid")
	c.signal(syscall.SIGCONT)
	if valid := c.says("valid"); valid != "false" {
		t.Error("it believes that it holds the lock")
	}
	c.tell("why")
	c.says("lost")
	if fmt.Sprint(got.Fence()) <= first {
		t.Errorf("fence %d after %s", got.Fence(), first)
	}
	c.tell("again")
	stateUnlock(t, got)
	c.says("held")
}

// The answer waits in the client's kernel until the lock is another's.
func TestCK06AnAnswerThatIsReadTooLateIsNoLock(t *testing.T) {
	t.Parallel()
	server := stateServer(t)
	r := relay.Start(t, server.Addr())
	slow := stateLocker(t, stateStore(t, &redis.Options{Addr: r.Addr()}, redisstore.Options{}), redlatch.Config{})
	b := stateProcess(t, server)
	warm := stateTake(t, slow, "n", redlatch.Options{})
	last := warm.Fence()
	stateUnlock(t, warm)
	for range 3 {
		r.Freeze(relay.Replies)
		answer := stateAsk(t.Context(), slow, "n", redlatch.Options{TTL: 300 * time.Millisecond})
		servertest.Eventually(t, stateSoon, "the server to have given it", func() bool { return stateDo(t, server, "EXISTS", "lock:n") == int64(1) })
		got := stateTake(t, b, "n", redlatch.Options{})
		if got.Fence() <= last {
			t.Errorf("fence %d after %d", got.Fence(), last)
		}
		last = got.Fence()
		r.Thaw()
		a := <-answer
		stateIs(t, a.err, redlatch.ErrUnavailable, "")
		if !got.Valid() {
			t.Error("what came too late has ended the other's hold")
		}
		stateUnlock(t, got)
	}
}

// One processor, and more goroutines than it that never let go of it.
func TestBusyProcessorRenewalsGoOnAndTheirSlackIsTold(t *testing.T) {
	t.Parallel()
	server := stateServer(t)
	c := stateStart(t, server.Addr(), 6*time.Second, "GOMAXPROCS=1", "REDLATCH_STATE_SPIN=xxxx")
	c.says("held")
	for range 2 {
		slack, err := time.ParseDuration(c.says("renewed"))
		if err != nil || slack <= 0 || slack > 6*time.Second {
			t.Errorf("slack %v, %v", slack, err)
		}
	}
}

// What a cgroup does to a process that has used up its share: it runs for 20 ms in 200,
// and then once for so long that two thirds of its lease pass: that is told.
func TestThrottledProcessIsWarnedBeforeItLosesItsLock(t *testing.T) {
	t.Parallel()
	server := stateServer(t)
	const ttl = 6 * time.Second
	c := stateStart(t, server.Addr(), ttl)
	c.says("held")
	stop, throttled := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(throttled)
		for {
			select {
			case <-stop:
				return
			default:
			}
			_ = c.cmd.Process.Signal(syscall.SIGSTOP)
			time.Sleep(180 * time.Millisecond)
			_ = c.cmd.Process.Signal(syscall.SIGCONT)
			time.Sleep(20 * time.Millisecond)
		}
	}()
	c.says("renewed")
	close(stop)
	<-throttled
	c.says("renewed")
	c.signal(syscall.SIGSTOP)
	servertest.Eventually(t, stateSoon, "a quarter of the lease to be left", func() bool {
		left, ok := stateDo(t, server, "PTTL", "lock:n").(int64)
		return ok && time.Duration(left)*time.Millisecond < ttl/4
	})
	c.signal(syscall.SIGCONT)
	slack, err := time.ParseDuration(c.says("late"))
	if err != nil || slack > ttl/3 {
		t.Errorf("slack %v, %v", slack, err)
	}
}
