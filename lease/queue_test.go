package lease

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// id is a claim ID that begins with name.
func id(name string) string { return name + strings.Repeat("-", idLen-len(name)) }

func claim(name string, changes ...func(*Claim)) Claim {
	c := Claim{ID: id(name), TTL: time.Minute}
	for _, change := range changes {
		change(&c)
	}
	return c
}

func reader(c *Claim)                    { c.Mode = Shared }
func hasty(c *Claim)                     { c.NoWait = true }
func failsAtSeal(c *Claim)               { c.OnSeal = SealFail }
func lasts(d time.Duration) func(*Claim) { return func(c *Claim) { c.TTL = d } }
func permit(need, slots int) func(c *Claim) {
	return func(c *Claim) { c.Mode, c.Need, c.Slots = Permit, need, slots }
}

// play tells a story: one move a line, and what is to be seen after it. A move begins
// with the second at which it happens.
//
//	0 join a            a held
//	3 leave a           b held, c waits
func play(t *testing.T, story string, claims map[string]Claim) {
	t.Helper()
	var q Queue
	for line := range strings.Lines(story) {
		move, want, ok := strings.Cut(strings.TrimSpace(line), "|")
		if !ok {
			continue
		}
		var second float64
		var verb, name string
		if _, err := fmt.Sscan(move, &second, &verb, &name); err != nil {
			t.Fatalf("%q: %v", move, err)
		}
		now := noon.Add(time.Duration(second * float64(time.Second)))
		c, ok := claims[name]
		if !ok {
			c = claim(name)
		}
		said := ""
		switch verb {
		case "join":
			st, err := q.Join(c, now)
			if err != nil {
				said = "refused "
			} else if st.State == Busy || st.State == Left {
				said = st.State.String() + " "
			}
		case "renew":
			said = q.Renew(c.ID, 0, c.TTL, 0, now).State.String() + " "
			if said != "gone " {
				said = ""
			}
		case "leave":
			q.Leave(c.ID, 0, Seal{}, now)
		case "seal":
			q.Leave(c.ID, 0, Seal{For: 10 * time.Second}, now)
		case "break":
			q.Leave(c.ID, 0, Seal{For: time.Hour, Victim: c.ID}, now)
		case "look":
			q.Advance(now)
		default:
			t.Fatalf("%q: no such move", move)
		}
		if got, want := said+picture(&q), strings.Join(strings.Fields(want), " "); got != want {
			t.Fatalf("after %q: %s, want %s", strings.TrimSpace(move), got, want)
		}
	}
}

// picture is the holders, a slash, the waiters, and a ! for a seal.
func picture(q *Queue) string {
	var b strings.Builder
	for _, e := range q.Holders() {
		b.WriteString(strings.TrimRight(e.ID, "-") + " ")
	}
	b.WriteString("/")
	for _, e := range q.Waiters() {
		b.WriteString(" " + strings.TrimRight(e.ID, "-"))
	}
	if q.Seal().Closed() {
		b.WriteString(" !")
	}
	return b.String()
}

