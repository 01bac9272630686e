//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filestore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/lease"
)

// Faults that other file locks have had, by the number they have in our collection. Each
// is a test with the number in its name:
//
//	FL-01  a daemon started under the lock keeps it      TestFL01…
//	FL-02  a child's end ends the parent's lock          TestFL02…, also in lifeline_test.go
//	FL-04  several take over one stale lock              TestFL04…
//	FL-05  a process identifier decides                  TestFL05…
//	FL-07  networks, full and read-only disks, no Ctrl-C TestFL07…, also in disk_linux_test.go and hostile_linux_test.go;
//	                                                     an overlay and tmpfs are taken, see elsewhere in kind_linux.go
//	FL-08  two handles in one process                    TestFL08…

func init() { parts["daemon"] = daemon }

// daemon holds a name and starts something that goes on without it.
func daemon(dir string) error {
	s, err := New(dir, Options{})
	if err != nil {
		return err
	}
	st, err := obtain(context.Background(), s, "n", claim(time.Hour))
	if err != nil {
		return err
	}
	cmd := exec.Command("sleep", "60")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	fmt.Println("held", st.Ticket)
	fmt.Println("daemon", cmd.Process.Pid)
	_, _ = io.Copy(io.Discard, os.Stdin)
	return nil
}

func TestFL01DaemonDoesNotKeepTheLock(t *testing.T) {
	dir := t.TempDir()
	s := newStore(t, dir)
	for _, how := range []string{"killed", "ended"} {
		p := start(t, "daemon", dir)
		p.says(t, "held")
		pid := int(p.says(t, "daemon"))
		t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
		if how == "killed" {
			p.kill()
		} else {
			p.in.Close()
			_ = p.Wait()
		}
		if err := syscall.Kill(pid, 0); err != nil {
			t.Fatalf("%s: the daemon does not live: %v", how, err)
		}
		c := claim(time.Minute)
		c.NoWait = true
		if st := join(t, s, "n", c); st.State != lease.Held {
			t.Errorf("%s: the next one is %v", how, st.State)
		}
		leave(t, s, "n", c.ID, lease.Seal{})
	}
}

// The child is the same program, uses the same directory, closes and exits.
func TestFL02ChildWithAStoreOfItsOwnTakesNothing(t *testing.T) {
	dir := t.TempDir()
	s, holder := newStore(t, dir), newStore(t, dir)
	mine := claim(time.Hour)
	join(t, holder, "n", mine)
	p := start(t, "hold", dir, "other", "1h")
	p.says(t, "held")
	fmt.Fprintln(p.in, "leave")
	p.says(t, "left")
	must(t, p.Wait())
	c := claim(time.Hour)
	c.NoWait = true
	if st := join(t, s, "n", c); st.State != lease.Busy {
		t.Errorf("the holder lives, and another one is %v", st.State)
	}
}

func TestFL04OneWinnerOverAStaleLock(t *testing.T) {
	const rounds, takers = 40, 16 // 2,000 by hand
	dir := t.TempDir()
	stores := make([]*Store, takers)
	for i := range stores {
		stores[i] = newStore(t, dir)
	}
	for round := range rounds {
		stale := newStore(t, dir)
		join(t, stale, "n", claim(time.Hour))
		crash(stale)
		var all sync.WaitGroup
		winners := make(chan string, takers)
		for _, s := range stores {
			all.Go(func() {
				c := claim(time.Hour)
				c.NoWait = true
				st, err := s.Join(patient(t), "n", c)
				if err != nil {
					t.Error(err)
				}
				if st.State == lease.Held {
					winners <- c.ID
				}
			})
		}
		all.Wait()
		close(winners)
		if len(winners) != 1 {
			t.Fatalf("round %d: %d winners", round, len(winners))
		}
		leave(t, stores[0], "n", <-winners, lease.Seal{})
	}
}

