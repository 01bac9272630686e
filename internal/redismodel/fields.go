package redismodel

import "strings"

// Fields are those of the hash about those who wait, as the scripts write them.
func (a *About) Fields() map[string]string {
	m := make(map[string]string)
	for id, e := range a.Entries {
		m[id] = strings.Join([]string{string(e.Mode), digits(e.TTL), digits(e.Room), digits(e.Joined), e.Head, e.Channel, e.Tail}, "\n")
	}
	for channel, at := range a.Polls {
		m["!poll "+channel] = digits(at)
	}
	for id, at := range a.Turns {
		m["!turn "+id] = digits(at)
	}
	if a.Grant.ID != "" {
		m["!grant"] = a.Grant.ID + " " + a.Grant.Channel
	}
	if a.Since != "" {
		m["!since"] = a.Since
	}
	if a.Gap != 0 {
		m["!gap"] = digits(a.Gap)
	}
	if a.InARow.Turns != 0 {
		m["!turns"] = digits(a.InARow.Turns) + " " + digits(a.InARow.Since)
	}
	return m
}

// QueueText are the places as ZRANGE WITHSCORES has them.
func (n *Name) QueueText() []string {
	var list []string
	for _, p := range n.Queue {
		list = append(list, p.ID, digits(p.Ticket))
	}
	return list
}

// QueueEnd and AboutEnd are when the two end, in milliseconds of the server's clock.
func (n *Name) QueueEnd() int64 { return n.queueEnd }
func (n *Name) AboutEnd() int64 { return n.aboutEnd }
