//go:build unix && !linux

package main

// waitProcess: the kernel has nothing that works for processes that are not our own
// children, on all of these systems.
func waitProcess(int) func() bool { return nil }