// One is stopped after it has seen that the lock is stale, and before it has taken it.
func TestFL04StoppedBetweenCheckAndTaking(t *testing.T) {
	dir := t.TempDir()
	stale, slow, quick := newStore(t, dir), newStore(t, dir), newStore(t, dir)
	join(t, stale, "n", claim(time.Hour))
	crash(stale)
	stopped, goOn := make(chan struct{}), make(chan struct{})
	mine := claim(time.Hour)
	done := make(chan error, 1)
	go func() {
		done <- slow.move(context.Background(), "n", func(r *record, now time.Time, dead func(string) bool) error {
			if len(r.queue.Claims) != 0 {
				return errors.New("the stale claim is there")
			}
			close(stopped)
			<-goOn
			st, err := r.queue.Join(mine, now)
			slow.bind(r, mine.ID, st, dead)
			return err
		})
	}()
	<-stopped
	c := claim(time.Hour)
	c.NoWait = true
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	var fault *driver.Fault
	if st, err := quick.Join(ctx, "n", c); !errors.As(err, &fault) || fault.Kind != driver.Unavailable {
		t.Errorf("while it is stopped: %+v, %v", st, err)
	}
	close(goOn)
	must(t, <-done)
	if st := join(t, quick, "n", c); st.State != lease.Busy || st.Holder.ID != mine.ID {
		t.Errorf("afterwards: %+v", st)
	}
}

// The number in a Store's file is for people.
func TestFL05ProcessIdentifiersDecideNothing(t *testing.T) {
	dir := t.TempDir()
	s, holder := newStore(t, dir), newStore(t, dir)
	c := claim(time.Hour)
	c.NoWait = true
	join(t, holder, "n", claim(time.Hour))
	file := filepath.Join(dir, aliveDir, holder.self.id)
	for _, text := range []string{"pid 999999999\n", "pid 1\n", "", fmt.Sprintf("pid %d\n", os.Getpid())} {
		must(t, os.WriteFile(file, []byte(text), 0o600)) // the same file, still locked
		if st := join(t, s, "n", c); st.State != lease.Busy {
			t.Errorf("with %q for a living holder: %v", text, st.State)
		}
	}
	crash(holder) // and its number, in the file, is a living process's
	if st := join(t, s, "n", c); st.State != lease.Held {
		t.Errorf("beside a dead one whose number lives: %v", st.State)
	}
}

func TestFL07WaitEndsWithItsContext(t *testing.T) {
	s := newStore(t, t.TempDir())
	c := claim(time.Hour)
	join(t, s, "n", claim(time.Hour))
	st := join(t, s, "n", c)
	ctx, cancel := context.WithCancel(t.Context())
	answer := make(chan error, 1)
	go func() {
		_, err := s.Wait(ctx, "n", c.ID, st.Rev)
		answer <- err
	}()
	for p := patient(t); !s.waiting.looked("n") && p.Err() == nil; {
		sleep(p, time.Millisecond)
	}
	cancel()
	within(t, "a wait after Ctrl-C", func() {
		if err := <-answer; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}

// The kernel gives a lock of fcntl up with any descriptor of the file; one of flock with
// its own opening only. All files are opened and closed beside, and locked in vain.
func TestFL08ClosingSomethingElseKeepsTheLock(t *testing.T) {
	dir := t.TempDir()
	a, b := newStore(t, dir), newStore(t, dir)
	join(t, a, "n", claim(time.Hour))
	for _, file := range []string{filepath.Join(aliveDir, a.self.id), a.shardOf("n").file, filepath.Join(namesDir, "n"), bootFile} {
		for _, flag := range []int{os.O_RDONLY, os.O_RDWR} {
			f, err := os.OpenFile(filepath.Join(dir, file), flag, 0)
			must(t, err)
			if ok, err := tryLock(f); err == nil && ok {
				must(t, unlock(f))
			}
			must(t, f.Close())
		}
	}
	other := newStore(t, dir)
	must(t, other.Close())
	c := claim(time.Hour)
	c.NoWait = true
	for _, s := range []*Store{a, b} {
		if st := join(t, s, "n", c); st.State != lease.Busy {
			t.Errorf("a second handle of this process is %v", st.State)
		}
	}
}
