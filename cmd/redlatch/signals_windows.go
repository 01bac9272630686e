package main

import (
	"os"
	"os/signal"
	"syscall"
)

var passed = []os.Signal{os.Interrupt, syscall.SIGTERM}

var ending = passed

const nonblocking = 0

func catch(signals chan<- os.Signal) { signal.Notify(signals, passed...) }

func catchStop(chan<- os.Signal) {}

func isStop(os.Signal) bool        { return false }
func isContinue(os.Signal) bool    { return false }
func stopsJob(syscall.Signal) bool { return false }

func signalNamed(string) (os.Signal, bool) { return nil, false }

func signalNumber(sig os.Signal) int {
	n, _ := sig.(syscall.Signal)
	return int(n)
}

func signalName(sig os.Signal) string { return sig.String() }
