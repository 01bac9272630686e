package relay

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// errProtocol marks what is no RESP. It means that the relay lost its place, so nothing after it could be counted.
var errProtocol = errors.New("not RESP")

const (
	maxLine  = 1 << 20
	maxBulk  = 512 << 20 // Redis' own bound.
	maxDepth = 64
)

// A cutter cuts a stream into whole requests or whole replies. What it returns is byte for byte what it read, and the caller's to keep.
type cutter struct {
	r   *bufio.Reader
	raw []byte
}

func newCutter(r io.Reader) *cutter { return &cutter{r: bufio.NewReader(r)} }

// request returns the next request and its words. No words: the server will not answer it (an empty line, an empty array).
func (c *cutter) request() (raw []byte, args []string, err error) {
	c.raw = nil
	line, err := c.line()
	if err != nil {
		return nil, nil, err
	}
	if line[0] != '*' {
		return c.raw, strings.Fields(string(line)), nil // Typed by hand; Redis calls it inline.
	}
	n, err := length(line)
	if err != nil {
		return nil, nil, err
	}
	for range n {
		if line, err = c.line(); err != nil {
			return nil, nil, unexpected(err)
		}
		size, err := length(line)
		if err != nil {
			return nil, nil, err
		}
		if line[0] != '$' || size < 0 {
			return nil, nil, fmt.Errorf("%w: a request with a word of type %q", errProtocol, line)
		}
		word, err := c.body(size)
		if err != nil {
			return nil, nil, unexpected(err)
		}
		args = append(args, string(word))
	}
	return c.raw, args, nil
}

// reply returns the next reply or push.
func (c *cutter) reply() (raw []byte, err error) {
	c.raw = nil
	if err := c.value(0); err != nil {
		return nil, err
	}
	return c.raw, nil
}

func (c *cutter) value(depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("%w: nested deeper than %d", errProtocol, maxDepth)
	}
	line, err := c.line()
	if err != nil {
		return err
	}
	var values int
	switch line[0] {
	case '+', '-', ':', '_', '#', ',', '(':
		return nil
	case '$', '=', '!':
		size, err := length(line)
		if err != nil || size < 0 {
			return err
		}
		_, err = c.body(size)
		return unexpected(err)
	case '*', '~', '>':
		values, err = length(line)
	case '%':
		values, err = length(line)
		values *= 2
	case '|':
		values, err = length(line)
		values = 2*values + 1 // Attributes stand before the value that they describe, and belong to it.
	default:
		return fmt.Errorf("%w: a value that starts %q", errProtocol, line[:min(len(line), 20)])
	}
	if err != nil {
		return err
	}
	for range values {
		if err := c.value(depth + 1); err != nil {
			return unexpected(err)
		}
	}
	return nil
}

// line reads on to the end of the line and returns it with that end.
func (c *cutter) line() ([]byte, error) {
	from := len(c.raw)
	for {
		part, err := c.r.ReadSlice('\n')
		c.raw = append(c.raw, part...)
		switch {
		case err == nil:
			return c.raw[from:], nil
		case len(c.raw)-from > maxLine:
			return nil, fmt.Errorf("%w: a line longer than %d bytes", errProtocol, maxLine)
		case errors.Is(err, bufio.ErrBufferFull):
		case len(c.raw) > 0:
			return nil, unexpected(err)
		default:
			return nil, err
		}
	}
}

// body reads that many bytes and the end of the line after them. A length is only a claim: memory grows with what has really come.
func (c *cutter) body(size int) ([]byte, error) {
	from := len(c.raw)
	buffer := bytes.NewBuffer(c.raw)
	_, err := io.CopyN(buffer, c.r, int64(size)+2)
	c.raw = buffer.Bytes()
	if err != nil {
		return nil, err
	}
	if !bytes.HasSuffix(c.raw, []byte("\r\n")) {
		return nil, fmt.Errorf("%w: no end of line after %d bytes", errProtocol, size)
	}
	return c.raw[from : from+size], nil
}

// length reads the number of a line such as "*3\r\n". It is -1 for a null, and never less.
func length(line []byte) (int, error) {
	n, err := strconv.Atoi(string(bytes.TrimRight(line[1:], "\r\n")))
	if err != nil || n < -1 || n > maxBulk {
		return 0, fmt.Errorf("%w: a length of %q", errProtocol, line[:min(len(line), 40)])
	}
	return n, nil
}

// unexpected tells an end in the middle of a message from one between two.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

func isPush(raw []byte) bool { return raw[0] == '>' }

// isMessage tells a message of pub/sub from the answer to a (un)subscription.
func isMessage(raw []byte) bool {
	if raw[0] != '*' && raw[0] != '>' {
		return false
	}
	fields := bytes.SplitN(raw, []byte("\r\n"), 4)
	if len(fields) < 4 {
		return false
	}
	switch string(fields[2]) {
	case "message", "pmessage", "smessage":
		return true
	}
	return false
}
