// Package duration reads lengths of time as people type them: 30s, 1h30m, 2d12h, 0.25.
package duration

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// suspect is the number of seconds above which a bare number looks like milliseconds.
const suspect = 3600

const (
	day  = 24 * time.Hour
	week = 7 * day
)

// Parse reads Go's syntax with w and d for weeks and days before it, or a bare number of seconds, as
// flock and sleep take it. Negative lengths are refused: nothing here has one. The
// doubt, if not empty, is a warning that the number may be in another unit.
func Parse(s string) (d time.Duration, doubt string, err error) {
	if seconds, err := number(s); err == nil {
		if seconds*float64(time.Second) > math.MaxInt64 {
			return 0, "", fmt.Errorf("%q is longer than 292 years", s)
		}
		d = time.Duration(math.Round(seconds * float64(time.Second)))
		if seconds > suspect {
			doubt = fmt.Sprintf("%s is seconds (%s); write a unit if that is meant, or %sms", s, Format(d), s)
		}
		return d, doubt, nil
	}
	d, err = withDays(s)
	if err != nil {
		return 0, "", err
	}
	return d, "", nil
}

// number reads digits with at most one point. ParseFloat alone would take 1e9, 0x10
// and inf too.
func number(s string) (float64, error) {
	if strings.Trim(s, "0123456789.") != "" {
		return 0, strconv.ErrSyntax
	}
	return strconv.ParseFloat(s, 64)
}

func withDays(s string) (time.Duration, error) {
	refused := fmt.Errorf("%q is no length of time; write 250ms, 30s, 10m, 1h30m, 2d, 1w or a number of seconds", s)
	var sum time.Duration
	rest := s
	for _, unit := range []struct {
		letter string
		length time.Duration
	}{{"w", week}, {"d", day}} {
		count, after, ok := strings.Cut(rest, unit.letter)
		if !ok {
			continue
		}
		n, err := number(count)
		if err != nil {
			return 0, refused
		}
		if n*float64(unit.length)+float64(sum) > math.MaxInt64 {
			return 0, fmt.Errorf("%q is longer than 292 years", s)
		}
		sum, rest = sum+time.Duration(n*float64(unit.length)), after
		if rest == "" {
			return sum, nil
		}
	}
	d, err := time.ParseDuration(rest)
	if err != nil || d < 0 || strings.HasPrefix(rest, "+") || sum+d < 0 {
		return 0, refused
	}
	return sum + d, nil
}

// Format is for people: two units at most, no zero ones: 26s, 3m12s, 2h14m, 3d4h.
func Format(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < 10*time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d < time.Minute:
		return d.Round(time.Second).String()
	case d < time.Hour:
		return two(d, time.Minute, "m", time.Second, "s")
	case d < day:
		return two(d, time.Hour, "h", time.Minute, "m")
	}
	return two(d, day, "d", time.Hour, "h")
}

func two(d, big time.Duration, bigName string, small time.Duration, smallName string) string {
	d = d.Truncate(small)
	s := strconv.Itoa(int(d/big)) + bigName
	if rest := d % big / small; rest > 0 {
		s += strconv.Itoa(int(rest)) + smallName
	}
	return s
}
