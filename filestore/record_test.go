package filestore

import (
	"bytes"
	"cmp"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/lease"
)

func summed(now int64, body string) string { return string(headOf(now, []byte(body))) + body }

func alive(string) bool { return false }

// shuffle makes n random moves on a record.
func shuffle(r *record, rng *rand.Rand, n int) {
	ids := make([]string, 6)
	for i := range ids {
		ids[i] = strings.Repeat(string(rune('a'+i)), 22)
	}
	now := time.UnixMicro(1_764_551_336_000_000)
	r.boot, r.anchor = "b", now.Add(-time.Hour)
	for range n {
		now = now.Add(time.Duration(rng.IntN(20_000)) * time.Millisecond)
		id := ids[rng.IntN(len(ids))]
		switch rng.IntN(4) {
		case 0, 1:
			c := lease.Claim{ID: id, Mode: lease.Mode(rng.IntN(2)), TTL: time.Minute, Room: rng.IntN(3), Owner: lease.Owner{Name: "a b\xff", PID: 7}}
			if st, err := r.queue.Join(c, now); err == nil && st.State != lease.Left {
				r.bind(id, ids[rng.IntN(3)], alive)
			}
		case 2:
			r.queue.Renew(id, 0, time.Minute, 0, now)
		case 3:
			s := lease.Seal{}
			if rng.IntN(2) == 0 {
				s = lease.Seal{For: time.Minute, Value: "v\x00\xff", Victim: cmp.Or(map[bool]string{true: id}[rng.IntN(2) == 0]), By: "x", Reason: "y"}
			}
			r.leave(id, 0, s, now)
		}
	}
	r.settle(alive, now)
}

// What is read back behaves like what was written: the same state, and the same answers.
func TestRecordsComeBackAsTheyWere(t *testing.T) {
	for seed := range uint64(500) {
		rng := rand.New(rand.NewPCG(seed, 1))
		r := newRecord("orders/42", 5)
		shuffle(r, rng, 1+rng.IntN(30))
		head, body, err := r.text()
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		back, body2, err := parse("orders/42", append(head, body...))
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, body)
		}
		if !bytes.Equal(body, body2) {
			t.Fatalf("seed %d: body is %s, was %s", seed, body2, body)
		}
		_, again, _ := back.text()
		if !bytes.Equal(body, again) {
			t.Fatalf("seed %d: written again it is\n%s, was\n%s", seed, again, body)
		}
		now := r.queue.Now
		for range 20 {
			now = now.Add(time.Duration(rng.IntN(20_000)) * time.Millisecond)
			id := strings.Repeat(string(rune('a'+rng.IntN(6))), 22)
			c := lease.Claim{ID: id, TTL: time.Minute}
			want, err1 := r.queue.Join(c, now)
			got, err2 := back.queue.Join(c, now)
			if !reflect.DeepEqual(got, want) || (err1 == nil) != (err2 == nil) {
				t.Fatalf("seed %d: join answers %+v, %v; before it was written %+v, %v", seed, got, err2, want, err1)
			}
		}
	}
}

func TestClockOfANameNeverStandsNorStepsBack(t *testing.T) {
	up, wall := time.Hour, time.UnixMicro(1_764_551_336_000_000)
	h := host{boot: "one", uptime: func() time.Duration { return up }, wall: func() time.Time { return wall }}
	r := newRecord("n", 0)
	at := func() time.Time {
		now := r.clock(h)
		r.queue.Advance(now)
		return now
	}
	start := at()
	if !start.Equal(wall) {
		t.Fatalf("it begins at %v, the wall clock at %v", start, wall)
	}
	wall = wall.Add(-24 * time.Hour)
	up += time.Second
	if got := at(); !got.Equal(start.Add(time.Second)) {
		t.Errorf("after a second in which the wall clock was set back: %v", got.Sub(start))
	}
	h.boot, up = "two", time.Minute // a reboot, the wall clock still behind
	if got := at(); got.Before(start.Add(time.Second)) {
		t.Errorf("after the reboot it went back by %v", start.Sub(got))
	}
	before := at()
	up += time.Second
	if got := at(); !got.Equal(before.Add(time.Second)) {
		t.Errorf("in the second boot a second is %v", got.Sub(before))
	}
	wall = start.Add(time.Hour)
	h.boot, up = "three", 0
	if got := at(); !got.Equal(wall) {
		t.Errorf("after a reboot it says %v, the wall clock %v", got, wall)
	}
}

// Whatever one byte becomes: the file is refused, and what was held is never free.
func TestDamagedByteIsNoticed(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 4))
	r := newRecord("n", 0)
	shuffle(r, rng, 10)
	c := lease.Claim{ID: lease.NewID(), TTL: time.Minute, Owner: lease.Owner{Name: "x"}}
	if st, err := r.queue.Join(c, r.queue.Now); err != nil {
		t.Fatal(st, err)
	}
	r.bound[c.ID] = nil // detached
	head, body, err := r.text()
	if err != nil {
		t.Fatal(err)
	}
	text := append(head, body...)
	for i := range text {
		for range 3 {
			damaged := bytes.Clone(text)
			damaged[i] ^= byte(1 + rng.IntN(255))
			if _, _, err := parse("n", damaged); err == nil {
				t.Fatalf("seed %d: taken with %q for %q at byte %d", seed, damaged[i], text[i], i)
			}
		}
		if _, _, err := parse("n", text[:i]); err == nil {
			t.Fatalf("seed %d: taken when cut at byte %d", seed, i)
		}
	}
}

func FuzzParse(f *testing.F) {
	for seed := range uint64(20) {
		r := newRecord("n", 0)
		shuffle(r, rand.New(rand.NewPCG(seed, 1)), 10)
		_, body, _ := r.text()
		f.Add(r.queue.Now.UnixMicro(), body)
	}
	f.Add(int64(5), []byte("{}\n"))
	f.Add(int64(5), []byte("{\"name\":\"n\",\"left\":{\"\":9223372036854775807}}\n"))
	f.Fuzz(func(t *testing.T, now int64, body []byte) {
		_, _, _ = parse("n", body)
		r, _, err := parse("n", append(headOf(now, body), body...)) // past the checksum
		if err != nil {
			return
		}
		// What was accepted can be used and written, and is then accepted again.
		r.settle(alive, r.queue.Now.Add(time.Second))
		head, body, err := r.text()
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := parse("n", append(head, body...)); err != nil {
			t.Fatalf("what it wrote itself: %v\n%s%s", err, head, body)
		}
	})
}

func FuzzFileName(f *testing.F) {
	for _, name := range []string{"orders/42", "Orders/42", "..", ".", "a%2f", "a/b", "a~b", "ä", "a.", "con", strings.Repeat("Ä", 100)} {
		f.Add(name, name+"x")
		f.Add(name, strings.ToUpper(name))
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		if lease.CheckName(a) != nil || lease.CheckName(b) != nil {
			return
		}
		fa, fb := fileName(a), fileName(b)
		if strings.EqualFold(fa, fb) != (a == b) {
			t.Errorf("%q is in %q, %q in %q", a, fa, b, fb)
		}
		if len(fa) > 255 || strings.ContainsAny(fa, "/\x00") || fa == "." || fa == ".." || fa[0] == mark {
			t.Errorf("%q is in %q", a, fa)
		}
		if !mayBegin(fa, a[:len(a)/2]) {
			t.Errorf("%q in %q would not be found by a prefix of it", a, fa)
		}
	})
}
