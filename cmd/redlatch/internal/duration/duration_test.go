package duration

import (
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	for in, want := range map[string]time.Duration{
		"0":      0,
		"30":     30 * time.Second,
		"0.25":   250 * time.Millisecond,
		".5":     500 * time.Millisecond,
		"3600":   time.Hour,
		"250ms":  250 * time.Millisecond,
		"1h30m":  90 * time.Minute,
		"2d":     48 * time.Hour,
		"1d12h":  36 * time.Hour,
		"1.5d":   36 * time.Hour,
		"1w":     7 * 24 * time.Hour,
		"1w2d1h": 217 * time.Hour,
		"0d0.5s": 500 * time.Millisecond,
	} {
		got, doubt, err := Parse(in)
		if err != nil || got != want || doubt != "" {
			t.Errorf("Parse(%q) = %v, %q, %v; want %v", in, got, doubt, err, want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, in := range []string{
		"", ".", "-1", "-1s", "+1s", "1e3", "0x10", "inf", "NaN", "1.2.3", "5x", "5 s", "d", "1d-1h", "1h1d", "1dd", "1d1w", "w", "1ww", "99999w",
		"99999999999999", "9999999d", "106751d24h", "30s ", "forever",
	} {
		if got, _, err := Parse(in); err == nil {
			t.Errorf("Parse(%q) = %v, want an error", in, got)
		}
	}
}

func TestABareNumberAboveAnHourIsDoubted(t *testing.T) {
	got, doubt, err := Parse("5000")
	if err != nil || got != 5000*time.Second || doubt != "5000 is seconds (1h23m); write a unit if that is meant, or 5000ms" {
		t.Errorf("Parse(5000) = %v, %q, %v", got, doubt, err)
	}
}

func TestFormat(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"0s":    0,
		"2ms":   1600 * time.Microsecond,
		"250ms": 250 * time.Millisecond,
		"1.23s": 1234 * time.Millisecond,
		"26s":   26*time.Second + 400*time.Millisecond,
		"3m12s": 3*time.Minute + 12*time.Second + 999*time.Millisecond,
		"3m":    3 * time.Minute,
		"2h14m": 2*time.Hour + 14*time.Minute + 50*time.Second,
		"3d4h":  76 * time.Hour,
		"292d":  292 * 24 * time.Hour,
	} {
		if got := Format(d); got != want {
			t.Errorf("Format(%v) = %q, want %q", d, got, want)
		}
	}
}
