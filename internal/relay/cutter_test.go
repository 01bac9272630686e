package relay

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
)

func TestTheCutterCutsReplies(t *testing.T) {
	replies := []string{
		"+OK\r\n", "-ERR no\r\n", ":-12\r\n", "$5\r\na\r\nbc\r\n", "$0\r\n\r\n", "$-1\r\n",
		"*0\r\n", "*-1\r\n", "*2\r\n:1\r\n*2\r\n$1\r\nx\r\n+y\r\n",
		"_\r\n", "#t\r\n", ",1.5\r\n", ",inf\r\n", "(3492890328409238509324850943850943825024385\r\n",
		"!9\r\nSYNTAX no\r\n", "=7\r\ntxt:abc\r\n", "%1\r\n+a\r\n*1\r\n:1\r\n", "~2\r\n+a\r\n+b\r\n",
		">3\r\n+message\r\n+ch\r\n+text\r\n", "|1\r\n+ttl\r\n:3600\r\n*1\r\n|1\r\n+k\r\n:1\r\n+v\r\n",
		"$20000\r\n" + strings.Repeat("\r\n", 10000) + "\r\n", "+" + strings.Repeat("x", 20000) + "\r\n",
	}
	c := newCutter(strings.NewReader(strings.Join(replies, "")))
	for _, want := range replies {
		if got, err := c.reply(); string(got) != want || err != nil {
			t.Errorf("cut %.60q, %v; want %.60q", got, err, want)
		}
	}
	if got, err := c.reply(); !errors.Is(err, io.EOF) {
		t.Errorf("after the last: %q, %v", got, err)
	}
}

func TestTheCutterCutsRequests(t *testing.T) {
	requests := []struct {
		raw  string
		args []string
	}{
		{"*2\r\n$3\r\nGET\r\n$4\r\na\r\nb\r\n", []string{"GET", "a\r\nb"}},
		{"PING  hello\r\n", []string{"PING", "hello"}},
		{"PING\n", []string{"PING"}},
		{"\r\n", nil},
		{"*0\r\n", nil},
		{"*-1\r\n", nil},
		{"*2\r\n$3\r\nSET\r\n$0\r\n\r\n", []string{"SET", ""}},
	}
	var stream strings.Builder
	for _, r := range requests {
		stream.WriteString(r.raw)
	}
	c := newCutter(strings.NewReader(stream.String()))
	for _, want := range requests {
		if raw, args, err := c.request(); string(raw) != want.raw || !slices.Equal(args, want.args) || err != nil {
			t.Errorf("cut %q %q, %v; want %q %q", raw, args, err, want.raw, want.args)
		}
	}
	if raw, _, err := c.request(); !errors.Is(err, io.EOF) {
		t.Errorf("after the last: %q, %v", raw, err)
	}
}

func TestTheCutterRefusesWhatIsNoRESP(t *testing.T) {
	for _, stream := range []string{"hello\r\n", "$x\r\n", "*-2\r\n", "$3\r\nabcd\r\n", "$?\r\n", strings.Repeat("*1\r\n", 1000)} {
		if got, err := newCutter(strings.NewReader(stream)).reply(); !errors.Is(err, errProtocol) {
			t.Errorf("%.40q as a reply gave %q, %v", stream, got, err)
		}
	}
	for _, stream := range []string{"*1\r\n:1\r\n", "*1\r\n$-1\r\n", "*x\r\n"} {
		if got, _, err := newCutter(strings.NewReader(stream)).request(); !errors.Is(err, errProtocol) {
			t.Errorf("%q as a request gave %q, %v", stream, got, err)
		}
	}
	for _, stream := range []string{"+OK", "$3\r\nab", "*2\r\n:1\r\n", "$", "*1\r\n$3\r\n"} {
		if got, err := newCutter(strings.NewReader(stream)).reply(); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%q as a reply gave %q, %v", stream, got, err)
		}
	}
}

// Whatever comes, the pieces that the cutter cuts are the stream: nothing is added, lost or moved.
func FuzzCutter(f *testing.F) {
	for _, seed := range []string{
		"+OK\r\n$-1\r\n*2\r\n:1\r\n_\r\n",
		"*2\r\n$3\r\nGET\r\n$1\r\nk\r\nPING\r\n\r\n",
		"%1\r\n+a\r\n~1\r\n#t\r\n>2\r\n+message\r\n+x\r\n",
		"|1\r\n+a\r\n:1\r\n=7\r\ntxt:abc\r\n!3\r\nERR\r\n",
		"*1000000\r\n*-1\r\n$536870912\r\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		check := func(what string, cut func(*cutter) ([]byte, error)) {
			c, rest := newCutter(bytes.NewReader(stream)), stream
			for {
				raw, err := cut(c)
				if err != nil {
					return
				}
				if len(raw) == 0 || !bytes.HasPrefix(rest, raw) {
					t.Fatalf("%s %q cut from %q", what, raw, rest)
				}
				rest = rest[len(raw):]
				isMessage(raw)
			}
		}
		check("reply", (*cutter).reply)
		check("request", func(c *cutter) ([]byte, error) {
			raw, _, err := c.request()
			return raw, err
		})
	})
}
