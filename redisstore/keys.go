package redisstore

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
)

// keyspace says under which keys a name lives. Names are printable, so they have no
// control characters, and neither may the prefix: a key with one is never a lock's.
//
// The lock key is the prefix and the name, a plain string that clients of other
// libraries lock too. What else belongs to the name must be in the same slot of a
// Redis Cluster, for every legal name, and begin with the prefix, so that one ACL
// pattern covers all of it. A slot is that of the whole key, or, if the key has a
// "{" and a "}" behind it with something between the first ones, of what is between.
// With K the lock key and P the prefix, and x saying what is kept there:
//
//	lock key                        further keys            slot
//	lock:a{42}b  has a tag          K \x01 x                of the same tag, 42
//	lock:a{b     no tag, no "}"     P {K} \x02 x            K is the tag
//	lock:a{}b    no tag, but a "}"  P {n} \x03 x \x03 K     n is a number with the slot of K
//
// In the third case K cannot stand between braces, for the tag would end at its "}".
// The first control character says which case it is, and K can be read back from
// each, so no two names share a key.
type keyspace struct {
	prefix string
}

func newKeyspace(prefix string) (keyspace, error) {
	for i := range len(prefix) {
		if prefix[i] < ' ' || prefix[i] == 0x7f {
			return keyspace{}, fmt.Errorf("the prefix %q has a control character at byte %d", prefix, i)
		}
	}
	// With half a tag, or an empty one, in the prefix, no key behind it could have one.
	if strings.Contains(prefix, "{") && tag(prefix) == "" {
		return keyspace{}, fmt.Errorf(`the prefix %q has a "{" that begins no hash tag; leave it out, or write {tag}`, prefix)
	}
	return keyspace{prefix: prefix}, nil
}

// lock is the name's lock key.
func (k keyspace) lock(name string) string { return k.prefix + name }

// name is what lock was called with.
func (k keyspace) name(key string) (string, bool) { return strings.CutPrefix(key, k.prefix) }

// keys are all keys of a call about one claim of the name, in the order of
// scripts/prelude.lua. Shared and permit claims will add theirs behind these.
func (k keyspace) keys(name, id string) []string {
	further := k.further(name)
	return []string{
		k.lock(name),
		further("q"),
		further("w"),
		further("t"),
		further("s"),
		further("x" + id),
	}
}

// Key is one of the keys that keep a name.
type Key struct {
	Key  string
	Type string // as the server has it
	What string // is in it
}

// Keys are the keys under which the server keeps that name, for people who look with
// other tools. Each is there only while it is needed. What a claim that left leaves
// behind for a minute is not listed.
func (s *Store) Keys(name string) []Key {
	keys := s.keys.keys(name, "")
	return []Key{
		{keys[0], "string", "the lock: its holder's token, with the lease as its time to live"},
		{keys[1], "zset", "who waits, by ticket"},
		{keys[2], "hash", "about those who wait, by claim"},
		{keys[3], "string", "the last ticket"},
		{keys[4], "string", "the seal: closed though nobody holds it"},
	}
}

// further returns the naming of the keys that belong to the name.
func (k keyspace) further(name string) func(what string) string {
	key := k.lock(name)
	switch {
	case tag(key) != "":
		return func(what string) string { return key + "\x01" + what }
	case !strings.Contains(key, "}"):
		head := k.prefix + "{" + key + "}\x02"
		return func(what string) string { return head + what }
	}
	head := k.prefix + "{" + slotTag(slot(key)) + "}\x03"
	return func(what string) string { return head + what + "\x03" + key }
}

// channel is that of one process. Channels know no database numbers; the process's
// random name keeps programs in two databases apart.
func (k keyspace) channel(process string) string { return k.prefix + "\x04c" + process }

// news is the channel of all processes: what each of them may have to know.
func (k keyspace) news() string { return k.prefix + "\x04b" }

// index is the key that lists the processes which keep records of what they hold, and
// record one process's. They share a slot: a script writes both.
func (k keyspace) index() string                { return k.prefix + "{\x04names}" }
func (k keyspace) record(process string) string { return k.index() + process }

// seals is the key that lists the names which are closed. No process has so short a name.
func (k keyspace) seals() string { return k.index() + "s" }

// tag is the part of a key that decides its slot; "" means that all of it does.
func tag(key string) string {
	_, rest, ok := strings.Cut(key, "{")
	if !ok {
		return ""
	}
	tag, _, ok := strings.Cut(rest, "}")
	if !ok {
		return ""
	}
	return tag
}

const slots = 16384

// slot is the key's slot in a Redis Cluster.
func slot(key string) uint16 {
	if t := tag(key); t != "" {
		key = t
	}
	return crc16(key) % slots
}

// crc16 is CRC-16/XMODEM, as Redis has it. It is only needed for names with odd
// braces, so it is short rather than fast.
func crc16(s string) uint16 {
	var crc uint16
	for i := range len(s) {
		crc ^= uint16(s[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc
}

// slotTag is the smallest number whose text has that slot.
func slotTag(slot uint16) string { return strconv.Itoa(slotTags()[slot]) }

var slotTags = sync.OnceValue(func() *[slots]int {
	var tags [slots]int
	for i := range tags {
		tags[i] = -1
	}
	for n, missing := 0, slots; missing > 0; n++ {
		if s := crc16(strconv.Itoa(n)) % slots; tags[s] < 0 {
			tags[s] = n
			missing--
		}
	}
	return &tags
})
