package redismodel

import (
	"maps"
	"slices"
	"strconv"
)

// Reply is what the function answer in prelude.lua puts together.
type Reply struct {
	State    string
	Ticket   uint64
	Room     int
	Prev     uint64
	Ahead    int
	Lease    int64
	Taken    bool
	Value    string
	Left     int64
	Seal     string
	SealLeft int64
	Here     int
	More     bool
	Push     bool
	Now      int64
}

// call is one run of a script: what it finds out on the way.
type call struct {
	s     *Server
	n     *Name
	lock  string
	value Text
	seal  Text
	more  bool
}

func (s *Server) begin(lock string) call { return call{s: s, n: s.Name(lock), lock: lock} }

type fields struct {
	ticket uint64
	room   int
	prev   uint64
	ahead  int
	lease  int64
	left   int64 // -3: not known
	holder Text
	here   int
}

const unknown = -3

func (c *call) answer(state string, f fields) Reply {
	r := Reply{
		State: state, Ticket: f.ticket, Room: f.room, Prev: f.prev, Ahead: f.ahead, Lease: f.lease,
		Here: f.here, More: c.more, Push: true, Now: c.s.Now,
	}
	if c.value.There {
		r.Taken, r.Value, r.Left = true, c.value.Value, f.left
		if f.left == unknown {
			r.Left = c.s.left(c.n.Lock)
		}
	} else if f.holder.There {
		r.Taken, r.Value = true, f.holder.Value
	}
	if c.seal.There {
		r.Seal, r.SealLeft = c.seal.Value, c.s.left(c.n.Sealed)
	}
	return r
}

func (c *call) keep(ms int64) {
	end := c.s.ms() + ms
	if len(c.n.Queue) > 0 && c.n.queueEnd < end {
		c.n.queueEnd = end
	}
	if c.n.size() > 0 && c.n.aboutEnd < end {
		c.n.aboutEnd = end
	}
	if c.n.Last.There && c.n.Last.End < end {
		c.n.Last.End = end
	}
}

func (c *call) raise(ms int64) int64 {
	left := max(c.s.left(c.n.Lock), ms)
	c.n.Lock.End = c.s.ms() + left
	return left
}

func (c *call) tells(channel string) bool {
	c.s.Publish(channel+".", "")
	return true
}

func (c *call) settle() {
	id, channel := c.n.Grant.ID, c.n.Grant.Channel
	if id == "" || mine(c.value, id) {
		return
	}
	c.n.dropGrant()
	for other, e := range c.n.Entries {
		if e.Channel == channel {
			c.n.remove(other)
		}
	}
}

func (c *call) give(id string, ticket uint64, e Entry) bool {
	ms := min(e.TTL, grant)
	token := c.s.text(e.Head+digits(ticket)+e.Tail, ms)
	c.n.Lock = token
	heard := c.s.Publish(e.Channel, "g\n"+id+"\n"+digits(ticket)+"\n"+digits(ms)+"\n"+c.lock)
	if heard == 0 {
		c.n.Lock = Text{}
		return false
	}
	c.value = token
	c.n.Grant.ID, c.n.Grant.Channel = id, e.Channel
	c.n.Since = digits(ticket) + " " + digits(c.s.ms())
	c.keep(ms + hour)
	return true
}

func (c *call) ahead(at, most int64) bool {
	left := at - c.s.ms()
	return left > 0 && left <= most
}

func (c *call) point(ms int64) {
	told := make(map[string]bool)
	for i, p := range c.n.Queue {
		if i == skips || len(told) == pointed {
			return
		}
		if e, ok := c.n.Entries[p.ID]; ok && e.Mode == 'c' && !told[e.Channel] && c.s.Subscribers(e.Channel) != 0 {
			c.s.Publish(e.Channel, "p\n"+p.ID+"\n"+digits(ms)+"\n"+c.lock)
			told[e.Channel] = true
		}
	}
}

func (c *call) reserved(id string, e Entry) bool {
	if !c.ahead(c.n.Polls[e.Channel], polls) {
		return false
	}
	turn := min(e.TTL, polls)
	at, begun := c.n.Turns[id]
	if !begun {
		set(&c.n.Turns, id, c.s.ms()+turn)
		c.point(turn)
		return true
	}
	if c.ahead(at, turn) {
		return true
	}
	delete(c.n.Polls, e.Channel)
	c.n.tidy()
	return false
}

// promote reports whether it is the turn of the caller itself.
func (c *call) promote(me string) (ticket uint64, e Entry, itself bool) {
	if c.seal.There || c.ahead(c.n.Gap, gap) {
		return 0, Entry{}, false
	}
	for range skips {
		if len(c.n.Queue) == 0 {
			return 0, Entry{}, false
		}
		first := c.n.Queue[0]
		e, ok := c.n.Entries[first.ID]
		switch {
		case ok && first.ID == me:
			c.n.remove(first.ID)
			return first.Ticket, e, true
		case ok && e.Mode == 'p' && (c.s.Subscribers(e.Channel) == 0 || !c.tells(e.Channel)):
			if c.reserved(first.ID, e) {
				return 0, Entry{}, false
			}
			c.n.remove(first.ID)
		case !ok || c.s.Subscribers(e.Channel) == 0:
			c.n.remove(first.ID)
		default:
			c.n.remove(first.ID)
			if c.give(first.ID, first.Ticket, e) {
				return 0, Entry{}, false
			}
		}
	}
	c.more = true
	return 0, Entry{}, false
}

