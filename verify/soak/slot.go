//go:build unix

package soak

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/redlatch/redlatch/verify/history"
)

// slot is the place of one process, which is started again after it was killed.
type slot struct {
	run    *run
	number int

	mu      sync.Mutex
	starts  int
	cmd     *exec.Cmd     // nil: killed
	exited  chan struct{} // closed when it has ended
	how     error         // it ended so; not read before
	stopped bool
}

func (s *slot) process() string { return fmt.Sprintf("%d.%d", s.number, s.starts) }

func (s *slot) start() error {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.starts++
	orders, err := json.Marshal(Orders{
		Addr: s.run.server.Addr(), Dir: s.run.dir, Process: s.process(), Names: s.run.names,
		Goroutines: s.run.cfg.Goroutines, TTL: s.run.cfg.TTL, Seed: s.run.cfg.Seed, Broken: s.run.cfg.Broken,
	})
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	said, err := os.OpenFile(s.said(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer said.Close()
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), ordersVariable+"="+string(orders))
	cmd.Stdout, cmd.Stderr = said, said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: s.run.group.ID()}
	if err := cmd.Start(); err != nil {
		return err
	}
	s.note(history.Started, history.Now())
	s.cmd, s.stopped, s.exited = cmd, false, make(chan struct{})
	exited := s.exited
	go func() { // it ends with the process, which ends with the run
		s.how = cmd.Wait()
		close(exited)
	}()
	return nil
}

// said is the file with what the slot's processes printed.
func (s *slot) said() string { return filepath.Join(s.run.dir, fmt.Sprintf("worker-%d.txt", s.number)) }

// note writes what was done to the process.
func (s *slot) note(what history.Kind, at history.Instant) {
	s.run.log.Add(history.Record{Kind: what, Process: s.process(), At: at})
	s.run.count(string(what))
}

// kill kills the process, and starts another one after a while.
func (s *slot) kill(ctx context.Context, rest time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.cmd == nil {
		return nil
	}
	if err := s.alive(); err != nil {
		return err
	}
	before := history.Now()
	if err := s.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-s.exited
	s.note(history.Killed, before)
	s.cmd = nil
	s.run.work.Go(func() {
		if pause(ctx, rest) {
			s.run.fails(s.start())
		}
	})
	return nil
}

// stop stops the process for a while.
func (s *slot) stop(ctx context.Context, rest time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.cmd == nil || s.stopped {
		return nil
	}
	if err := s.alive(); err != nil {
		return err
	}
	before := history.Now()
	if err := s.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	s.note(history.Stopped, before)
	s.stopped = true
	cmd := s.cmd
	s.run.work.Go(func() {
		pause(ctx, rest)
		s.mu.Lock()
		defer s.mu.Unlock()

		if s.cmd == cmd {
			s.run.fails(s.resume())
		}
	})
	return nil
}

func (s *slot) resume() error {
	if err := s.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		return err
	}
	s.note(history.Resumed, history.Now())
	s.stopped = false
	return nil
}

func (s *slot) isStopped() bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.stopped && s.cmd != nil
}

// alive says what is wrong with a process that has ended by itself.
func (s *slot) alive() error {
	select {
	case <-s.exited:
		return s.died(s.how)
	default:
		return nil
	}
}

func (s *slot) died(err error) error {
	text, _ := os.ReadFile(s.said())
	return fmt.Errorf("worker %s: %w; it said:\n%s", s.process(), err, text[max(0, len(text)-8000):])
}

// end lets the process end in order: it gives its locks back.
func (s *slot) end() error {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.cmd == nil {
		return nil
	}
	if err := errors.Join(s.alive(), s.cmd.Process.Signal(syscall.SIGTERM)); err != nil {
		return err
	}
	select {
	case <-s.exited:
		if s.how != nil {
			return s.died(s.how)
		}
		return nil
	case <-time.After(20 * time.Second):
		// What its goroutines do is said by SIGQUIT.
		_ = s.cmd.Process.Signal(syscall.SIGQUIT)
		<-s.exited
		return s.died(fmt.Errorf("does not end: %w", s.how))
	}
}