func TestQueue(t *testing.T) {
	claims := map[string]Claim{
		"r1": claim("r1", reader), "r2": claim("r2", reader), "r3": claim("r3", reader),
		"hasty": claim("hasty", hasty), "hr": claim("hr", hasty, reader), "fails": claim("fails", failsAtSeal),
		"short": claim("short", lasts(5*time.Second)), "one": claim("one", func(c *Claim) { c.MaxWaiters = 1 }),
		"p1": claim("p1", permit(1, 3)), "p2": claim("p2", permit(2, 3)), "p3": claim("p3", permit(3, 3)),
		"q1": claim("q1", permit(0, 3)), "other": claim("other", permit(1, 4)),
	}
	tests := []struct{ says, story string }{
		{"one holds, the next one follows", `
			0 join a  | a /
			1 join b  | a / b
			1 join c  | a / b c
			2 leave a | b / c
			3 leave b | c /
			4 leave c | /`},
		{"a claim in the middle withdraws", `
			0 join a  | a /
			0 join b  | a / b
			0 join c  | a / b c
			1 leave b | a / c
			1 leave a | c /`},
		{"who does not wait is not queued", `
			0 join a     | a /
			0 join hasty | busy a /
			1 leave a    | /
			1 join hasty | hasty /`},
		{"a lease ends at the end of its TTL and the next one holds", `
			0 join short      | short /
			0 join b          | short / b
			4.999999 look b   | short / b
			5 look b          | b /`},
		{"a renewal counts from when it is made", `
			0 join short    | short /
			4 renew short   | short /
			8.9 look short  | short /
			9 look short    | /`},
		{"a second join counts like a renewal", `
			0 join short    | short /
			4 join short    | short /
			8.9 look short  | short /
			9 look short    | /`},
		{"a renewal revives nothing", `
			0 join short  | short /
			5 renew short | gone /`},
		{"a waiting claim falls out", `
			0 join a      | a /
			0 join short  | a / short
			0 join c      | a / short c
			5 look a      | a / c`},
		{"readers hold together", `
			0 join r1  | r1 /
			0 join r2  | r1 r2 /
			0 join a   | r1 r2 / a
			0 leave r1 | r2 / a
			0 leave r2 | a /`},
		{"a reader does not pass a writer that waits", `
			0 join r1  | r1 /
			0 join a   | r1 / a
			0 join r2  | r1 / a r2
			0 join hr  | busy r1 / a r2
			0 leave r1 | a / r2
			0 leave a  | r2 /`},
		{"readers behind a writer that withdraws hold at once", `
			0 join r1 | r1 /
			0 join a  | r1 / a
			0 join r2 | r1 / a r2
			0 join r3 | r1 / a r2 r3
			0 leave a | r1 r2 r3 /`},
		{"permits are given as long as they fit", `
			0 join p1  | p1 /
			0 join p2  | p1 p2 /
			0 join q1  | p1 p2 / q1
			0 leave p1 | p2 q1 /`},
		{"a small claim does not pass a large one", `
			0 join p1  | p1 /
			0 join p3  | p1 / p3
			0 join q1  | p1 / p3 q1
			0 leave p1 | p3 / q1`},
		{"a mutex is no semaphore, and one of 3 is none of 4", `
			0 join a     | a /
			0 join p1    | refused a /
			0 leave a    | /
			0 join p1    | p1 /
			0 join other | refused p1 /
			0 join b     | refused p1 /`},
		{"one waiter is enough for who says so", `
			0 join a   | a /
			0 join one | a / one
			0 join one | a / one
			0 leave one | a /
			0 join c   | a / c
			0 join one | refused a / c`},
		{"a seal closes the name until it ends", `
			0 join a      | a /
			0 join b      | a / b
			0 seal a      | / b !
			1 join hasty  | busy / b !
			1 join c      | / b c !
			9.9 look b    | / b c !
			10 look b     | b / c`},
		{"who fails at a seal is not queued behind one", `
			0 join a      | a /
			0 seal a      | / !
			0 join fails  | busy / !
			10 join fails | fails /`},
		{"only who holds can seal", `
			0 join a  | a /
			0 join b  | a / b
			0 seal b  | a /
			0 seal c  | a /`},
		{"a seal is nothing to those who still hold", `
			0 join r1 | r1 /
			0 join r2 | r1 r2 /
			0 seal r1 | r2 / !
			0 renew r2 | r2 / !
			0 join r3 | r2 / r3 !
			10 look x | r2 r3 /`},
		{"a broken hold is closed for what is left of its lease", `
			0 join short  | short /
			1 join b      | short / b
			2 break short | / b !
			3 break short | / b !
			4.9 look b    | / b !
			5 look b      | b /`},
		{"a broken hold is open when its holder has answered", `
			0 join short  | short /
			1 join b      | short / b
			2 break short | / b !
			3 leave b     | / !
			3 join c      | / c !
			3 leave short | c /`},
		{"a claim that has left before it joins is not let in", `
			0 leave a  | /
			59 join a  | left /
			59 join b  | b /`},
		{"that is forgotten after a while", `
			0 leave a  | /
			60 join a  | a /`},
		{"a clock that steps back changes nothing", `
			100 join a      | a /
			50 join short   | a / short
			60 look a       | a / short
			104.9 look a    | a / short
			105 look a      | a /`},
	}
	for _, test := range tests {
		t.Run(test.says, func(t *testing.T) { play(t, test.story, claims) })
	}
}

func TestTickets(t *testing.T) {
	micro := uint64(noon.UnixMicro())
	tests := []struct {
		says     string
		last     uint64
		room     int
		proposed uint64
		want     uint64
	}{
		{"the first is the time", 0, 0, 0, micro},
		{"room does not move it", 0, 5, 0, micro},
		{"it follows the time", micro - 1, 0, 0, micro},
		{"it grows where the time does not", micro, 0, 0, micro + 1},
		{"it grows by the room too", micro, 5, 0, micro + 6},
		{"also just before", micro - 3, 5, 0, micro + 3},
		{"it grows where the time is behind", micro + 1000, 0, 0, micro + 1001},
		{"a proposal is taken", micro - 100, 0, micro - 50, micro - 50},
		{"a proposal that is too low is not", micro, 2, micro + 2, micro + 3},
	}
	for _, test := range tests {
		t.Run(test.says, func(t *testing.T) {
			if got := NextTicket(test.last, test.room, test.proposed, noon); got != test.want {
				t.Errorf("ticket %d after %d, want %d (the time is %d)", got, test.last, test.want, micro)
			}
		})
	}
}

