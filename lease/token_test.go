package lease

import (
	"errors"
	"maps"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestTokensThatAreNotOurs(t *testing.T) {
	id := strings.Repeat("a", idLen)
	tests := []struct {
		says, text string
		want       error
	}{
		{"nothing", "", ErrForeign},
		{"a uuid, as redis-py writes", "0f8fad5b-d9cd-469f-a165-70867728950e", ErrForeign},
		{"base64, as redsync writes", "VGhpcyBpcyBhIHRlc3Qh==", ErrForeign},
		{"an ID alone", id, ErrForeign},
		{"no ticket", id + ".1.", ErrForeign},
		{"no owner", id + ".1.7", ErrForeign},
		{"an ID that is too short", id[1:] + ".1.7.", ErrForeign},
		{"an ID that is too long", "a" + id + ".1.7.", ErrForeign},
		{"a character that no ID has", "." + id[1:] + ".1.7.", ErrForeign},
		{"form 0", id + ".0.7.", ErrForeign},
		{"form 01", id + ".01.7.", ErrForeign},
		{"form +1", id + ".+1.7.", ErrForeign},
		{"ticket 07", id + ".1.07.", ErrForeign},
		{"a negative ticket", id + ".1.-7.", ErrForeign},
		{"a ticket too high", id + ".1.18446744073709551616.", ErrForeign},
		{"an owner that is no form", id + ".1.7.u=%zz", ErrForeign},
		{"a line's end", id + ".1.7.u=a\n", ErrForeign},
		{"a newer form", id + ".2.whatever follows", ErrForeign},
		{"a newer form in print", id + ".2.whatever", ErrNewer},
		{"ours", id + ".1.7.", nil},
		{"ours, with what a newer release added", id + ".1.7.u=a&zz=new", nil},
	}
	for _, test := range tests {
		t.Run(test.says, func(t *testing.T) {
			if _, err := ParseToken(test.text); !errors.Is(err, test.want) || (err == nil) != (test.want == nil) {
				t.Errorf("error %v, want %v", err, test.want)
			}
		})
	}
}

func FuzzParseToken(f *testing.F) {
	id := strings.Repeat("a", idLen)
	for _, text := range []string{
		"", "x", id + ".1.1764551336123456.c=report.sh&h=web-3&p=4711&u=deploy%40web-3", id + ".2.x", id + ".1.7.l.a=b&x=y&u=%61",
		id + ".1.7.a;b", id + ".1.7.p=1e3",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		token, err := ParseToken(text)
		if err != nil {
			if !errors.Is(err, ErrForeign) && !errors.Is(err, ErrNewer) {
				t.Errorf("ParseToken(%q): error %v is neither", text, err)
			}
			return
		}
		// Scripts compare it whole.
		if got := token.String(); got != text {
			t.Errorf("%q was read and comes out as %q", text, got)
		}
		rebuilt, err := ParseToken(Token{ID: token.ID, Ticket: token.Ticket, Owner: token.Owner}.String())
		if err != nil || rebuilt.ID != token.ID || rebuilt.Ticket != token.Ticket || !sameOwner(rebuilt.Owner, token.Owner) {
			t.Errorf("%q, put together again, reads as %+v, error %v", text, rebuilt, err)
		}
	})
}

func sameOwner(a, b Owner) bool {
	labels := maps.Equal(a.Labels, b.Labels)
	a.Labels, b.Labels = nil, nil
	return labels && a.Name == b.Name && a.Host == b.Host && a.PID == b.PID && a.Command == b.Command && a.Note == b.Note
}

func FuzzOwner(f *testing.F) {
	f.Add("deploy@web-3", "web-3", 4711, "report.sh", "", "ring", "1", uint64(7))
	f.Add("\x00\xff", "&=;%+ ", -1, "\n", "ü→", "", "", uint64(0))
	f.Add("\x1b[2J\u202e", "h", 0, "", "", "", "", uint64(1))
	f.Add("a.b", "u", 0, "c", "l.x", "l.", "=", uint64(1<<63))
	f.Fuzz(func(t *testing.T, name, host string, pid int, command, note, label, value string, ticket uint64) {
		o := Owner{Name: name, Host: host, PID: pid, Command: command, Note: note, Labels: map[string]string{label: value}}
		token := Token{ID: strings.Repeat("a", idLen), Ticket: ticket, Owner: o}
		text := token.String()
		for i := range len(text) {
			if text[i] <= ' ' || text[i] > '~' {
				t.Errorf("%q has a byte that does not print", text)
			}
		}
		if text != TokenHead(token.ID)+strings.TrimSuffix(strings.TrimPrefix(text, TokenHead(token.ID)), TokenTail(o))+TokenTail(o) {
			t.Errorf("%q is not its head and tail", text)
		}
		read, err := ParseToken(text)
		if err != nil || read.ID != token.ID || read.Ticket != ticket || !sameOwner(read.Owner, o) {
			t.Errorf("%q reads as %+v, error %v, want %+v", text, read, err, o)
		}
		checkPrints(t, o.String())
		if fits := o.CheckSize() == nil; fits != (len(o.text()) <= MaxOwner) {
			t.Errorf("an owner of %d bytes fits: %v", len(o.text()), fits)
		}
	})
}

// checkPrints: nothing in s moves a cursor, ends a line or turns its direction.
func checkPrints(t *testing.T, s string) {
	t.Helper()
	if !utf8.ValidString(s) {
		t.Errorf("%q is not UTF-8", s)
	}
	for _, r := range s {
		if unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Bidi_Control) {
			t.Errorf("%q has %U", s, r)
		}
	}
}

func FuzzPrintable(f *testing.F) {
	for _, s := range []string{"", "plain", `back\slash "quotes"`, "\x1b[2J", "\u202egnp.exe", "a\r\nb", "\xff", "\u2028", "\U000e0041", "\u200f", "ü→🔒"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p := Printable(s)
		checkPrints(t, p)
		plain := true
		for _, r := range s {
			plain = plain && r != '\\' && r != utf8.RuneError && unicode.IsGraphic(r)
		}
		if plain && p != s {
			t.Errorf("%q needs no escape and comes out as %q", s, p)
		}
	})
}
