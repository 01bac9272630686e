package quantile

import (
	"testing"
	"time"
)

func TestAt(t *testing.T) {
	var times []time.Duration
	for i := range 200 {
		times = append(times, time.Duration(200-i))
	}
	s := Of(times)
	for part, want := range map[float64]time.Duration{0: 1, 0.01: 2, 0.5: 100, 0.99: 198, 0.995: 199, 1: 200} {
		if got := s.At(part); got != want {
			t.Errorf("At(%v) = %d, want %d", part, got, want)
		}
	}
	if times[0] != 200 {
		t.Error("the caller's times were sorted")
	}
	if got := Of(nil).At(0.5); got != 0 {
		t.Errorf("At of nothing = %d", got)
	}
}
