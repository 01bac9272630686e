//go:build unix

package main

import (
	"os"
	"os/signal"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// passed are the signals that go on to the command's group.
var passed = []os.Signal{
	syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT,
	syscall.SIGUSR1, syscall.SIGUSR2,
	// What a program gets for a fault of its own, and from others who want it to dump core.
	syscall.SIGABRT, syscall.SIGILL, syscall.SIGTRAP, syscall.SIGBUS, syscall.SIGFPE, syscall.SIGSEGV, syscall.SIGSYS,
	syscall.SIGWINCH, syscall.SIGCONT,
}

// nonblocking is for opening what may have no reader.
const nonblocking = syscall.O_NONBLOCK

// ending are those that end redlatch while it waits for the lock.
var ending = passed[:13]

// catch begins to receive them, except what whoever started us wants ignored (nohup):
// to ask for it would undo that, for the command too.
//
// SIGPIPE is caught so that a message that nobody reads any more does not end us and
// leave the command alone.
func catch(signals chan<- os.Signal) {
	for _, sig := range passed {
		if !signal.Ignored(sig) {
			signal.Notify(signals, sig)
		}
	}
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
}

// catchStop receives the terminal's stop too. It waits until there is a command:
// before, stopping is harmless.
func catchStop(signals chan<- os.Signal) { signal.Notify(signals, syscall.SIGTSTP) }

func isStop(sig os.Signal) bool     { return sig == syscall.SIGTSTP }
func isContinue(sig os.Signal) bool { return sig == syscall.SIGCONT }

// stopsJob reports whether a command that was stopped by sig was meant to be suspended
// at the terminal. SIGSTOP is somebody's who means that process.
func stopsJob(sig syscall.Signal) bool {
	return sig == syscall.SIGTSTP || sig == syscall.SIGTTIN || sig == syscall.SIGTTOU
}

func signalNamed(word string) (os.Signal, bool) {
	if !strings.HasPrefix(word, "SIG") {
		word = "SIG" + word
	}
	sig := unix.SignalNum(word)
	return sig, sig != 0 && sig != syscall.SIGSTOP
}

func signalNumber(sig os.Signal) int {
	n, _ := sig.(syscall.Signal)
	return int(n)
}

func signalName(sig os.Signal) string {
	n, _ := sig.(syscall.Signal)
	return unix.SignalName(n)
}
