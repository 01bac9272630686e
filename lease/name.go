package lease

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxName is the longest name of a lock, in bytes.
const MaxName = 200

// CheckName reports why a name cannot be a lock's: names are 1 to MaxName bytes of
// printable UTF-8, case-sensitive; "/" builds a tree, so it neither begins nor ends
// a name nor stands twice in a row, and space stands only inside.
func CheckName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("the lock's name is empty; give it 1 to %d bytes, for example orders/42", MaxName)
	case len(name) > MaxName:
		return fmt.Errorf("the lock's name has %d bytes, %d is the most; use a hash of the long part", len(name), MaxName)
	case !utf8.ValidString(name):
		return fmt.Errorf("the lock's name %q is not valid UTF-8 at byte %d; encode it, in hex for example", name, invalidAt(name))
	}
	for i, r := range name {
		if !unicode.IsPrint(r) {
			return fmt.Errorf("the lock's name %q has %U at byte %d, which does not print; leave it out or encode it", name, r, i)
		}
	}
	switch {
	case strings.HasPrefix(name, "/"), strings.HasSuffix(name, "/"), strings.Contains(name, "//"):
		return fmt.Errorf(`the lock's name %q begins or ends with "/" or has "//" in it; write a/b`, name)
	case strings.HasPrefix(name, " "), strings.HasSuffix(name, " "):
		return fmt.Errorf("the lock's name %q begins or ends with a space; trim it", name)
	}
	return nil
}

func invalidAt(s string) int {
	for i, r := range s {
		if r == utf8.RuneError {
			if _, n := utf8.DecodeRuneInString(s[i:]); n == 1 {
				return i
			}
		}
	}
	return -1
}
