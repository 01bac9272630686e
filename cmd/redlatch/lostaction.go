package main

import (
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
