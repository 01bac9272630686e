//go:build unix

package history

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Kind says what a [Record] is about.
type Kind string

// What workers write.
const (
	Want  Kind = "want"  // a call for the lock begins
	Hold  Kind = "hold"  // a stamp: the hold is trusted
	Gave  Kind = "gave"  // the call ended without a hold; Note says why
	Ended Kind = "ended" // the hold is over; Note says how
)

// What is written by whoever breaks things, and watches the service.
const (
	Started Kind = "started" // a process: it runs from then on
	Resumed Kind = "resumed"
	Stopped Kind = "stopped" // it ran until then
	Killed  Kind = "killed"
	Cut     Kind = "cut"  // connections, which ones says Note: for the reader only
	Seen    Kind = "seen" // the service gives the name to Process; Note is its value
	Over    Kind = "over" // the run, as far as it is judged
)

// Instant is a time on the clock that all processes of a host share.
type Instant time.Duration

// Now reads CLOCK_MONOTONIC. Go's own monotonic time has an origin for each process.
func Now() Instant {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err) // there is no such system
	}
	return Instant(t.Nano())
}

// Record is one thing that was seen. Process is a worker's number and how often it was
// started: "3.2". Call counts the process's calls for a lock; a hold has that of its call.
type Record struct {
	Kind    Kind
	Process string
	Name    string
	Call    uint64
	Fence   uint64
	At      Instant
	Note    string
}

// line is the record as a line of text, without a line's end.
func (r Record) line() []byte {
	return fmt.Appendf(nil, "%s\t%s\t%q\t%d\t%d\t%d\t%q",
		r.Kind, r.Process, r.Name, r.Call, r.Fence, r.At, r.Note)
}

func parse(line string) (Record, error) {
	fields := strings.Split(line, "\t")
	if len(fields) != 7 {
		return Record{}, fmt.Errorf("not a record: %q", line)
	}
	r := Record{Kind: Kind(fields[0]), Process: fields[1]}
	var fault error
	text := func(s string) string {
		plain, err := strconv.Unquote(s)
		if err != nil {
			fault = err
		}
		return plain
	}
	number := func(s string) uint64 {
		n, err := strconv.ParseUint(s, 10, 63)
		if err != nil {
			fault = err
		}
		return n
	}
	r.Name, r.Note = text(fields[2]), text(fields[6])
	r.Call, r.Fence = number(fields[3]), number(fields[4])
	r.At = Instant(number(fields[5]))
	if fault != nil {
		return Record{}, fmt.Errorf("not a record: %q: %w", line, fault)
	}
	return r, nil
}
