package main

import (
	"cmp"
	"fmt"
	"os"
	"strings"
	"syscall"
)

// lostAction is what happens to the command when its lock is lost.
type lostAction struct {
	warn bool      // it goes on
	kill bool      // at once
	sig  os.Signal // asked with that, killed later
}

func (l *lostAction) Type() string { return "ACTION" }

func (l *lostAction) String() string {
	switch {
	case l.warn:
		return "warn"
	case l.kill:
		return "kill"
	}
	return "term"
}

func (l *lostAction) Set(s string) error {
	switch word := strings.ToUpper(s); word {
	case "WARN":
		*l = lostAction{warn: true}
	case "KILL", "SIGKILL":
		*l = lostAction{kill: true}
	case "TERM":
		*l = lostAction{sig: syscall.SIGTERM}
	default:
		sig, ok := signalNamed(word)
		if !ok {
			return fmt.Errorf("%q is none of term, kill, warn and the signals' names", s)
		}
		*l = lostAction{sig: sig}
	}
	return nil
}

// asks is the signal that asks the command to end, 0 if it is not asked. One that is let
// run on without its lock is not let run on without us.
func (l *lostAction) asks() syscall.Signal {
	switch sig, ok := l.sig.(syscall.Signal); {
	case ok:
		return sig
	case l.warn:
		return syscall.SIGTERM
	}
	return 0
}

// unavailableAction is what happens when the store does not answer.
type unavailableAction string

const (
	fail       unavailableAction = "" // the zero value
	keepTrying unavailableAction = "wait"
	runWithout unavailableAction = "run"
)

func (u *unavailableAction) Type() string   { return "ACTION" }
func (u *unavailableAction) String() string { return cmp.Or(string(*u), "fail") }

func (u *unavailableAction) Set(s string) error {
	switch action := unavailableAction(s); action {
	case keepTrying, runWithout:
		*u = action
	case "fail":
		*u = fail
	default:
		return fmt.Errorf("%q is none of fail, wait and run", s)
	}
	return nil
}
