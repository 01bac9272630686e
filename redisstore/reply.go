package redisstore

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/lease"
)

// reply is what the function answer in scripts/prelude.lua puts together.
type reply struct {
	state      string
	ticket     uint64
	room       int
	prev       uint64
	ahead      int
	lease      time.Duration
	taken      bool   // there is a lock key, or somebody whose turn it is
	value      string // of the lock key; another library's may be empty
	left       time.Duration
	sealText   string
	sealLeft   time.Duration
	subscribed bool // the server that answered knows this process's subscription
	more       bool
	push       bool
	now        time.Time

	info string // INFO server, taken in the same step where the claim votes
}

// answered reads what a script has answered.
func answered(fields []any, err error) (reply, error) {
	if err != nil {
		return reply{}, err
	}
	return parseReply(fields)
}

func parseReply(fields []any) (reply, error) {
	if len(fields) != 14 {
		return reply{}, fmt.Errorf("an answer of %d fields", len(fields))
	}
	p := parser{fields: fields}
	r := reply{
		state: p.text(), ticket: p.number(), room: int(p.number()), prev: p.number(), ahead: int(p.int()), lease: p.millis(),
		taken: p.there(), value: p.text(), left: p.millis(), sealText: p.text(), sealLeft: p.millis(),
		subscribed: p.int() > 0, more: p.int() == 1, push: p.int() == 1, now: p.micros(),
	}
	if p.err == nil && r.ticket == 0 && (r.state == "held" || r.state == "waiting") {
		return reply{}, fmt.Errorf("an answer %q without a ticket", r.state)
	}
	return r, p.err
}

// standing reads the reply for the claim with that ID. A holder that a newer release
// wrote is one that cannot be read: whoever leaves or is gone must learn that, and not
// that its own call failed.
func (r reply) standing(id string, asked lease.Instant) (lease.Standing, error) {
	st := lease.Standing{
		Ticket: r.ticket, Room: r.room, Prev: r.prev, Asked: asked, Ahead: r.ahead, Lease: r.lease,
		Seal: parseSeal(r.sealText, r.sealLeft),
	}
	switch r.state {
	case "held":
		st.State = lease.Held
		st.Ahead = 0
		return st, nil
	case "waiting":
		st.State = lease.Waiting
	case "busy":
		st.State = lease.Busy
	case "left":
		st.State = lease.Left
	case "gone":
		st.State = lease.Gone
	default:
		return lease.Standing{}, fmt.Errorf("an answer %q", r.state)
	}
	if r.taken {
		h, err := parseHolder(r.value)
		if err != nil {
			h = lease.Holder{Foreign: r.value, Owner: lease.Owner{Name: "a newer redlatch"}}
		}
		st.Holder, st.Left = &h, max(r.left, 0)
	}
	return st, nil
}

// newer is the error of a claim that asks for what a newer release holds: it must not wait
// for that by rules which may not be that release's.
func (r reply) newer() error {
	if !r.taken || r.state == "held" || r.state == "left" {
		return nil
	}
	_, err := parseHolder(r.value)
	return err
}

// foreign reports a holder whose end cannot be known: it may go at any time and tells
// nobody (another library), or it has no end.
func (r reply) foreign() bool {
	if !r.taken {
		return false
	}
	_, err := lease.ParseToken(r.value)
	return err != nil || r.left < 0
}

// parseHolder reads a lock key's value. What was written by a newer release is an
// error: it must not be taken for another library's.
func parseHolder(value string) (lease.Holder, error) {
	t, err := lease.ParseToken(value)
	switch {
	case err == nil:
		return lease.Holder{ID: t.ID, Ticket: t.Ticket, Owner: t.Owner}, nil
	case errors.Is(err, lease.ErrNewer):
		return lease.Holder{}, &driver.Fault{Kind: driver.Misplaced, Err: fmt.Errorf("the lock's value: %w", err)}
	}
	return lease.Holder{Foreign: cmp.Or(value, noValue)}, nil
}

// noValue is shown for another program's value that is empty, for a holder with neither
// an ID nor a value would look like nobody.
const noValue = `""`

// A seal's text is its victim's ID, or as many dashes, for scripts to compare, and
// behind it what only programs read.
const noVictim = "----------------------"

func sealText(s lease.Seal) string {
	v := url.Values{}
	for key, value := range map[string]string{"v": s.Value, "b": s.By, "r": s.Reason} {
		if value != "" {
			v.Set(key, value)
		}
	}
	victim := s.Victim
	if victim == "" {
		victim = noVictim
	}
	return victim + v.Encode()
}

func parseSeal(text string, left time.Duration) lease.Seal {
	if len(text) < len(noVictim) || left <= 0 {
		return lease.Seal{}
	}
	s := lease.Seal{For: left}
	if victim := text[:len(noVictim)]; victim != noVictim {
		s.Victim = victim
	}
	if v, err := url.ParseQuery(text[len(noVictim):]); err == nil {
		s.Value, s.By, s.Reason = v.Get("v"), v.Get("b"), v.Get("r")
	}
	return s
}

// farOff is longer than anybody waits, and short enough to be added to a time. Redis takes
// an expiry in a hundred million years, and says so when it is asked.
const farOff = 100 * 365 * 24 * time.Hour

func millis(n int64) time.Duration {
	return time.Duration(max(-1, min(n, farOff.Milliseconds()))) * time.Millisecond
}

// parser takes one field of an answer after the other and keeps the first error.
type parser struct {
	fields []any
	err    error
}

func (p *parser) next() any {
	if len(p.fields) == 0 {
		p.fail("is missing")
		return nil
	}
	f := p.fields[0]
	p.fields = p.fields[1:]
	return f
}

func (p *parser) fail(what string) {
	if p.err == nil {
		p.err = fmt.Errorf("a field of the answer %s", what)
	}
}

// there reports whether the next field is.
func (p *parser) there() bool { return len(p.fields) > 0 && p.fields[0] != nil }

func (p *parser) text() string {
	switch f := p.next().(type) {
	case string:
		return f
	case nil:
		return ""
	}
	p.fail("is no text")
	return ""
}

func (p *parser) int() int64 {
	n, ok := p.next().(int64)
	if !ok {
		p.fail("is no integer")
	}
	return n
}

// number reads a ticket: text, because a script's numbers lose digits on their way. It is
// below 2^53: what is not, no script has written.
func (p *parser) number() uint64 {
	n, err := strconv.ParseUint(p.text(), 10, 53)
	if err != nil {
		p.fail("is no number")
		return 0
	}
	return n
}

func (p *parser) millis() time.Duration { return millis(p.int()) }

func (p *parser) micros() time.Time { return time.UnixMicro(int64(p.number())) }

// pairs reads a list of which two and two belong together.
func (p *parser) pairs() [][]string {
	list := p.list()
	if len(list)%2 != 0 {
		p.fail("is a list of an odd length")
	}
	if p.err != nil {
		return nil
	}
	return slices.Collect(slices.Chunk(list, 2))
}

func (p *parser) list() []string {
	fields, ok := p.next().([]any)
	if !ok {
		p.fail("is no list")
	}
	list := make([]string, len(fields))
	for i, f := range fields {
		text, ok := f.(string)
		if !ok {
			p.fail("is no list of texts")
		}
		list[i] = text
	}
	return list
}

// cutAll takes n texts off that are separated by newlines; the last one may have more.
func cutAll(text string, n int) ([]string, bool) {
	parts := strings.SplitN(text, "\n", n)
	return parts, len(parts) == n
}
