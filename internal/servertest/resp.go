//go:build unix

package servertest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

// replyTimeout bounds each reply, so that a test against a stopped server says so and does not hang.
const replyTimeout = 10 * time.Second

// A ReplyError is an error that the server answered, as it wrote it.
type ReplyError string

func (e ReplyError) Error() string { return string(e) }

// A Conn is one connection to a Redis server. It exists to check on servers and relays; it is not for use by several goroutines.
type Conn struct {
	conn net.Conn
	r    *bufio.Reader
}

// Dial connects to host:port, or to the socket at a path.
func Dial(addr string) (*Conn, error) {
	network := "tcp"
	if addr != "" && addr[0] == '/' {
		network = "unix"
	}
	conn, err := net.DialTimeout(network, addr, replyTimeout)
	if err != nil {
		return nil, err
	}
	return &Conn{conn: conn, r: bufio.NewReader(conn)}, nil
}

// Do sends one command and waits for its reply.
func (c *Conn) Do(args ...string) (any, error) {
	if err := c.Send(args...); err != nil {
		return nil, err
	}
	return c.Receive(replyTimeout)
}

// Send sends one command and does not wait. Several in a row are a pipeline.
func (c *Conn) Send(args ...string) error {
	request := fmt.Appendf(nil, "*%d\r\n", len(args))
	for _, arg := range args {
		request = fmt.Appendf(request, "$%d\r\n%s\r\n", len(arg), arg)
	}
	_, err := c.conn.Write(request)
	return err
}

// Receive returns the next reply: a string, int64, float64, bool, nil or []any of those. RESP3's maps, sets and pushes come as []any
// too. An error that the server answered is a ReplyError: returned when it is the reply, an element when it stands inside one.
func (c *Conn) Receive(within time.Duration) (any, error) {
	if err := c.conn.SetReadDeadline(time.Now().Add(within)); err != nil {
		return nil, err
	}
	reply, err := c.value()
	if err != nil {
		return nil, err
	}
	if said, ok := reply.(ReplyError); ok {
		return nil, said
	}
	return reply, nil
}

// Close may be called more than once.
func (c *Conn) Close() { c.conn.Close() }

func (c *Conn) value() (any, error) {
	line, err := c.r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	if len(line) < 3 {
		return nil, fmt.Errorf("not a reply: %q", line)
	}
	kind, text := line[0], line[1:len(line)-2]
	switch kind {
	case '+', '(':
		return text, nil
	case '-':
		return ReplyError(text), nil
	case ':':
		return strconv.ParseInt(text, 10, 64)
	case ',':
		return strconv.ParseFloat(text, 64)
	case '#':
		return text == "t", nil
	case '_':
		return nil, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return nil, fmt.Errorf("not a reply: %q", line)
	}
	if n < 0 {
		return nil, nil
	}
	switch kind {
	case '$', '=', '!':
		body := make([]byte, n+2)
		if _, err := io.ReadFull(c.r, body); err != nil {
			return nil, err
		}
		if kind == '!' {
			return ReplyError(body[:n]), nil
		}
		return string(body[:n]), nil
	case '%', '|':
		n *= 2
	case '*', '~', '>':
	default:
		return nil, fmt.Errorf("not a reply: %q", line)
	}
	list := make([]any, n)
	for i := range list {
		if list[i], err = c.value(); err != nil {
			return nil, err
		}
	}
	if kind == '|' {
		return c.value() // Attributes stand before the reply that they describe.
	}
	return list, nil
}
