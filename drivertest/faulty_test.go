package drivertest

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/lease"
	"github.com/redlatch/redlatch/memstore"
)

func TestFaultyDoesWhatItSays(t *testing.T) {
	tests := []struct {
		what   string
		faults Faults
		lost   bool // the caller gets no answer
		there  bool // the join took effect at once
		later  bool // or when it has settled
	}{
		{"no faults", Faults{}, false, true, true},
		{"the request is lost", Faults{LoseRequest: 1}, true, false, false},
		{"the reply is lost", Faults{LoseReply: 1}, true, true, true},
		{"the call is late", Faults{Late: 1, Lag: time.Second}, true, false, true},
		{"the call comes twice", Faults{Twice: 1}, false, true, true},
		{"the call takes long", Faults{Delay: time.Second}, false, true, true},
	}
	for _, test := range tests {
		t.Run(test.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const seed = 3
				store := memstore.New()
				f := NewFaulty(store, seed, test.faults)
				c := lease.Claim{ID: lease.NewID(), TTL: time.Minute}
				_, err := f.Join(t.Context(), "x", c)
				if errors.Is(err, ErrLost) != test.lost {
					t.Errorf("error %v (seed %d)", err, seed)
				}
				var fault *driver.Fault
				if test.lost && (!errors.As(err, &fault) || fault.Kind != driver.Unavailable) {
					t.Errorf("the error %v does not say Unavailable (seed %d)", err, seed)
				}
				there := func() bool {
					q, _ := store.Inspect(t.Context(), "x")
					return len(q.Claims) == 1
				}
				if there() != test.there {
					t.Errorf("it took effect: %v (seed %d)", there(), seed)
				}
				f.Settle()
				if there() != test.later {
					t.Errorf("in the end it took effect: %v (seed %d)", there(), seed)
				}
			})
		})
	}
}

// The trace that stands in Faulty's comment.
func TestFaultyLeavesNothingAfterALateJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const seed = 3
		store := memstore.New()
		f := NewFaulty(store, seed, Faults{Late: 1, Lag: time.Second})
		c := lease.Claim{ID: lease.NewID(), TTL: time.Minute}
		_, _ = f.Join(t.Context(), "x", c)
		f.Set(Faults{})
		if st, err := f.Join(t.Context(), "x", c); st.State != lease.Held {
			t.Fatalf("%v, error %v (seed %d)", st.State, err, seed)
		}
		if st, err := f.Leave(t.Context(), "x", c.ID, 0, lease.Seal{}); st.State != lease.Held || err != nil {
			t.Errorf("it left as %v, error %v (seed %d)", st.State, err, seed)
		}
		f.Settle()
		if q, _ := store.Inspect(t.Context(), "x"); len(q.Claims) != 0 {
			t.Errorf("the late join has the lock (seed %d)", seed)
		}
	})
}
