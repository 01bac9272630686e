package elapsed_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/elapsed"
)

func TestNowGoesOnInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := elapsed.Now()
		time.Sleep(time.Hour)
		if d := elapsed.Now().Sub(began); d != time.Hour {
			t.Errorf("an hour took %v", d)
		}
		if d := elapsed.Now().Sub(began); d != time.Hour {
			t.Errorf("nothing took %v", d-time.Hour)
		}
	})
}

func TestTimersStandStillWhileTheMachineSleeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, timers := elapsed.Now(), time.Now()
		elapsed.Sleep(time.Hour)
		defer elapsed.Sleep(-time.Hour) // the clock is the process's
		if d := time.Since(timers); d != 0 {
			t.Errorf("Go's clock went on by %v", d)
		}
		if d := elapsed.Now().Sub(began); d != time.Hour {
			t.Errorf("an hour of sleep took %v", d)
		}
		time.Sleep(time.Minute)
		if d := elapsed.Now().Sub(began); d != time.Hour+time.Minute {
			t.Errorf("an hour of sleep and a minute took %v", d)
		}
	})
}

func TestNowNeverGoesBack(t *testing.T) {
	last, began := elapsed.Now(), time.Now()
	for range 100_000 {
		now := elapsed.Now()
		if now < last {
			t.Fatalf("%v before the last time", last.Sub(now))
		}
		last = now
	}
	// On a machine that did not sleep meanwhile it is Go's clock, to the millisecond.
	first := elapsed.Now()
	if d := first.Sub(last); d < 0 || d > time.Since(began)+time.Millisecond {
		t.Errorf("%v between two readings", d)
	}
}