func TestNoRoomFarAheadOfTheClock(t *testing.T) {
	var q Queue
	asks := func(c *Claim) { c.Room = MaxRoom }
	given := 0
	for i := range 10_000 {
		c := claim(fmt.Sprint(i), asks)
		st, err := q.Join(c, noon)
		if err != nil {
			t.Fatal(err)
		}
		if st.Room > 0 {
			given++
		}
		q.Leave(c.ID, 0, Seal{}, noon)
	}
	if ahead := int64(q.Last) - noon.UnixMicro(); ahead > maxAhead.Microseconds()+MaxRoom+10_000 {
		t.Errorf("ten thousand joins at once run the tickets %d µs ahead of the clock", ahead)
	}
	if given < 1000 {
		t.Errorf("only %d claims got room", given)
	}
}

func TestRaisingTheLastTicket(t *testing.T) {
	tests := []struct {
		says    string
		who     string
		wrong   bool // with another ticket
		by      uint64
		changes bool
	}{
		{"the holder may", "a", false, 1000, true},
		{"the holder may not lower it", "a", false, 0, false},
		{"a waiting claim may not", "b", false, 1000, false},
		{"an old hold of the holder may not", "a", true, 1000, false},
		{"a stranger may not", "c", false, 1000, false},
	}
	for _, test := range tests {
		t.Run(test.says, func(t *testing.T) {
			var q Queue
			first, _ := q.Join(claim("a"), noon)
			second, _ := q.Join(claim("b"), noon)
			ticket := map[string]uint64{"a": first.Ticket, "b": second.Ticket, "c": first.Ticket}[test.who]
			if test.wrong {
				ticket--
			}
			last := q.Last
			q.Renew(id(test.who), ticket, time.Minute, first.Ticket+test.by, noon)
			if (q.Last != last) != test.changes {
				t.Errorf("the last ticket was %d and is %d", last, q.Last)
			}
		})
	}
	var q Queue
	st, _ := q.Join(claim("a"), noon)
	q.Renew(id("a"), st.Ticket, time.Minute, 1<<64-1, noon)
	if next, _ := q.Join(claim("b"), noon); next.Ticket <= st.Ticket {
		t.Errorf("ticket %d after %d: they have run over", next.Ticket, st.Ticket)
	}
}

func TestStandingNamesWhoIsInTheWay(t *testing.T) {
	var q Queue
	mustJoin(t, &q, claim("r1", reader, lasts(30*time.Second)))
	mustJoin(t, &q, claim("r2", reader, lasts(10*time.Second)))
	st, err := q.Join(claim("w"), noon.Add(time.Second))
	if err != nil || st.State != Waiting || st.Ahead != 2 {
		t.Fatalf("%v behind %d, error %v", st.State, st.Ahead, err)
	}
	if st.Holder == nil || st.Holder.ID != id("r1") || st.Left != 9*time.Second {
		t.Errorf("in the way is %v for %v, want r1, and the first lease ends in 9s", st.Holder, st.Left)
	}
}

// A queue read from a service can have a holder without end: another library's lock.
func TestAnEntryWithoutEndStays(t *testing.T) {
	q := Queue{Now: noon, Claims: []Entry{{Foreign: "raw", Granted: noon}}}
	st, err := q.Join(claim("a"), noon.Add(time.Hour))
	if err != nil || st.State != Waiting {
		t.Fatalf("%v, error %v, want it waiting", st.State, err)
	}
	if st.Holder == nil || st.Holder.Foreign != "raw" || st.Left != 0 {
		t.Errorf("the holder is %v with %v left, want the foreign one, without end", st.Holder, st.Left)
	}
}

func TestErrorsOfJoin(t *testing.T) {
	var q Queue
	mustJoin(t, &q, claim("a", permit(1, 3)))
	_, err := q.Join(claim("b"), noon)
	var conflict *ModeError
	if !errors.As(err, &conflict) || *conflict != (ModeError{Want: Exclusive, Have: Permit, HasSlots: 3}) {
		t.Errorf("error %v", err)
	}
	if got, want := err.Error(), "wanted as a mutex or read-write lock, in use as a semaphore of 3"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func mustJoin(t *testing.T, q *Queue, c Claim) {
	t.Helper()
	if _, err := q.Join(c, noon); err != nil {
		t.Fatalf("join: %v", err)
	}
}
