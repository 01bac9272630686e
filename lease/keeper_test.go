package lease

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

func at(d time.Duration) Instant { return Instant(time.Hour) + Instant(d) }

const tenSeconds = 10 * time.Second

func TestTrustCountsFromWhenTheCallWasSent(t *testing.T) {
	k := Keep(Terms{TTL: tenSeconds}, at(0), tenSeconds)
	end := at(tenSeconds - Drift(tenSeconds))
	if k.Until() != end {
		t.Errorf("trust ends after %v", k.Until().Sub(at(0)))
	}
	k.Sent(at(3 * time.Second))
	o := k.Renewed(at(8*time.Second), at(3*time.Second), tenSeconds) // a slow reply
	if want := end.Add(3 * time.Second); o.Until != want {
		t.Errorf("renewed by a call sent at 3s that was answered at 8s: trust ends at %v, want %v", o.Until.Sub(at(0)), want.Sub(at(0)))
	}
}

func TestDrift(t *testing.T) {
	for ttl, want := range map[time.Duration]time.Duration{
		10 * time.Second:      102 * time.Millisecond,
		10 * time.Millisecond: 2100 * time.Microsecond,
	} {
		if got := Drift(ttl); got != want {
			t.Errorf("the drift of %v is %v, want %v", ttl, got, want)
		}
	}
	k := Keep(Terms{TTL: tenSeconds, Drift: time.Second}, at(0), tenSeconds)
	if want := at(tenSeconds - Drift(tenSeconds) - time.Second); k.Until() != want {
		t.Errorf("with a drift of 1s more trust ends %v later than it should", k.Until().Sub(want))
	}
}

