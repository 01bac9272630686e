package verify

import (
	"testing"
	"time"
)

func TestJudge(t *testing.T) {
	h := func(at int, fence uint64, process int) Stamp {
		return Stamp{Kind: Holds, At: time.Duration(at) * time.Millisecond, Name: "n", Fence: fence, Process: process}
	}
	w := func(at int) Stamp { return Stamp{Kind: Waits, At: time.Duration(at) * time.Millisecond, Name: "n"} }
	waits := func(from, to int) (list []Stamp) {
		for at := from; at <= to; at += 500 {
			list = append(list, w(at))
		}
		return list
	}
	for _, tt := range []struct {
		name                    string
		stamps                  []Stamp
		overlaps, stuck, fences int
	}{
		{"one after the other", []Stamp{h(0, 1, 1), h(5, 1, 1), h(6, 2, 2), h(9, 2, 2)}, 0, 0, 0},
		{"one between two stamps of another", []Stamp{h(0, 1, 1), h(5, 2, 2), h(6, 1, 1)}, 1, 0, 0},
		{"inside a long one, after a short one", []Stamp{h(0, 1, 1), h(1, 2, 2), h(2, 2, 2), h(3, 3, 3), h(9, 1, 1)}, 2, 0, 0},
		{"an overlap in another name's time", []Stamp{h(0, 1, 1), {Kind: Holds, At: 1, Name: "m", Fence: 1, Process: 2}, h(2, 1, 1)}, 0, 0, 0},
		{"a fence that falls", []Stamp{h(0, 2, 1), h(1, 1, 2)}, 0, 0, 1},
		{"one fence for two", []Stamp{h(0, 2, 1), h(1, 2, 2)}, 0, 0, 1},
		{"a stopped holder says nothing afterwards", []Stamp{h(0, 1, 1), h(5000, 2, 2)}, 0, 0, 0},
		{"waited for too long", waits(0, 6000), 0, 1, 0},
		{"waited for while somebody holds", append(waits(0, 3000), append([]Stamp{h(3100, 1, 1)}, waits(3200, 6000)...)...), 0, 0, 0},
		{"nobody ran for a while", append(waits(0, 3000), waits(9000, 12000)...), 0, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := Judge(tt.stamps, 4*time.Second)
			if len(v.Overlaps) != tt.overlaps || len(v.Stuck) != tt.stuck || len(v.Fences) != tt.fences {
				t.Errorf("%v", v)
			}
		})
	}
}
