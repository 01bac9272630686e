package lease

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ErrNewer means that a lock was written by a release of redlatch that this one
// cannot read. It is never misread: upgrade.
var ErrNewer = errors.New("written by a newer redlatch")

// ErrForeign means that a lock was not written by redlatch.
var ErrForeign = errors.New("not a redlatch token")

// version is that of the token's form below.
const version = 1

// Token is what proves a hold: the claim, its ticket and its owner. Its text is the
// value that a Redis lock key holds, byte for byte, and it does not change while
// the hold lasts, so that scripts can compare it whole:
//
//	k3Jw…x9.1.1764551336123456.c=report.sh&h=web-3&p=4711&u=deploy%40web-3
//	ID      form  ticket        owner
type Token struct {
	ID     string
	Ticket uint64
	Owner  Owner

	// text is the token as it was read. A newer release may have written more about the
	// owner than this one knows; put together again from the fields above it would not
	// be the value that is stored, and the hold would seem to be another's.
	text string
}

func (t Token) String() string {
	if t.text != "" {
		return t.text
	}
	return TokenHead(t.ID) + strconv.FormatUint(t.Ticket, 10) + "." + t.Owner.text()
}

// TokenHead is how every token of the claim begins, whatever its ticket; with
// [TokenTail], which is how it ends, a server-side script that draws the ticket puts
// the token together.
func TokenHead(id string) string { return id + "." + strconv.Itoa(version) + "." }

// TokenTail is what follows the ticket in a token.
func TokenTail(o Owner) string { return "." + o.text() }

// ParseToken reads a token's text. The error is [ErrForeign] or [ErrNewer]. What was
// read comes out of String again byte for byte, whatever fields are changed.
func ParseToken(text string) (Token, error) {
	id, rest, ok := strings.Cut(text, ".")
	if !ok || !validID(id) || strings.ContainsFunc(rest, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return Token{}, ErrForeign
	}
	form, rest, ok := strings.Cut(rest, ".")
	n, err := strconv.ParseUint(form, 10, 31)
	if !ok || err != nil || strconv.FormatUint(n, 10) != form || n == 0 {
		return Token{}, ErrForeign
	}
	if n > version {
		return Token{}, fmt.Errorf("%w (form %d, this release reads up to %d)", ErrNewer, n, version)
	}
	digits, rest, ok := strings.Cut(rest, ".")
	ticket, err := strconv.ParseUint(digits, 10, 64)
	if !ok || err != nil || strconv.FormatUint(ticket, 10) != digits {
		return Token{}, ErrForeign
	}
	owner, err := parseOwner(rest)
	if err != nil {
		return Token{}, ErrForeign
	}
	return Token{ID: id, Ticket: ticket, Owner: owner, text: text}, nil
}
