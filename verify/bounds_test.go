//go:build linux

package verify

import (
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/servertest"
)

func TestAHolderWhoIsCutOffStopsBeforeAnotherOneHasTheLock(t *testing.T) {
	margins, err := CutOff(t.Context(), servertest.Redis(t, servertest.RedisConfig{}), 30, 300*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(Quantiles(margins))
	if margins[0] < 0 {
		t.Errorf("two trusted one lock for %v", -margins[0])
	}
}

func TestACallEndsAtItsDeadlineAndLeavesNothing(t *testing.T) {
	took, left, err := Deadline(t.Context(), servertest.Redis(t, servertest.RedisConfig{}), 8)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(Quantiles(took))
	if p90 := took[len(took)*9/10]; p90 > 150*time.Millisecond { // the 99th is for the long form: a CI machine is shared
		t.Errorf("a call with 100ms took %v", p90)
	}
	if len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