func (c *call) tell(message string) {
	told := make(map[string]bool)
	for _, p := range c.n.Queue { // in another order than the hash has; nobody can tell
		c.tellOne(told, p.ID, message)
	}
	for _, id := range slices.Sorted(maps.Keys(c.n.Entries)) {
		c.tellOne(told, id, message)
	}
}

func (c *call) tellOne(told map[string]bool, id, message string) {
	if e, ok := c.n.Entries[id]; ok && e.Mode == 'c' && !told[e.Channel] {
		told[e.Channel] = true
		c.s.Publish(e.Channel, message)
	}
}

func (c *call) nextInLine() Text {
	if len(c.n.Queue) == 0 || c.seal.There {
		return Text{}
	}
	first := c.n.Queue[0]
	e, ok := c.n.Entries[first.ID]
	if !ok {
		return Text{}
	}
	return Text{There: true, Value: e.Head + digits(first.Ticket) + e.Tail}
}

// Joining are the arguments of join.lua.
type Joining struct {
	ID, Head, Tail string
	TTL            int64
	Wait, SealFail bool
	Most           int
	Proposed       uint64
	Room           int
	Channel        string
	Marker         string
}

// ahead of the server's clock, in microseconds, tickets leave no room.
const tooFarAhead = 100000

// Join is join.lua.
func (s *Server) Join(lock string, j Joining) Reply {
	c := s.begin(lock)
	n := c.n
	c.value, c.seal = n.Lock, n.Sealed
	highest := counter(n.Last)
	if _, left := n.Stones[j.ID]; left {
		return c.answer("left", fields{left: unknown})
	}
	if mine(c.value, j.ID) {
		left := c.raise(j.TTL)
		n.dropGrant()
		c.keep(left + hour)
		ticket, _ := strconv.ParseUint(ticketOf(c.value.Value), 10, 64)
		return c.answer("held", fields{ticket: ticket, lease: left, left: left})
	}
	room := j.Room
	draw := func() uint64 {
		if int64(highest)-s.Now > tooFarAhead {
			room = 0
		}
		floor := j.Proposed
		if floor == 0 {
			floor = uint64(s.Now)
		}
		return max(highest+1+uint64(room), floor)
	}
	take := func(ticket uint64, spare int, prev uint64) Reply {
		n.Lock = s.text(j.Head+digits(ticket)+j.Tail, j.TTL)
		c.value = n.Lock
		return c.answer("held", fields{ticket: ticket, room: spare, prev: prev, lease: j.TTL, left: j.TTL})
	}
	if len(n.Queue) > 0 {
		c.settle()
		if !c.value.There {
			if ticket, e, itself := c.promote(j.ID); itself {
				r := take(ticket, e.Room, 0)
				c.keep(j.TTL + hour)
				return r
			}
		}
	}
	waiting := len(n.Queue)
	if !c.value.There && !c.seal.There && waiting == 0 {
		ticket := draw()
		n.Last = s.text(digits(ticket), j.TTL+hour)
		return take(ticket, room, highest)
	}
	longest := j.TTL
	held := 0
	if c.value.There {
		longest = max(longest, s.left(n.Lock))
		held = 1
	}
	joined := s.ms()
	var ticket, prev uint64
	if i := n.rank(j.ID); i >= 0 {
		ticket = n.Queue[i].Ticket
		if e, ok := n.Entries[j.ID]; ok {
			room, joined = e.Room, e.Joined
		}
	} else {
		switch {
		case c.more:
			return c.answer("again", fields{left: unknown})
		case !j.Wait || j.SealFail && c.seal.There:
			return c.answer("busy", fields{ahead: waiting + held, holder: c.nextInLine(), left: unknown})
		case j.Most > 0 && waiting >= j.Most:
			return c.answer("full", fields{ahead: waiting + held, left: unknown})
		}
		if waiting == 0 {
			c.settle()
		}
		ticket, prev = draw(), highest
		n.Last = s.text(digits(ticket), longest+hour)
		n.add(Place{j.ID, ticket})
		c.keep(longest + hour)
	}
	here := 0
	if j.Marker != "" {
		here = s.Subscribers(j.Marker)
	}
	mode := byte('p')
	if here > 0 && c.tells(j.Channel) {
		mode = 'c'
	}
	n.enter(j.ID, Entry{Mode: mode, TTL: j.TTL, Room: room, Joined: joined, Head: j.Head, Channel: j.Channel, Tail: j.Tail})
	c.keep(longest + hour)
	delete(n.Turns, j.ID)
	if mode == 'p' {
		set(&n.Polls, j.Channel, s.ms()+polls)
	}
	return c.answer("waiting", fields{ticket: ticket, room: room, prev: prev, ahead: n.rank(j.ID) + held, here: here, left: unknown})
}

