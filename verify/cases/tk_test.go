//go:build unix

package cases

import (
	"cmp"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
)

func TestTK01TheTokenIsTheSameForEveryProtocol(t *testing.T) {
	t.Parallel()
	p := onRedis(t)
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprint("RESP", protocol), func(t *testing.T) {
			t.Parallel()
			name := fmt.Sprint("tk01-", protocol)
			store := redisAt(t, &redis.Options{Addr: p.server.Addr(), Protocol: protocol})
			l := locker(t, store, redlatch.Config{Owner: redlatch.Owner{Name: "é\x00\xff\r\n\"'"}, OnUnavailable: redlatch.Wait})
			held := take(t, l, name, redlatch.Options{TTL: long})
			if v := p.value(t, name); v != held.Token() {
				t.Errorf("the key has %q, the holder %q", v, held.Token())
			}
			q, err := l.Inspect(t.Context(), name)
			if err != nil || len(q.Holders()) != 1 || q.Holders()[0].ID != claimID(held) {
				t.Errorf("inspect: %+v, %v", q, err)
			}
			if err := held.Renew(t.Context(), 0); err != nil {
				t.Errorf("renew: %v", err)
			}
			// A wait, a hand-over and its message go the same way.
			got := lined(t, l, name, 1, redlatch.Options{TTL: long}, nil)
			giveBack(t, held)
			ends(t, patience, "the waiter", got)
			free(t, l, name)
		})
	}
}

func TestTK01OddTokensAreRefusedUpFront(t *testing.T) {
	t.Parallel()
	p := onRedis(t)
	l := p.process(t, "a")
	held := take(t, l, "tk01", redlatch.Options{TTL: long})
	good := held.Token()
	odd := []string{
		"", "x", "\x00", "\xff", good + "\x00", good + "\r\n", good + "\xff", " " + good, good + " ", `"` + good + `"`,
		good[:21] + "\x00" + good[22:], strings.Repeat("a", 1<<20), good[:22], good[:24],
	}
	m := watch(t, p.server)
	for _, token := range odd {
		mustBe(t, l.Release(t.Context(), "tk01-odd", token), redlatch.ErrInvalid)
		_, err := l.Resume(t.Context(), "tk01-odd", token, redlatch.Options{})
		mustBe(t, err, redlatch.ErrInvalid)
	}
	if sent := m.seen("tk01-odd"); len(sent) > 0 {
		t.Errorf("sent: %.200q", sent)
	}
	giveBack(t, held)
}

func TestTK02AForeignValueIsSomebodyElsesLock(t *testing.T) {
	t.Parallel()
	p := onRedis(t)
	l := p.process(t, "a")
	for i, value := range []string{
		"\xec\xec", "42", `{"owner":"x","pid":7}`, "", "\x1b[2J", "x.1.2.", ".", "....", strings.Repeat("v", 1<<16),
		"2f1c7c3e-6c1d-4a53-9a3f-6a5a7a1f0b2c", forged() + "\x00", strings.ToUpper(forged()[:22]), "Infinity", "-1",
	} {
		name := fmt.Sprint("tk02-", i)
		p.do(t, "SET", "lock:"+name, value, "PX", "60000")
		_, err := l.TryLock(t.Context(), name, redlatch.Options{})
		mustBe(t, err, redlatch.ErrHeld)
		for _, c := range []byte(err.Error()) {
			if c < ' ' || c == 0x7f || c >= 0x80 {
				t.Errorf("%q: the message has %q in it: %q", value, c, err)
				break
			}
		}
		if len(value) > 8 && strings.Contains(err.Error(), value) {
			t.Errorf("the message has the whole of a token that is not ours: %v", err)
		}
		_, err = l.Lock(t.Context(), name, redlatch.Options{MaxAttempts: 1})
		mustBe(t, err, redlatch.ErrHeld)
		q, err := l.Inspect(t.Context(), name)
		if err != nil || len(q.Holders()) != 1 || q.Holders()[0].ID != "" || q.Holders()[0].Foreign != cmp.Or(value, `""`) {
			t.Errorf("%.80q: inspect: %.200v, %v", value, q, err)
		}
		mustBe(t, l.Release(t.Context(), name, forged()), redlatch.ErrHeld)
		_, err = l.Break(t.Context(), name, redlatch.BreakOptions{Now: true})
		mustBe(t, err, redlatch.ErrConflict)
		if v, exists := p.value(t, name), p.do(t, "EXISTS", "lock:"+name); v != value || exists != int64(1) {
			t.Errorf("%.80q is %.80q now", value, v)
		}
		// It is free when they say so.
		p.do(t, "DEL", "lock:"+name)
		giveBack(t, take(t, l, name, redlatch.Options{}))
	}
}

// drawn is how many IDs each process draws.
const drawn = 20000

func TestTK04ProcessesThatAreAlikeDrawDifferentIDs(t *testing.T) {
	t.Parallel()
	seen := make(map[string]int, 4*drawn)
	var children []*child
	for range 4 {
		children = append(children, start(t, part{Do: "draw"}))
	}
	for i, c := range children {
		for range drawn {
			id := c.says("")
			if other, ok := seen[id]; ok || len(id) != 22 {
				t.Fatalf("processes %d and %d have both drawn %q", other, i, id)
			}
			seen[id] = i
		}
	}
}

func TestTK05NobodyIsTakenForSomebodyElseOfTheSameName(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		same := redlatch.Config{Owner: redlatch.Owner{Name: "x", Host: "h", PID: 1, Command: "c"}, OnUnavailable: redlatch.Wait}
		a, b := locker(t, p.store(t), same), locker(t, p.store(t), same)
		held := take(t, a, "tk05", redlatch.Options{TTL: long})
		for _, l := range []*redlatch.Locker{a, b} {
			_, err := l.TryLock(t.Context(), "tk05", redlatch.Options{})
			mustBe(t, err, redlatch.ErrHeld)
		}
		giveBack(t, held)
		again := take(t, a, "tk05", redlatch.Options{TTL: long})
		if again.Token() == held.Token() || claimID(again) == claimID(held) {
			t.Error("two holds have one token")
		}
		mustBe(t, held.Unlock(), redlatch.ErrNotHeld)
		if !again.Valid() {
			t.Error("the old hold's release was taken for the new one's")
		}
		giveBack(t, again)
	})
}
