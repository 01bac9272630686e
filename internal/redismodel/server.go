// Package redismodel is a Redis server as far as redisstore's scripts see one, and those
// scripts as Go functions: what internal/sim plays in the place of a server. The functions
// follow the Lua text line by line and say nothing about why; that stands there. The test
// of redisstore plays both side by side and finds any difference.
//
// It leaves out what the scripts answer to a user who lacks a right, and to a full memory.
package redismodel

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// Server is one server. The clock is set from outside, and may step.
type Server struct {
	Now int64 // its clock, in microseconds

	// Subscribers is PUBSUB NUMSUB. Publish is PUBLISH: it counts pattern subscribers too.
	Subscribers func(channel string) int
	Publish     func(channel, message string) int

	names map[string]*Name // by lock key
	lists map[string]*list // what record and seals write
}

// Name is all that is kept of one name.
type Name struct {
	Lock   Text
	Last   Text
	Sealed Text
	Stones map[string]int64 // by claim ID: when they end

	Queue    []Place // by ticket
	queueEnd int64

	About
	aboutEnd int64
}

// Text is a string key. One that is not There has no other field.
type Text struct {
	There bool
	Value string
	End   int64 // in milliseconds of the server's clock; 0: none
}

// Place is one of the queue.
type Place struct {
	ID     string
	Ticket uint64
}

// About is the hash about those who wait.
type About struct {
	Entries map[string]Entry
	Polls   map[string]int64 // "!poll channel"
	Turns   map[string]int64 // "!turn id"
	Grant   struct{ ID, Channel string }
	Since   string
	Gap     int64
	InARow  struct{ Turns, Since int64 } // "!turns"
}

// Entry is what a hand-over must know about a waiter.
type Entry struct {
	Mode                byte // 'c', 'p'
	TTL                 int64
	Room                int
	Joined              int64
	Head, Channel, Tail string
}

// none is the end of a key that has none.
const none = 0

const (
	hour    = 3600000
	grant   = 5000
	skips   = 64
	polls   = 3000
	turns   = 16
	turnsMS = 1000
	gap     = 100
	pointed = 3
	tooHigh = 9007199254740992 - 66
)

// Name returns what is kept under that lock key. What has expired is not there.
func (s *Server) Name(lock string) *Name {
	n := s.names[lock]
	if n == nil {
		if s.names == nil {
			s.names = make(map[string]*Name)
		}
		n = &Name{Stones: make(map[string]int64)}
		s.names[lock] = n
	}
	now := s.ms()
	for _, t := range []*Text{&n.Lock, &n.Last, &n.Sealed} {
		if t.There && t.End != none && now > t.End {
			*t = Text{}
		}
	}
	if len(n.Queue) > 0 && n.queueEnd != none && now > n.queueEnd {
		n.Queue, n.queueEnd = nil, none
	}
	if n.size() > 0 && n.aboutEnd != none && now > n.aboutEnd {
		n.About, n.aboutEnd = About{}, none
	}
	for id, end := range n.Stones {
		if now > end {
			delete(n.Stones, id)
		}
	}
	n.tidy()
	return n
}

// Locks are the lock keys that anything is kept of.
func (s *Server) Locks() []string {
	var locks []string
	for lock := range s.names {
		if n := s.Name(lock); n.Lock.There || n.Last.There || n.Sealed.There || len(n.Queue) > 0 || n.size() > 0 || len(n.Stones) > 0 {
			locks = append(locks, lock)
		}
	}
	slices.Sort(locks)
	return locks
}

// Clone is a server that has the same: a replica that is up to date, a file on a disk.
func (s *Server) Clone() map[string]*Name {
	all := make(map[string]*Name, len(s.names))
	for lock, n := range s.names {
		c := *n
		c.Stones = cloneMap(n.Stones)
		c.Queue = slices.Clone(n.Queue)
		c.Entries, c.Polls, c.About.Turns = cloneMap(n.Entries), cloneMap(n.Polls), cloneMap(n.About.Turns)
		all[lock] = &c
	}
	return all
}

func cloneMap[V any](m map[string]V) map[string]V {
	if m == nil {
		return nil
	}
	c := make(map[string]V, len(m))
	for k, v := range m {
		c[k] = v
	}
	return c
}

// Restore makes that all that the server has; nil is nothing.
func (s *Server) Restore(all map[string]*Name) { s.names = all }

