// Command redlatch holds distributed locks for jobs and scripts:
//
//	redlatch run nightly/report -- ./report.sh
//
// runs the command on one host at a time, stops it before its lock can pass on to
// somebody else, and exits with the command's own exit code. See redlatch --help.
//
// What the guarantees are and who gives them is told by package redlatch; this
// command adds the life of the process that a lock is held for.
package main

import (
	"os"

	"github.com/redlatch/redlatch/cmd/redlatch/internal/child"
)

func main() {
	if os.Args[0] == child.GuardName {
		os.Exit(child.Guard(os.Args[1:]))
	}
	os.Exit(newApp(os.Stdout, os.Stderr).main(os.Args[1:]))
}
