package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/cmd/redlatch/internal/child"
	"github.com/redlatch/redlatch/cmd/redlatch/internal/duration"
)

const (
	// drain is how long the group may live on when the command has ended by itself. A
	// "| tee log" of the command's own sees the end of its input then, and ends.
	drain = 500 * time.Millisecond

	// hopeless is when we stop waiting for a group to end that was killed, where the
	// lock is lost anyhow: a process that hangs in the kernel may never end.
	hopeless = 10 * time.Second
)

// supervisor decides what happens to the command while it runs. One rule is above all:
// nobody of its group is alive when the lock can be somebody else's, and the lock is
// not released before that.
type supervisor struct {
	*running

	held  *redlatch.Held
	child *child.Child
	began time.Time

	ended     bool     // the command itself has
	cause     *failure // why it is stopped
	asked     bool     // the group was asked to end
	killed    bool
	warned    bool // the lock is lost and the command runs on, as --on-lost=warn has it
	abandoned bool // somebody of the group is still alive

	kill   <-chan time.Time // when to kill the group
	killAt time.Time        // the same
	giveUp <-chan time.Time
	remind <-chan time.Time
}

// wait returns when the whole group is gone: nil if the command ended by itself.
func (s *supervisor) wait() error {
	var lost <-chan struct{}
	var limit, drained <-chan time.Time
	if s.held != nil {
		lost = s.held.Context().Done()
		defer s.prolong()()
	}
	acted, unguarded := s.child.Acted(), s.child.Unguarded()
	if s.o.maxRuntime > 0 {
		limit = time.After(s.o.maxRuntime)
	}
	exited := s.child.Exited()
	look := time.NewTimer(time.Hour)
	defer look.Stop()
	pause := time.Millisecond
	for {
		select {
		case <-exited:
			exited, limit, s.ended = nil, nil, true
			drained = time.After(drain)
			look.Reset(0)
		case <-look.C:
			if !s.child.Alive() {
				return s.verdict()
			}
			if s.killed {
				s.child.Kill() // also those who were being started meanwhile
			}
			look.Reset(pause)
			pause = min(2*pause, 20*time.Millisecond)
		case <-drained:
			s.leftBehind()
		case <-lost:
			lost = nil
			s.lose()
		case <-acted:
			acted = nil
			s.overtaken()
		case <-unguarded:
			unguarded = nil
			s.unguarded()
		case <-limit:
			s.stop(&failure{
				code: codeMaxRuntime, kind: "max_runtime", msg: "--max-runtime " + duration.Format(s.o.maxRuntime) + " is over: the command was stopped",
			}, syscall.SIGTERM, s.o.grace)
			s.warn("%s has run for %s (--max-runtime); stopping pid %d (TERM, KILL in %s)",
				s.command.Args[0], duration.Format(s.o.maxRuntime), s.child.PID(), duration.Format(s.o.grace))
		case <-s.kill:
			s.killNow()
		case <-s.giveUp:
			s.abandoned = !s.ended
			s.warn("some of process group %d do not end although they were killed", s.child.PID())
			return s.verdict()
		case <-s.remind:
			s.warn("%s is still lost, and pid %d still runs (--on-lost=warn)", s.name, s.child.PID())
			s.remind = time.After(time.Minute)
		case sig := <-s.signals:
			s.pass(sig)
		case sig := <-s.child.Stops():
			s.stopped(sig)
		}
	}
}

func (s *supervisor) verdict() error {
	if s.cause == nil {
		return nil // a nil *failure would not be a nil error
	}
	return s.cause
}

// lose is what to do when the lock is lost, or will be before its next renewal.
func (s *supervisor) lose() {
	var lost *redlatch.LostError
	if !errors.As(context.Cause(s.held.Context()), &lost) {
		return
	}
	held := duration.Format(time.Since(s.began))
	if s.o.onLost.warn {
		s.warned = true
		s.result.Outcome, s.result.HeldMS = "lost", time.Since(s.began).Milliseconds()
		s.result.Error = &errorJSON{"lost", lost.Loss.String(), "the command ran on without the lock (--on-lost=warn)"}
		s.warn("LOST %s after %s: %s (%s); pid %d runs on without it (--on-lost=warn)", s.name, held, &lost.Loss, s.store.name, s.child.PID())
		s.remind = time.After(time.Minute)
		return
	}
	// The lease's end is the limit, however long the grace is.
	grace := max(min(s.o.grace, time.Until(s.held.Until())-s.o.last()), 0)
	how := fmt.Sprintf("%s, KILL in %s", signalText(s.o.onLost.sig), duration.Format(grace))
	if s.o.onLost.kill || grace == 0 {
		grace, how = 0, "KILL"
	}
	s.giveUp = time.After(grace + hopeless)
	s.stop(&failure{
		code: codeLost, kind: "lost", msg: "lost lock " + s.name + ": the command was stopped",
	}, s.o.onLost.sig, grace)
	// Said after it is done: nobody may read what we say, and a full pipe would hold us up.
	s.warn("LOST %s after %s: %s (%s); stopping pid %d (%s)", s.name, held, &lost.Loss, s.store.name, s.child.PID(), how)
}

