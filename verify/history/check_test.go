//go:build unix

package history

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

const (
	ms    = Instant(time.Millisecond)
	limit = 2 * time.Second
)

// told writes a history by hand. Times are in milliseconds.
type told struct {
	records []Record
	calls   uint64
}

func (h *told) add(k Kind, process, name string, call, fence uint64, at Instant) {
	h.records = append(h.records, Record{k, process, name, call, fence, at * ms, ""})
}

func (h *told) want(process, name string, at Instant) uint64 {
	h.calls++
	h.add(Want, process, name, h.calls, 0, at)
	return h.calls
}

// hold is a call that gets the name at once, with a stamp at each time.
func (h *told) hold(process, name string, fence uint64, stamps ...Instant) {
	call := h.want(process, name, stamps[0]-1)
	for _, at := range stamps {
		h.add(Hold, process, name, call, fence, at)
	}
	h.add(Ended, process, name, call, 0, stamps[len(stamps)-1]+2)
}

func (h *told) event(k Kind, process string, at Instant) { h.add(k, process, "", 0, 0, at) }

func (h *told) seen(process, name string, at Instant) { h.add(Seen, process, name, 0, 0, at) }

func TestCheck(t *testing.T) {
	for _, tt := range []struct {
		name string
		tell func(h *told)
		want string // kinds of the faults
	}{
		{"nothing happened", func(h *told) {}, ""},
		{"one after the other", func(h *told) {
			h.hold("a", "x", 1, 10, 20, 30)
			h.hold("b", "x", 2, 40, 50)
		}, ""},
		{"two names at one time", func(h *told) {
			h.hold("a", "x", 1, 10, 50)
			h.hold("b", "y", 1, 20, 40)
		}, ""},
		{"the next one begins with the last stamp of the one before", func(h *told) {
			h.hold("a", "x", 1, 10, 30)
			h.hold("b", "x", 2, 30, 40)
		}, ""},
		{"lone stamps one after the other", func(h *told) {
			h.hold("a", "x", 1, 10)
			h.hold("b", "x", 2, 10)
			h.hold("c", "x", 3, 11)
		}, ""},
		{"A, B, A", func(h *told) {
			h.hold("a", "x", 1, 10, 30)
			h.hold("b", "x", 2, 20)
		}, "overlap"},
		{"A, B, A, B", func(h *told) {
			h.hold("a", "x", 1, 10, 30)
			h.hold("b", "x", 2, 20, 40)
		}, "overlap"},
		{"B begins and ends while A is stopped between two stamps, and A goes on", func(h *told) {
			h.hold("a", "x", 1, 10, 20, 900)
			h.event(Stopped, "a", 25)
			h.event(Resumed, "a", 890)
			h.hold("b", "x", 2, 500, 510)
		}, "overlap"},
		{"B has it while A is stopped, and A does not believe any more", func(h *told) {
			h.hold("a", "x", 1, 10, 20)
			h.event(Stopped, "a", 25)
			h.event(Resumed, "a", 890)
			h.hold("b", "x", 2, 500, 510)
		}, ""},
		{"one process twice", func(h *told) {
			h.hold("a", "x", 1, 10, 30)
			h.hold("a", "x", 2, 20)
		}, "overlap"},
		{"a long one over two short ones", func(h *told) {
			h.hold("a", "x", 1, 10, 90)
			h.hold("b", "x", 2, 20, 30)
			h.hold("c", "x", 3, 40, 50)
		}, "overlap overlap"},
		{"three at once", func(h *told) {
			h.hold("a", "x", 1, 10, 50)
			h.hold("b", "x", 2, 20, 60)
			h.hold("c", "x", 3, 30, 70)
		}, "overlap overlap overlap"},
		{"a fence again", func(h *told) {
			h.hold("a", "x", 7, 10)
			h.hold("b", "x", 7, 20)
		}, "fence"},
		{"a fence below the one before the last", func(h *told) {
			h.hold("a", "x", 7, 10)
			h.hold("b", "x", 9, 20)
			h.hold("c", "x", 8, 30)
		}, "fence"},
		{"one fence for two of one process at once", func(h *told) {
			h.hold("a", "x", 7, 10, 30)
			h.hold("a", "x", 7, 20, 40)
		}, "overlap fence"},
		{"nobody gets a free name", func(h *told) {
			h.want("a", "x", 0)
		}, "stuck"},
		{"somebody gets it before the limit, time and again", func(h *told) {
			h.want("a", "x", 0)
			for i := range Instant(10) {
				h.hold("b", "x", uint64(i+1), 1000*i+900)
			}
		}, ""},
		{"a call that gave up in time", func(h *told) {
			call := h.want("a", "x", 0)
			h.add(Gave, "a", "x", call, 0, 1900)
		}, ""},
		{"nobody waits", func(h *told) {
			h.hold("a", "x", 1, 10)
			h.hold("b", "x", 2, 9000)
		}, ""},
		{"a short hold long ago, and a waiter", func(h *told) {
			h.hold("a", "x", 1, 10)
			h.want("b", "x", 500)
			h.hold("a", "x", 2, 5000)
		}, "stuck stuck"},
		{"who waits is stopped", func(h *told) {
			call := h.want("a", "x", 0)
			h.event(Stopped, "a", 1000)
			h.event(Resumed, "a", 8500)
			h.add(Hold, "a", "x", call, 1, 9990)
		}, ""},
		{"who waits was stopped and goes on for long", func(h *told) {
			call := h.want("a", "x", 0)
			h.event(Stopped, "a", 1000)
			h.event(Resumed, "a", 7000)
			h.add(Hold, "a", "x", call, 1, 9990)
		}, "stuck"},
		{"who waits is killed", func(h *told) {
			h.want("a", "x", 0)
			h.event(Killed, "a", 1000)
		}, ""},
		{"the lock goes to frozen processes, one after the other", func(h *told) {
			call := h.want("a", "x", 0)
			h.event(Stopped, "b", 10)
			h.event(Killed, "c", 10)
			h.event(Stopped, "d", 3600) // it is given the lock while it runs, and says nothing
			for i, frozen := range []string{"b", "c", "d"} {
				h.seen(frozen, "x", Instant(20+i*1750))
			}
			h.add(Hold, "a", "x", call, 1, 5000)
			h.add(Hold, "a", "x", call, 1, 9990)
		}, ""},
		{"the lock goes to those who run and do not take it", func(h *told) {
			h.want("a", "x", 0)
			for i := range Instant(9) {
				h.seen("b", "x", 1000*i)
			}
		}, "stuck"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := &told{}
			for _, p := range []string{"a", "b", "c", "d"} {
				h.event(Started, p, 0)
			}
			tt.tell(h)
			h.event(Over, "", 10000)
			v, err := Check(h.records, limit)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range v.Faults {
				got = append(got, string(f.Kind))
			}
			if got := strings.Join(got, " "); got != tt.want {
				t.Errorf("found %q, want %q:\n%v", got, tt.want, v.Faults)
			}
		})
	}
}

