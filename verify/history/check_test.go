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

func (h *told) add(k Kind, process, name string, call, fence uint64, before, after Instant, note string) {
	h.records = append(h.records, Record{k, process, name, call, fence, before * ms, after * ms, note})
}

func (h *told) want(process, name string, at Instant) uint64 {
	h.calls++
	h.add(Want, process, name, h.calls, 0, at, at, "")
	return h.calls
}

// hold is a call that gets the name at once, with a stamp at each time.
func (h *told) hold(process, name string, fence uint64, stamps ...Instant) {
	call := h.want(process, name, stamps[0]-1)
	for _, at := range stamps {
		h.add(Hold, process, name, call, fence, at, at+1, "")
	}
	h.add(Ended, process, name, call, 0, stamps[len(stamps)-1]+2, stamps[len(stamps)-1]+2, "released")
}

func (h *told) event(k Kind, process string, at Instant) { h.add(k, process, "", 0, 0, at, at, "") }

func (h *told) seen(process, name string, at Instant) { h.add(Seen, process, name, 0, 0, at, at, "") }

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
		{"the next one begins while the last stamp of the one before is taken", func(h *told) {
			h.hold("a", "x", 1, 10, 30)
			h.hold("b", "x", 2, 30, 40)
		}, ""},
		{"a lone stamp at the edge", func(h *told) {
			h.hold("a", "x", 1, 10, 30)
			h.hold("b", "x", 2, 31)
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
		{"fences of two that may have begun in either order", func(h *told) {
			a, b := h.want("a", "x", 1), h.want("b", "x", 1)
			h.add(Hold, "a", "x", a, 8, 10, 30, "")
			h.add(Hold, "b", "x", b, 7, 20, 40, "")
		}, ""},
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
			h.add(Gave, "a", "x", call, 0, 1900, 1900, "deadline")
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
			h.add(Hold, "a", "x", call, 1, 9990, 9999, "")
		}, ""},
		{"who waits was stopped and goes on for long", func(h *told) {
			call := h.want("a", "x", 0)
			h.event(Stopped, "a", 1000)
			h.event(Resumed, "a", 7000)
			h.add(Hold, "a", "x", call, 1, 9990, 9999, "")
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
			h.add(Hold, "a", "x", call, 1, 5000, 5001, "")
			h.add(Hold, "a", "x", call, 1, 9990, 9991, "")
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
		"a stamp without a call":    func(h *told) { h.add(Hold, "a", "x", 1, 1, 1, 1, "") },
		"a stamp for another name":  func(h *told) { h.add(Hold, "a", "y", h.want("a", "x", 0), 1, 1, 1, "") },
		"two calls with one number": func(h *told) { h.want("a", "x", 0); h.calls--; h.want("a", "x", 1) },
		"a fence that changes": func(h *told) {
			c := h.want("a", "x", 0)
			h.add(Hold, "a", "x", c, 1, 1, 1, "")
			h.add(Hold, "a", "x", c, 2, 2, 2, "")
		},
		"time that runs backwards":      func(h *told) { h.add(Want, "a", "x", 1, 0, 2, 1, "") },
		"a process stopped, not begun":  func(h *told) { h.event(Stopped, "b", 1) },
		"a process that is begun twice": func(h *told) { h.event(Started, "a", 1) },
		"a kind that is unknown":        func(h *told) { h.add("hm", "a", "x", h.want("a", "x", 0), 0, 1, 1, "") },
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

// The checker says what a slow one says that tries, for each two holds, all instants at
// which they can have looked.
func TestCheckAgreesWithTheSlowWay(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		h := &told{}
		var holds []possible
		for range 12 {
			from := Instant(random.IntN(200))
			to, fence := from+Instant(random.IntN(30)), random.Uint64N(50)
			h.hold("a", "x", fence, from, to)
			holds = append(holds, possible{from, to, fence})
		}
		h.event(Started, "a", 0)
		h.event(Over, "", 500)
		overlap, fence := 0, 0
		for i, b := range holds {
			below := false
			for _, a := range holds[:i] {
				if a.surelyWith(b) {
					overlap++
				}
			}
			for _, a := range holds {
				below = below || a.from+1 < b.from && a.fence >= b.fence
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

// possible is a hold with a stamp at each end that takes one unit of time.
type possible struct {
	from, to Instant
	fence    uint64
}

func (a possible) surelyWith(b possible) bool {
	for x := range a.spans {
		for y := range b.spans {
			if x.from >= y.to || y.from >= x.to {
				return false
			}
		}
	}
	return true
}

// spans are the times for which it can have been trusted at least.
func (a possible) spans(yield func(span) bool) {
	for from := range Instant(2) {
		for to := range Instant(2) {
			if a.from == a.to && from != to {
				continue // one stamp, one instant
			}
			if !yield(span{a.from + from, a.to + to}) {
				return
			}
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
			r := Record{Hold, process, "orders/\t4\n2", i, 1<<53 - 1, Now(), Now(), `"quoted" ` + fmt.Sprint(i)}
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
