package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/cmd/redlatch/internal/duration"
)

// durationValue is a flag whose value is a length of time. doubts collects what is
// worth a warning.
type durationValue struct {
	d      *time.Duration
	doubts *[]string
}

func (v durationValue) String() string {
	if v.d == nil || *v.d == 0 {
		return ""
	}
	return duration.Format(*v.d)
}

func (v durationValue) Type() string { return "DUR" }

func (v durationValue) Set(s string) error {
	d, doubt, err := duration.Parse(s)
	if err != nil {
		return err
	}
	if doubt != "" {
		*v.doubts = append(*v.doubts, doubt)
	}
	*v.d = d
	return nil
}

// forever is a wait without end.
const forever time.Duration = -1

// waitValue is a length of time, or forever.
type waitValue struct{ durationValue }

func (v waitValue) Set(s string) error {
	if s == "forever" {
		*v.d = forever
		return nil
	}
	if err := v.durationValue.Set(s); err != nil {
		return fmt.Errorf("%w, or forever", err)
	}
	return nil
}

func (v waitValue) String() string {
	if v.d != nil && *v.d == forever {
		return "forever"
	}
	return v.durationValue.String()
}

// codeValue is an exit code. 600 is refused and not cut down to 88.
type codeValue struct{ n *int }

func (v codeValue) Type() string { return "N" }

func (v codeValue) String() string {
	if v.n == nil {
		return ""
	}
	return strconv.Itoa(*v.n)
}

func (v codeValue) Set(s string) error {
	n, err := strconv.ParseUint(s, 10, 8)
	if err != nil {
		return fmt.Errorf("%q is no exit code; they go from 0 to 255", s)
	}
	*v.n = int(n)
	return nil
}

// labelsValue is key=value, more than once.
type labelsValue struct{ m *map[string]string }

func (v labelsValue) Type() string   { return "KEY=VALUE" }
func (v labelsValue) String() string { return "" }

func (v labelsValue) Set(s string) error {
	key, value, ok := strings.Cut(s, "=")
	if !ok || key == "" {
		return fmt.Errorf("%q is no label; write key=value", s)
	}
	if *v.m == nil {
		*v.m = make(map[string]string)
	}
	(*v.m)[key] = value
	return nil
}
