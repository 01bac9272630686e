//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filestore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/redlatch/redlatch/lease"
)

func init() {
	parts["guarded"], parts["guard"] = guarded, guard
}

// guarded holds a name, and leaves what keeps it to a guard that ends with the pipe that
// this process was given as its descriptor 3.
func guarded(dir string) error {
	s, err := New(dir, Options{})
	if err != nil {
		return err
	}
	st, err := obtain(context.Background(), s, "n", claim(ttlOfGuarded()))
	if err != nil {
		return err
	}
	line, err := s.Lifeline()
	if err != nil {
		return err
	}
	until := os.NewFile(3, "until")
	cmd := exec.Command(os.Args[0], dir)
	cmd.Env = append(os.Environ(), partEnv+"=guard")
	cmd.Stdin, cmd.ExtraFiles = until, []*os.File{line}
	if err := cmd.Start(); err != nil {
		return err
	}
	if err := errors.Join(line.Close(), until.Close()); err != nil {
		return err
	}
	fmt.Println("held", st.Ticket)
	_, _ = io.Copy(io.Discard, os.Stdin)
	return nil
}

func guard(string) error {
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

const ttlEnv = "FILESTORE_TEST_TTL"

func ttlOfGuarded() time.Duration {
	ttl, err := time.ParseDuration(os.Getenv(ttlEnv))
	if err != nil {
		return time.Hour
	}
	return ttl
}

// startGuarded returns the holder, and what ends its guard.
func startGuarded(t *testing.T, dir string) (p *other, end func()) {
	t.Helper()
	until, write, err := os.Pipe()
	must(t, err)
	end = func() { write.Close() }
	t.Cleanup(end)
	p = startWith(t, []*os.File{until}, "guarded", dir)
	until.Close()
	p.says(t, "held")
	return p, end
}

// The child of a killed wrapper must be dead before the next one gets the lock: its guard
// has the lifeline, and closes it when that is so.
func TestLifelineKeepsTheLockOfAKilledHolder(t *testing.T) {
	dir := t.TempDir()
	s := newStore(t, dir)
	for _, how := range []string{"killed", "ended without a word"} {
		p, end := startGuarded(t, dir)
		c := claim(time.Minute)
		queued := join(t, s, "n", c)
		answer := waitInBackground(t, s, "n", c.ID, queued)
		if how == "killed" {
			p.kill()
		} else {
			p.in.Close()
			_ = p.Wait()
		}
		select {
		case st := <-answer:
			t.Fatalf("%s: beside the guard: %+v", how, st)
		case <-time.After(3 * s.o.Poll): // so many looks have found it alive
		}
		if q, err := s.Inspect(patient(t), "n"); err != nil || len(q.Holders()) != 1 || q.Holders()[0].ID == c.ID {
			t.Errorf("%s: %+v, %v", how, q.Claims, err)
		}
		ended := time.Now()
		end()
		if st := <-answer; st.State != lease.Held {
			t.Errorf("%s: after the guard's end: %+v", how, st)
		}
		t.Logf("%s: %v after the guard's end", how, time.Since(ended))
		leave(t, s, "n", c.ID, lease.Seal{})
	}
}

// A guard that hangs holds the lock no longer than the lease.
func TestLifelineEndsWithTheLease(t *testing.T) {
	dir := t.TempDir()
	s := newStore(t, dir)
	t.Setenv(ttlEnv, "400ms")
	p, _ := startGuarded(t, dir)
	p.kill()
	if st, err := obtain(patient(t), s, "n", claim(time.Minute)); err != nil || st.State != lease.Held {
		t.Errorf("after the lease: %+v, %v", st, err)
	}
}

// What has the lifeline and ends takes nothing from the one who lives.
func TestFL02ChildWithTheLifelineEndsAndTheHolderHolds(t *testing.T) {
	dir := t.TempDir()
	s, holder := newStore(t, dir), newStore(t, dir)
	join(t, holder, "n", claim(time.Hour))
	line, err := holder.Lifeline()
	must(t, err)
	child := exec.Command(os.Args[0], dir)
	child.Env = append(os.Environ(), partEnv+"=guard", "GORACE=atexit_sleep_ms=0")
	child.ExtraFiles = []*os.File{line}
	must(t, child.Run(), line.Close()) // its input is empty: it closes, and exits
	c := claim(time.Hour)
	c.NoWait = true
	if st := join(t, s, "n", c); st.State != lease.Busy {
		t.Errorf("the holder lives, and another one is %v", st.State)
	}
}

// The lifeline is for whom it is given to, and for nobody else who is started meanwhile.
func TestLifelineIsNotInheritedByOthers(t *testing.T) {
	dir := t.TempDir()
	s, holder := newStore(t, dir), newStore(t, dir)
	join(t, holder, "n", claim(time.Hour))
	line, err := holder.Lifeline()
	must(t, err)
	child := exec.Command("sleep", "60")
	must(t, child.Start())
	defer func() { _ = child.Process.Kill(); _ = child.Wait() }()
	crash(holder)
	c := claim(time.Hour)
	c.NoWait = true
	if st := join(t, s, "n", c); st.State != lease.Busy {
		t.Errorf("beside the lifeline: %v", st.State)
	}
	must(t, line.Close())
	if st := join(t, s, "n", c); st.State != lease.Held {
		t.Errorf("after it: %v", st.State)
	}
}

func TestLifelineOfAClosedStore(t *testing.T) {
	s := newStore(t, t.TempDir())
	s.Close()
	if f, err := s.Lifeline(); !errors.Is(err, errClosed) {
		t.Errorf("got %v, %v", f, err)
	}
}