// prolong tells the guard of every renewal. That has a goroutine of its own: whatever
// else holds us up, a command whose lock is renewed is not to be stopped. The function that
// it returns ends it.
func (s *supervisor) prolong() func() {
	if s.o.onLost.warn {
		return func() {} // the guard knows of no limit
	}
	end := make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() {
		for {
			select {
			case <-end:
				return
			case <-s.renewed:
				s.child.Extend(time.Until(s.held.Until()) - s.o.last())
			}
		}
	})
	return func() { close(end); work.Wait() }
}

// overtaken is told that the guard ends the command: we did not when it was time to,
// because we were stopped or got no turn. That is a lock lost, whatever the store says
// by now.
func (s *supervisor) overtaken() {
	if s.asked || s.killed {
		return // we have, and it only does the same
	}
	s.giveUp = time.After(s.o.grace + hopeless)
	s.stop(&failure{
		code: codeLost, kind: "lost", msg: "lost lock " + s.name + ": the command was stopped",
	}, s.o.onLost.sig, s.o.grace)
	s.warn("LOST %s after %s: redlatch did not run for too long (stopped, or starved); the guard stops pid %d", s.name, duration.Format(time.Since(s.began)), s.child.PID())
}

// unguarded is told that the guard is dead. Where its children are ours now, we go on
// without it; where they are nobody's there is no telling any more what the command does.
func (s *supervisor) unguarded() {
	if !s.child.Orphaned() {
		s.warn("the guard was killed; pid %d runs on, but if redlatch is killed too nobody stops it", s.child.PID())
		return
	}
	s.stop(internal("the guard was killed, so the command was stopped"), syscall.SIGTERM, s.o.grace)
}

func signalText(sig os.Signal) string {
	if sig == nil {
		return "KILL"
	}
	name := signalName(sig)
	if len(name) > 3 && name[:3] == "SIG" {
		return name[3:]
	}
	return name
}

// stop asks the group to end and plans to kill it. The first reason stands; a later
// one can only bring the end forward.
func (s *supervisor) stop(why *failure, sig os.Signal, grace time.Duration) {
	if s.cause == nil || why.code == codeLost {
		s.cause = why
	}
	s.child.Hunt(max(grace, 0))
	if grace <= 0 {
		s.killNow()
		return
	}
	if !s.asked {
		s.asked = true
		s.child.Signal(sig)
		s.child.Continue() // one that is stopped would not hear it
	}
	s.killIn(grace)
}

func (s *supervisor) killIn(grace time.Duration) {
	at := time.Now().Add(grace)
	if s.kill == nil || at.Before(s.killAt) {
		s.kill, s.killAt = time.After(grace), at
	}
}

func (s *supervisor) killNow() {
	s.kill, s.killed = nil, true
	s.child.Kill()
}

// leftBehind ends those who stayed in the group when the command ended by itself: the
// lock is held for as long as they work under it, and that may be for ever.
func (s *supervisor) leftBehind() {
	if s.asked || s.killed || s.warned {
		return
	}
	s.asked = true
	s.child.Signal(syscall.SIGTERM)
	s.child.Continue()
	s.killIn(s.o.grace)
	s.info("%s has ended and left others running in its process group; stopping them (use setsid for what must outlive the lock)", s.command.Args[0])
}

// pass hands a signal on to the group.
func (s *supervisor) pass(sig os.Signal) {
	switch {
	case isStop(sig):
		s.suspend()
	case isContinue(sig):
		// Nothing was renewed while we were stopped. If the lock has gone meanwhile the
		// command does not run on for a moment.
		if s.held == nil || s.held.Valid() || s.o.onLost.warn {
			s.child.Continue()
		}
	case s.asked && slices.Contains(ending, sig) && s.cause != nil:
		s.killNow() // whoever asks twice means it
	default:
		s.child.Signal(sig)
	}
}

// stopped is told that the command was stopped.
func (s *supervisor) stopped(sig syscall.Signal) {
	switch {
	case s.asked, s.killed:
	case s.child.NeedsTerminal(sig):
		s.child.Continue()
	case stopsJob(sig):
		s.suspend()
	}
}

func (s *supervisor) suspend() {
	if !s.child.Suspend() {
		s.child.Continue() // there is no shell that could continue us
	}
}
