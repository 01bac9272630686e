//go:build unix

package main

import (
	"fmt"
	"strings"
	"testing"
)

// TestEachVerbInEachState: what a script decides on.
func TestEachVerbInEachState(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, store string) {
		const held, sealed = 1, 2 // 0: free
		n := 0
		for _, c := range []struct {
			verb  []string
			codes [3]int
		}{
			{[]string{"acquire", "NAME"}, [3]int{0, codeHeld, codeHeld}},
			{[]string{"acquire", "-w", "0.1", "NAME"}, [3]int{0, codeHeld, codeHeld}},
			{[]string{"hold", "--for", "1m", "NAME"}, [3]int{0, codeHeld, codeHeld}},
			{[]string{"hold", "--end", "NAME"}, [3]int{0, codeHeld, 0}},
			{[]string{"run", "NAME", "--", "true"}, [3]int{0, codeHeld, codeHeld}},
			{[]string{"wait", "--timeout", "0.1", "NAME"}, [3]int{0, codeHeld, codeHeld}},
			{[]string{"is-held", "NAME"}, [3]int{codeFree, 0, 0}},
			{[]string{"who", "NAME"}, [3]int{0, 0, 0}},
			{[]string{"break", "--dry-run", "NAME"}, [3]int{0, 0, codeHeld}},
			{[]string{"break", "--fence", "1", "--reason", "r", "NAME"}, [3]int{0, codeHeld, codeHeld}},
			{[]string{"break", "--yes", "--reason", "r", "NAME"}, [3]int{0, 0, codeHeld}},
			{[]string{"renew", "NAME", "LOST"}, [3]int{codeLost, codeLost, codeLost}},
			{[]string{"release", "NAME", "LOST"}, [3]int{0, codeHeld, 0}},
		} {
			for state := range 3 {
				n++
				name := fmt.Sprintf("x%d", n)
				lost := acquired(t, store, name)
				start(t, store, "release", name, lost).want(0)
				token := ""
				switch state {
				case held:
					token = acquired(t, store, "--ttl", "1h", "--owner", evil, "--note", evil, name)
				case sealed:
					start(t, store, "run", "--hold-at-least", "1h", name, "--", "true").want(0)
				}
				var args []string
				for _, word := range c.verb {
					args = append(args, strings.NewReplacer("NAME", name, "LOST", lost).Replace(word))
				}
				p := start(t, store, args...)
				if got := p.code(); got != c.codes[state] {
					t.Errorf("%q in state %d: exit code %d, want %d; it says %q", c.verb, state, got, c.codes[state], p.err.String())
				}
				said := p.out.String() + p.err.String()
				if strings.ContainsAny(said, "\x1b\x07\u202e") || strings.Contains(said, "\nroot") {
					t.Errorf("%q in state %d: what a stranger wrote is printed as it is: %q", c.verb, state, said)
				}
				if token != "" && strings.Contains(said, token[:22]) || strings.Contains(said, lost[:22]) {
					t.Errorf("%q in state %d: a token is printed: %q", c.verb, state, said)
				}
				if c.codes[state] >= codeUsage && p.err.String() == "" {
					t.Errorf("%q in state %d: it fails and says nothing", c.verb, state)
				}
			}
		}
	})
}