func TestWhyAHoldIsLost(t *testing.T) {
	down := errors.New("connection refused")
	terms := Terms{TTL: tenSeconds}
	tests := []struct {
		says  string
		terms Terms
		play  func(k *Keeper)
		at    time.Duration // ticked then
		want  string        // the loss in words; "" none
	}{
		{"nothing yet", terms, func(*Keeper) {}, 5 * time.Second, ""},
		{"not renewed", terms, func(*Keeper) {}, 9900 * time.Millisecond, "the lease ran out after 9.9s without a renewal"},
		{"no answer", terms, func(k *Keeper) {
			k.Failed(at(4*time.Second), at(3*time.Second), down)
			k.Failed(at(6*time.Second), at(5*time.Second), down)
		}, 9900 * time.Millisecond, "no renewal for 6.9s: connection refused"},
		{"no answer, and then one", terms, func(k *Keeper) {
			k.Failed(at(4*time.Second), at(3*time.Second), down)
			k.Renewed(at(6*time.Second), at(5*time.Second), tenSeconds)
		}, 14900 * time.Millisecond, "the lease ran out after 14.9s without a renewal"},
		{"an old failure comes after a new success", terms, func(k *Keeper) {
			k.Renewed(at(6*time.Second), at(5*time.Second), tenSeconds)
			k.Failed(at(7*time.Second), at(3*time.Second), down)
		}, 14900 * time.Millisecond, "the lease ran out after 14.9s without a renewal"},
		{"an old success comes after a new failure", terms, func(k *Keeper) {
			k.Renewed(at(2*time.Second), at(2*time.Second), tenSeconds)
			k.Failed(at(6*time.Second), at(5*time.Second), down)
			k.Renewed(at(7*time.Second), at(1*time.Second), tenSeconds)
		}, 11900 * time.Millisecond, "no renewal for 6.9s: connection refused"},
		{"the store says so", terms, func(k *Keeper) { k.Gone(at(3*time.Second), Loss{Why: Taken, By: "bob"}) },
			4 * time.Second, "taken by bob"},
		{"the store says so too late", terms, func(k *Keeper) { k.Gone(at(12*time.Second), Loss{Why: Taken, By: "bob"}) },
			12 * time.Second, "the lease ran out after 12s without a renewal"},
		{"an operator", terms, func(k *Keeper) {
			k.Gone(at(3*time.Second), Loss{Why: Broken, By: "ops\x1b[2J", Reason: "it\nhangs"})
		}, 4 * time.Second, `broken by ops\x1b[2J: it\nhangs`},
		{"held for too long", Terms{TTL: tenSeconds, MaxHold: 5 * time.Second}, func(*Keeper) {},
			5 * time.Second, "held for the longest time allowed, 5s"},
		{"held for too long, seen late, when the lease was over too", Terms{TTL: tenSeconds, MaxHold: 5 * time.Second}, func(*Keeper) {},
			time.Minute, "held for the longest time allowed, 5s"},
		{"the lease ended before the longest time, and that was seen late", Terms{TTL: tenSeconds, MaxHold: 20 * time.Second}, func(*Keeper) {},
			time.Minute, "the lease ran out after 1m0s without a renewal"},
		{"released in time", terms, func(k *Keeper) { k.Released() }, time.Minute, ""},
		{"released after the loss", terms, func(k *Keeper) { k.Gone(at(time.Second), Loss{Why: Vanished}); k.Released() },
			time.Minute, "the store does not have it any more (deleted, evicted, or lost in a fail-over)"},
	}
	for _, test := range tests {
		t.Run(test.says, func(t *testing.T) {
			k := Keep(test.terms, at(0), tenSeconds)
			test.play(k)
			got := ""
			if o := k.Tick(at(test.at)); o.Lost != nil {
				got = o.Lost.String()
			}
			if got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}

func TestAnOldAnswerChangesNoPlan(t *testing.T) {
	k := Keep(Terms{TTL: tenSeconds}, at(0), tenSeconds)
	planned := k.Renewed(at(6*time.Second), at(6*time.Second), tenSeconds)
	if after := k.Renewed(at(7*time.Second), at(3*time.Second), tenSeconds); after != planned {
		t.Errorf("the plan was %+v, after an answer out of order %+v", planned, after)
	}
}

func TestWhenAGrantIsEnough(t *testing.T) {
	tests := []struct {
		says   string
		terms  Terms
		lease  time.Duration
		passed time.Duration
		want   bool
	}{
		{"fresh", Terms{TTL: time.Minute}, 5 * time.Second, 0, true},
		{"half of it is over", Terms{TTL: time.Minute}, 5 * time.Second, 2500 * time.Millisecond, false},
		{"nearly half of it is over", Terms{TTL: time.Minute}, 5 * time.Second, 2400 * time.Millisecond, true},
		{"nothing will make it longer", Terms{TTL: time.Minute, NoRenew: true}, 5 * time.Second, 0, false},
		{"the whole TTL, which nothing will make longer", Terms{TTL: time.Minute, NoRenew: true}, time.Minute, 0, true},
		{"the whole TTL, nearly over", Terms{TTL: time.Minute}, time.Minute, 59 * time.Second, true},
		{"the whole TTL, over", Terms{TTL: time.Minute}, time.Minute, time.Minute, false},
		{"less than the margin is left", Terms{TTL: time.Minute, StopMargin: 3 * time.Second}, 5 * time.Second, 2 * time.Second, false},
		{"the margin is left and a little more", Terms{TTL: time.Minute, StopMargin: 2 * time.Second}, 5 * time.Second, 2 * time.Second, true},
	}
	for _, test := range tests {
		t.Run(test.says, func(t *testing.T) {
			if got := test.terms.Sufficient(at(0), test.lease, at(test.passed)); got != test.want {
				t.Errorf("sufficient: %v, want %v", got, test.want)
			}
		})
	}
}

func TestRenewalsAreTriedAgainUntilTrustEnds(t *testing.T) {
	for _, ttl := range []time.Duration{100 * time.Millisecond, time.Second, 30 * time.Second, 10 * time.Hour} {
		k := Keep(Terms{TTL: ttl}, 0, ttl)
		o := k.Tick(0)
		tries := 0
		for o.Lost == nil {
			if o.Renew == Never || o.Renew > o.Stop {
				o = k.Tick(o.Stop)
				continue
			}
			tries++
			sent := o.Renew
			k.Sent(sent)
			o = k.Failed(sent.Add(AttemptTimeout(ttl)), sent, errors.New("no"))
		}
		if tries < 2 || o.Lost.Why != Unreachable {
			t.Errorf("TTL %v: %d renewals were tried before it was lost: %v", ttl, tries, o.Lost)
		}
	}
}

// The prose: trust counts from the last acknowledged call's sending; it only grows; the
// holder is told StopMargin before it ends, once, and for good; after that, and after the
// release, nothing is renewed.
func TestKeeperKeepsItsWord(t *testing.T) {
	for range 1000 {
		keepAndCheck(t, rand.Uint64())
	}
}

func keepAndCheck(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 0))
	var log []string
	failf := func(format string, args ...any) {
		t.Helper()
		t.Fatalf("%s (seed %d)\n%s", fmt.Sprintf(format, args...), seed, strings.Join(log, "\n"))
	}
	terms := Terms{TTL: time.Duration(1+r.IntN(30)) * time.Second, NoRenew: r.IntN(5) == 0}
	if r.IntN(3) == 0 {
		terms.StopMargin = time.Duration(r.Int64N(int64(terms.TTL / 2)))
	}
	if r.IntN(3) == 0 {
		terms.Drift = time.Duration(r.IntN(200)) * time.Millisecond
	}
	if r.IntN(3) == 0 {
		terms.MaxHold = time.Duration(1+r.IntN(60)) * time.Second
	}
	bought := func(sent Instant, lease time.Duration) Instant {
		return sent + Instant(lease-lease/100-2*time.Millisecond-terms.Drift)
	}
	// The clock's origin is anywhere: in a bubble of testing/synctest all instants are negative.
	now := at(time.Duration(r.IntN(1000)) * time.Millisecond)
	if r.IntN(2) == 0 {
		now -= Instant(30 * 365 * 24 * time.Hour)
	}
	start := now
	k := Keep(terms, now, terms.TTL)
	trust := bought(now, terms.TTL)
	var flying []Instant // sent, not answered
	var lost *Loss
	var released bool
	failed, lastAcked := Never, now // the first failure since the last acknowledged call
	for range 60 {
		now = now.Add(time.Duration(r.Int64N(int64(terms.TTL / 4))))
		overBefore := lost != nil || released
		due := min(trust.Add(-terms.StopMargin), func() Instant {
			if terms.MaxHold == 0 {
				return Never
			}
			return start.Add(terms.MaxHold)
		}())
		var o Order
		var move string
		pick := func() Instant {
			i := r.IntN(len(flying)) // also out of order
			sent := flying[i]
			flying = append(flying[:i], flying[i+1:]...)
			return sent
		}
		var gone *Loss
		switch dice := r.IntN(20); {
		case dice < 6:
			flying = append(flying, now)
			move, o = "sent", k.Sent(now)
		case dice < 11 && len(flying) > 0:
			sent := pick()
			lease := terms.TTL
			if r.IntN(4) == 0 {
				lease /= 2
			}
			move, o = fmt.Sprintf("renewed by the call of %v for %v", sent.Sub(start), lease), k.Renewed(now, sent, lease)
			if !overBefore && now < due {
				trust = max(trust, bought(sent, lease))
				if sent >= lastAcked {
					lastAcked, failed = sent, Never
				}
			}
		case dice < 15 && len(flying) > 0:
			sent := pick()
			move, o = fmt.Sprintf("failed the call of %v", sent.Sub(start)), k.Failed(now, sent, errors.New("down"))
			if failed == Never && sent >= lastAcked {
				failed = sent
			}
		case dice == 15 && r.IntN(4) == 0:
			gone = &Loss{Why: Taken, By: "bob"}
			move, o = "gone", k.Gone(now, *gone)
		case dice == 16 && r.IntN(4) == 0:
			move = "released"
			k.Released()
			o = k.Tick(now)
			if !overBefore {
				released = true
			}
		default:
			move, o = "tick", k.Tick(now)
		}
		log = append(log, fmt.Sprintf("%v %s: renew %v stop %v until %v lost %v", now.Sub(start), move,
			o.Renew.Sub(start), o.Stop.Sub(start), o.Until.Sub(start), o.Lost))

		if o.Until > trust {
			failf("trust until %v, bought was until %v", o.Until.Sub(start), trust.Sub(start))
		}
		if !overBefore && !released && o.Lost == nil && o.Until != trust {
			failf("trust until %v, bought was until %v", o.Until.Sub(start), trust.Sub(start))
		}
		if lost != nil && o.Lost != lost {
			failf("the loss was %v and is %v", lost, o.Lost)
		}
		if released && lost == nil && o.Lost != nil {
			failf("lost after the release: %v", o.Lost)
		}
		if !overBefore && !released {
			mustBeLost := now >= due || gone != nil
			if (o.Lost != nil) != mustBeLost {
				failf("lost %v, want that: %v (due %v)", o.Lost, mustBeLost, due.Sub(start))
			}
			if o.Lost != nil {
				want := Expired
				switch {
				case now < due:
					want = Taken
				case terms.MaxHold != 0 && due == start.Add(terms.MaxHold):
					want = HeldTooLong
				case failed != Never:
					want = Unreachable
				}
				if o.Lost.Why != want || o.Lost.At != now {
					failf("lost because %v at %v, want %v", o.Lost.Why, o.Lost.At.Sub(start), want)
				}
				if want == Unreachable && o.Lost.After != now.Sub(failed) {
					failf("nothing heard for %v, want %v", o.Lost.After, now.Sub(failed))
				}
			}
		}
		if (o.Lost != nil || released || terms.NoRenew) && o.Renew != Never {
			failf("a renewal is ordered")
		}
		if o.Lost != nil || released {
			if o.Stop != Never {
				failf("a stop is ordered after the end")
			}
		} else if o.Stop > due && o.Stop > trust.Add(-terms.StopMargin) {
			failf("the stop is ordered too late")
		}
		if move == "sent" && o.Renew != Never {
			failf("a renewal is ordered while one is on its way")
		}
		lost = o.Lost
	}
}