func TestWhatIsNoHistory(t *testing.T) {
	start := func(h *told) { h.event(Started, "a", 0) }
	for name, tell := range map[string]func(h *told){
		"without an end":            nil,
		"a stamp without a call":    func(h *told) { h.add(Hold, "a", "x", 1, 1, 1) },
		"a stamp for another name":  func(h *told) { h.add(Hold, "a", "y", h.want("a", "x", 0), 1, 1) },
		"two calls with one number": func(h *told) { h.want("a", "x", 0); h.calls--; h.want("a", "x", 1) },
		"a fence that changes": func(h *told) {
			c := h.want("a", "x", 0)
			h.add(Hold, "a", "x", c, 1, 1)
			h.add(Hold, "a", "x", c, 2, 2)
		},
		"a process stopped, not begun":  func(h *told) { h.event(Stopped, "b", 1) },
		"a process that is begun twice": func(h *told) { h.event(Started, "a", 1) },
		"a kind that is unknown":        func(h *told) { h.add("hm", "a", "x", h.want("a", "x", 0), 0, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			h := &told{}
			start(h)
			if tell != nil {
				tell(h)
			}
			if name != "without an end" {
				h.event(Over, "", 10)
			}
			if v, err := Check(h.records, limit); err == nil {
				t.Errorf("taken for a history: %+v", v)
			}
		})
	}
}

// The checker says what a slow one says that looks at every instant for every two holds.
func TestCheckAgreesWithTheSlowWay(t *testing.T) {
	type hold struct {
		from, to Instant
		fence    uint64
	}
	together := func(a, b hold) bool {
		for at := a.from; at <= a.to; at++ {
			// In the middle of one at least: where they only touch, one may follow the other.
			if b.from <= at && at <= b.to && (a.from < at && at < a.to || b.from < at && at < b.to) {
				return true
			}
		}
		return false
	}
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		h := &told{}
		var holds []hold
		for _, from := range random.Perm(200)[:12] { // no two begin at one instant
			to, fence := Instant(from+random.IntN(30)), random.Uint64N(50)
			h.hold("a", "x", fence, Instant(from), to)
			holds = append(holds, hold{Instant(from), to, fence})
		}
		h.event(Started, "a", 0)
		h.event(Over, "", 500)
		overlap, fence := 0, 0
		for i, b := range holds {
			below := false
			for j, a := range holds {
				if i < j && together(a, b) {
					overlap++
				}
				below = below || a.from < b.from && a.fence >= b.fence
			}
			if below {
				fence++
			}
		}
		v, err := Check(h.records, limit)
		if err != nil {
			t.Fatal(err)
		}
		if v.Count(Overlap) != overlap || v.Count(Fence) != fence {
			t.Fatalf("seed %d: %s; the slow way finds %d overlaps and %d fences", seed, v.Summary(), overlap, fence)
		}
	}
}

func TestALogIsReadAsItWasWritten(t *testing.T) {
	dir := t.TempDir()
	var want []Record
	for _, process := range []string{"1.1", "2.1"} {
		log, err := OpenLog(dir, process)
		if err != nil {
			t.Fatal(err)
		}
		for i := range uint64(100) {
			r := Record{Hold, process, "orders/\t4\n2", i, 1<<53 - 1, Now(), `"quoted" ` + fmt.Sprint(i)}
			log.Add(r)
			want = append(want, r)
		}
		if process == "2.1" { // a kill in the middle of a write
			if _, err := log.file.WriteString("hold\t2.1\t\"x\"\t1"); err != nil {
				t.Fatal(err)
			}
		}
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != len(want) {
		t.Fatalf("%d records read, %d written", len(got), len(want))
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("read %+v, written %+v", got[i], want[i])
		}
	}
	if _, err := OpenLog(dir, "1.1"); err == nil {
		t.Error("a log was opened twice")
	}
}
