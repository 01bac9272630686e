//go:build unix

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// count is what a run cost.
type count struct {
	stats    map[string]int // by the server, of everything
	acquired int64
	renewals int64
}

// byClients reports whether that command is sent by clients, and is never called by a script.
func byClients(command string) bool {
	switch name, _, _ := strings.Cut(command, "|"); name {
	case "evalsha", "eval", "ping", "subscribe", "unsubscribe", "hello", "client", "auth", "select":
		return true
	}
	return false
}

// byUs reports whether that command comes from this program and belongs to nobody's lock.
func byUs(command string) bool {
	name, _, _ := strings.Cut(command, "|")
	return name == "info" || name == "config" || name == "monitor"
}

// table lists what clients sent, and what scripts called, as so much for each of n.
func (c count) table(each string, n float64) string {
	var b strings.Builder
	row := func(what string, calls int) {
		fmt.Fprintf(&b, "    %-32s %9d %9.3f %s\n", what, calls, float64(calls)/n, each)
	}
	row("evalsha: join, look, leave, names", c.stats["evalsha"]-int(c.renewals))
	row("evalsha: renewals", int(c.renewals))
	all := 0
	var inner []string
	for _, command := range slices.Sorted(maps.Keys(c.stats)) {
		switch calls := c.stats[command]; {
		case byUs(command):
		case !byClients(command):
			inner = append(inner, fmt.Sprintf("%s %d", command, calls))
		default:
			all += calls
			if command != "evalsha" {
				row(command, calls)
			}
		}
	}
	row("sent without renewals", all-int(c.renewals))
	fmt.Fprintf(&b, "    called in scripts: %s\n", strings.Join(inner, ", "))
	return b.String()
}