// Endless names a key that has no end, "" if all have one.
func (n *Name) Endless() string {
	switch {
	case n.Lock.There && n.Lock.End == none:
		return "lock"
	case n.Last.There && n.Last.End == none:
		return "last"
	case n.Sealed.There && n.Sealed.End == none:
		return "sealed"
	case len(n.Queue) > 0 && n.queueEnd == none:
		return "queue"
	case n.size() > 0 && n.aboutEnd == none:
		return "about"
	}
	return ""
}

// Holder is the ID in the lock's value, "" where nobody holds it; a foreign value is all of it.
func (n *Name) Holder() (id string, ticket uint64) {
	if !n.Lock.There {
		return "", 0
	}
	if len(n.Lock.Value) <= idLen || n.Lock.Value[idLen] != '.' {
		return n.Lock.Value, 0
	}
	t, _ := strconv.ParseUint(ticketOf(n.Lock.Value), 10, 64)
	return n.Lock.Value[:idLen], t
}

const idLen = 22

// SetNX is what another library locks with.
func (s *Server) SetNX(lock, value string, ttl int64) bool {
	n := s.Name(lock)
	if n.Lock.There {
		return false
	}
	n.Lock = s.text(value, ttl)
	return true
}

// DelIf is what another library releases with.
func (s *Server) DelIf(lock, value string) {
	if n := s.Name(lock); n.Lock.There && n.Lock.Value == value {
		n.Lock = Text{}
	}
}

func (s *Server) ms() int64 { return s.Now / 1000 }

func (s *Server) text(value string, px int64) Text {
	return Text{There: true, Value: value, End: s.ms() + px}
}

func (s *Server) left(t Text) int64 {
	switch {
	case !t.There:
		return -2
	case t.End == none:
		return -1
	}
	return t.End - s.ms()
}

// size is the number of fields.
func (a *About) size() int {
	n := len(a.Entries) + len(a.Polls) + len(a.Turns)
	for _, there := range []bool{a.Grant.ID != "", a.Since != "", a.Gap != 0, a.InARow.Turns != 0} {
		if there {
			n++
		}
	}
	return n
}

// tidy: a list or hash with nothing in it is not there, and neither is its end.
func (n *Name) tidy() {
	if len(n.Queue) == 0 {
		n.queueEnd = none
	}
	if n.size() == 0 {
		n.aboutEnd = none
	}
}

// Rank is the place of the claim in the queue, -1 where it has none.
func (n *Name) Rank(id string) int { return n.rank(id) }

func (n *Name) rank(id string) int {
	return slices.IndexFunc(n.Queue, func(p Place) bool { return p.ID == id })
}

func (n *Name) add(p Place) {
	i, _ := slices.BinarySearchFunc(n.Queue, p, func(a, b Place) int {
		return cmp.Or(cmp.Compare(a.Ticket, b.Ticket), strings.Compare(a.ID, b.ID))
	})
	n.Queue = slices.Insert(n.Queue, i, p)
}

func (n *Name) remove(id string) {
	if i := n.rank(id); i >= 0 {
		n.Queue = slices.Delete(n.Queue, i, i+1)
	}
	delete(n.Entries, id)
	delete(n.Turns, id)
	n.tidy()
}

func (n *Name) dropGrant() {
	n.Grant.ID, n.Grant.Channel = "", ""
	n.tidy()
}

func (n *Name) enter(id string, e Entry) {
	if n.Entries == nil {
		n.Entries = make(map[string]Entry)
	}
	n.Entries[id] = e
}

func set(m *map[string]int64, key string, value int64) {
	if *m == nil {
		*m = make(map[string]int64)
	}
	(*m)[key] = value
}

func mine(t Text, id string) bool {
	return t.There && len(t.Value) > len(id) && t.Value[:len(id)] == id && t.Value[len(id)] == '.'
}

// ticketOf is the ticket in a token, "0" where there is none.
func ticketOf(value string) string {
	parts := strings.SplitN(value, ".", 4)
	if len(parts) < 4 || !isDigits(parts[1]) || !isDigits(parts[2]) {
		return "0"
	}
	return parts[2]
}

func isDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

func counter(t Text) uint64 {
	if !t.There || !isDigits(t.Value) {
		return 0
	}
	n, err := strconv.ParseUint(t.Value, 10, 64)
	if err != nil || n >= tooHigh {
		return 0
	}
	return n
}

func digits[T int64 | uint64 | int](n T) string {
	if n < 0 {
		return strconv.FormatInt(int64(n), 10)
	}
	return strconv.FormatUint(uint64(n), 10)
}