// Leaving are the arguments of leave.lua.
type Leaving struct {
	ID       string
	Only     string
	Remember string
	StoneMS  int64
	SealMS   int64
	SealText string
	Victim   string
	Foreign  bool
	News     string
	Broken   bool
}

// Leave is leave.lua.
func (s *Server) Leave(lock string, l Leaving) Reply {
	c := s.begin(lock)
	n := c.n
	c.value, c.seal = n.Lock, n.Sealed
	stone := func(when string) {
		if l.Remember == "always" || l.Remember == when {
			n.Stones[l.ID] = s.ms() + l.StoneMS
		}
	}
	tellVictim := func() {
		if l.Broken {
			s.Publish(l.News, "b\n"+l.ID+"\n"+lock+"\n"+l.SealText)
		}
	}
	if mine(c.value, l.ID) && (l.Only == "" || ticketOf(c.value.Value) == l.Only) {
		ticket, _ := strconv.ParseUint(ticketOf(c.value.Value), 10, 64)
		left := s.left(n.Lock)
		n.Lock, c.value = Text{}, Text{}
		stone("held")
		tellVictim()
		sealed := l.SealMS
		if l.Victim == l.ID && sealed > 0 {
			if sealed = left; sealed < 0 {
				sealed = hour
			}
		}
		if sealed > 0 {
			n.Sealed = s.text(l.SealText, sealed)
			c.tell("s\n" + digits(sealed) + "\n" + lock + "\n" + l.SealText)
			c.seal = n.Sealed
		}
		if len(n.Queue) == 0 {
			c.tell("l\n" + lock)
			n.About = About{}
			n.tidy()
		} else {
			n.dropGrant()
			if l.Foreign {
				c.leaveGap()
			}
			c.promote("")
			c.keep(hour)
		}
		c.seal = Text{}
		return c.answer("held", fields{ticket: ticket, lease: left, left: unknown})
	}
	if l.Only != "" {
		return c.answer("gone", fields{left: unknown})
	}
	if i := n.rank(l.ID); i >= 0 {
		ticket := n.Queue[i].Ticket
		if c.value.There {
			i++
		}
		n.remove(l.ID)
		stone("waiting")
		tellVictim()
		c.settle()
		before := c.answer("waiting", fields{ticket: ticket, ahead: i, left: unknown})
		if !c.value.There {
			c.promote("")
		}
		before.More = c.more
		return before
	}
	stone("absent")
	before := c.answer("gone", fields{left: unknown})
	if c.seal.There && l.Victim == "" && len(c.seal.Value) >= len(l.ID) && c.seal.Value[:len(l.ID)] == l.ID {
		n.Sealed, c.seal = Text{}, Text{}
		before = c.answer("gone", fields{left: unknown})
	}
	if len(n.Queue) > 0 {
		c.settle()
		if !c.value.There {
			c.promote("")
		}
		before.More = c.more
	}
	return before
}

func (c *call) leaveGap() {
	row, since := c.n.InARow.Turns+1, c.n.InARow.Since
	if row == 1 {
		since = c.s.ms()
	}
	if row < turns && c.s.ms()-since < turnsMS {
		c.n.InARow.Turns, c.n.InARow.Since = row, since
		return
	}
	c.n.Gap = c.s.ms() + gap
	c.n.InARow.Turns, c.n.InARow.Since = 0, 0
	c.point(gap)
}

// Renewal are the arguments of renew.lua.
type Renewal struct {
	ID, Token string
	Ticket    uint64
	TTL       int64
	Fence     uint64
}

// Renew is renew.lua.
func (s *Server) Renew(lock string, r Renewal) Reply {
	c := s.begin(lock)
	n := c.n
	c.value = n.Lock
	if c.value.There && c.value.Value == r.Token {
		left := c.raise(r.TTL)
		n.dropGrant()
		if r.Fence > 0 && r.Fence > counter(n.Last) {
			n.Last = s.text(digits(r.Fence), left+hour)
		}
		c.keep(left + hour)
		return c.answer("held", fields{ticket: r.Ticket, lease: left, left: unknown})
	}
	c.seal = n.Sealed
	if i := n.rank(r.ID); i >= 0 && n.Queue[i].Ticket == r.Ticket {
		c.keep(r.TTL + hour)
		if c.value.There {
			i++
		}
		return c.answer("waiting", fields{ticket: r.Ticket, ahead: i, left: unknown})
	}
	return c.answer("gone", fields{left: unknown})
}

// Inspect is inspect.lua, but for the lists, which are those of Name.
func (s *Server) Inspect(lock string) Reply {
	c := s.begin(lock)
	c.value, c.seal = c.n.Lock, c.n.Sealed
	return c.answer("gone", fields{left: unknown})
}
