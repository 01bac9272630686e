package main

import (
	"os"
	"path/filepath"
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

// write replaces the file in one step: who reads it sees all of it or the one before.
func (r *resultJSON) write(path string) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".redlatch-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // not there any more if all goes well
	_, err = f.WriteString(encode(r) + "\n")
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
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
