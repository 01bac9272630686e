package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// resultJSON is what became of a run, redlatch.run/v1. What is not known is null.
type resultJSON struct {
	Schema     string      `json:"schema"`
	Name       string      `json:"name"`
	Outcome    string      `json:"outcome"` // ran, held, wait_timeout, lost, max_runtime, unavailable, unlocked_run, exec_failed, interrupted, failed
	ExitCode   *int        `json:"exit_code"`
	Signal     *string     `json:"signal"`
	WaitMS     int64       `json:"wait_ms"`
	HeldMS     int64       `json:"held_ms"`
	Fence      uint64      `json:"fence,omitempty"`
	StartedAt  *stamp      `json:"started_at"`
	FinishedAt *stamp      `json:"finished_at"`
	Renewals   int64       `json:"renewals"`
	Holder     *holderJSON `json:"holder"`
	Store      *string     `json:"store"`
	Error      *errorJSON  `json:"error"`
}

// conclude fills in the outcome.
func (r *resultJSON) conclude(f *failure) {
	if f == nil {
		r.Holder = nil
		if r.Outcome == "" {
			r.Outcome = "ran"
		}
		return
	}
	e := f.json()
	r.Error = &e
	switch f.kind {
	case "held", "wait_timeout", "lost", "max_runtime", "unavailable", "interrupted":
		r.Outcome = f.kind
	case "not_found":
		r.Outcome = "exec_failed"
	default:
		r.Outcome = "failed"
	}
	if f.kind != "held" && f.kind != "wait_timeout" {
		r.Holder = nil
	}
}

// resultFile is where the result goes: a file that is replaced in one step, so that who reads
// it sees all of it or the one before; or what is no ordinary file (/dev/stderr, a FIFO),
// which is written to.
type resultFile struct {
	path    string // links followed
	special bool
}

// findResult sees whether the result can be written there, before anything is run.
func findResult(path string) (resultFile, error) {
	f := resultFile{path: path}
	if target, err := filepath.EvalSymlinks(path); err == nil {
		f.path = target
	}
	info, err := os.Stat(f.path)
	switch {
	case err == nil && info.IsDir():
		return f, fmt.Errorf("%s is a directory", path)
	case err == nil && (!info.Mode().IsRegular() || strings.HasPrefix(path, "/dev/")): // /dev/stderr is a file, behind 2>
		f.path, f.special = path, true
		return f, nil
	}
	probe, err := os.CreateTemp(filepath.Dir(f.path), ".redlatch-*")
	if err != nil {
		return f, err
	}
	_ = probe.Close()
	return f, os.Remove(probe.Name())
}

func (f resultFile) write(r *resultJSON) error {
	if f.special {
		return f.pour(encode(r) + "\n")
	}
	t, err := os.CreateTemp(filepath.Dir(f.path), ".redlatch-*")
	if err != nil {
		return err
	}
	defer os.Remove(t.Name()) // not there any more if all goes well
	_, err = t.WriteString(encode(r) + "\n")
	if closed := t.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	return os.Rename(t.Name(), f.path)
}

// pour writes to what may have no reader: that is an error, and nothing to wait for.
func (f resultFile) pour(text string) error {
	w, err := os.OpenFile(f.path, os.O_WRONLY|nonblocking, 0)
	if err != nil {
		return err
	}
	defer w.Close()
	_ = w.SetWriteDeadline(time.Now().Add(hearing)) // what cannot wait needs no deadline
	_, err = w.WriteString(text)
	return err
}

// stamp is a time as JSON has it here: RFC 3339 in UTC, to the millisecond.
type stamp struct{ time.Time }

func (s stamp) MarshalJSON() ([]byte, error) {
	return []byte(s.UTC().Format(`"2006-01-02T15:04:05.000Z"`)), nil
}

// at is the stamp of a time, nil if it is not known.
func at(t time.Time) *stamp {
	if t.IsZero() {
		return nil
	}
	return &stamp{t}
}
