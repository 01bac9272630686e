package redisstore

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/internal/lines"
	"github.com/redlatch/redlatch/lease"
)

// scripted answers in the place of a server: each command that a client sends gets the
// next answer, whatever it asked, and when there is none any more an error.
type scripted struct {
	mu      sync.Mutex
	answers []any
}

func (s *scripted) next() (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if len(s.answers) == 0 {
		return nil, errors.New("no more answers")
	}
	answer := s.answers[0]
	s.answers = s.answers[1:]
	return answer, nil
}

func (s *scripted) answer(cmd redis.Cmder) {
	value, err := s.next()
	if err != nil {
		cmd.SetErr(err)
		return
	}
	texts := func() (list []string) {
		fields, _ := value.([]any)
		for _, f := range fields {
			text, _ := f.(string)
			list = append(list, text)
		}
		return list
	}
	text, _ := value.(string)
	switch c := cmd.(type) {
	case *redis.Cmd:
		c.SetVal(value)
	case *redis.StringSliceCmd:
		c.SetVal(texts())
	case *redis.ScanCmd:
		c.SetVal(texts(), 0)
	case *redis.StringCmd:
		c.SetVal(text)
	case *redis.IntCmd:
		n, _ := value.(int64)
		c.SetVal(n)
	}
}

func (s *scripted) DialHook(redis.DialHook) redis.DialHook {
	return func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("no network") }
}

func (s *scripted) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		s.answer(cmd)
		return cmd.Err()
	}
}

func (s *scripted) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			s.answer(cmd)
		}
		return nil
	}
}

// values reads what a server may answer, one value a line: a text in quotes, an integer,
// "[" and "]" around a list, anything else is a null.
func values(text string) []any {
	stack := [][]any{nil}
	push := func(v any) { stack[len(stack)-1] = append(stack[len(stack)-1], v) }
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case line == "[" && len(stack) < 10:
			stack = append(stack, nil)
		case line == "]" && len(stack) > 1:
			list := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			push(list)
		case strings.HasPrefix(line, `"`):
			s, err := strconv.Unquote(line)
			if err != nil {
				s = line
			}
			push(s)
		default:
			if n, err := strconv.ParseInt(line, 10, 64); err == nil {
				push(n)
			} else {
				push(nil)
			}
		}
	}
	for len(stack) > 1 {
		list := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		push(list)
	}
	return stack[0]
}

const (
	mallory = "mmmmmmmmmmmmmmmmmmmmmm"

	// What a server answers that means well, and what none would.
	heldAnswer    = "[\n\"held\"\n\"7\"\n\"0\"\n\"0\"\n0\n30000\n\"" + mallory + ".1.7.h=x\"\n30000\n\"\"\n0\n1\n0\n1\n\"1764551336123456\"\n]\n"
	waitingAnswer = "[\n\"waiting\"\n\"8\"\n\"0\"\n\"7\"\n1\n0\n\"" + mallory + ".1.7.h=x\"\n30000\n\"\"\n0\n1\n0\n1\n\"1764551336123456\"\n]\n"
	ticketless    = "[\n\"waiting\"\n\"0\"\n\"0\"\n\"0\"\n1\n0\n\"\"\n0\n\"\"\n0\n1\n0\n1\n\"0\"\n]\n"
	endless       = "[\n\"waiting\"\n\"8\"\n\"0\"\n\"7\"\n1\n0\n\"" + mallory + ".1.7.h=x\"\n9223372036854775807\n\"" + noVictim + "v=1\"\n9223372036854775807\n1\n0\n1\n\"18446744073709551615\"\n]\n"
)

// FuzzHostileServer lets a server answer what it likes, and others publish what they
// like. Nothing may panic or run hot, and nobody may come to trust a lock for longer than
// what was handed over is good for.
func FuzzHostileServer(f *testing.F) {
	grant := "g\n" + mallory + "\n8\n5000\nlock:n"
	f.Add(heldAnswer+heldAnswer+heldAnswer, grant, false)
	f.Add(waitingAnswer+waitingAnswer+waitingAnswer, grant, false)
	f.Add(waitingAnswer, "g\n"+mallory+"\n8\n9223372036854775807\nlock:n", false)
	f.Add(waitingAnswer, "s\n9223372036854775807\nlock:n\n"+noVictim+"v=%zz", true)
	f.Add(waitingAnswer, "p\n"+mallory+"\n-9223372036854775808\nlock:n", true)
	f.Add(ticketless+ticketless, "b\n"+mallory+"\nlock:n\n", false)
	f.Add(waitingAnswer, "", true)
	f.Add(endless+endless+endless+endless, "g\n\n\n\nlock:", false)
	f.Add("[\n"+heldAnswer+"[\n\"a\"\n]\n[\n\"b\"\n]\n\"7\"\n]\n", "", true)
	f.Fuzz(func(t *testing.T, answers, message string, try bool) {
		client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
		defer client.Close()
		server := &scripted{answers: values(answers)}
		client.AddHook(server)
		s, err := New(client, Options{Poll: true})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()

		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		c := lease.Claim{ID: mallory, TTL: 30 * time.Second, NoWait: try}
		st, err := s.Join(ctx, "n", c)
		if err == nil && try && st.State == lease.Waiting {
			t.Errorf("a claim that does not wait is told to: %+v", st)
		}
		asked := st.Asked
		s.deliver(message, 1)
		s.mu.Lock()
		if k := s.book.Claim("n", mallory); k != nil && k.W != nil && k.Held && st.State == lease.Waiting {
			if got := k.W.Last; got.Asked == asked && got.Lease > lines.Grant {
				t.Errorf("a message gave a lease of %v", got.Lease)
			}
		}
		for name, due := range s.book.Dues() {
			if due < 0 {
				t.Errorf("%q is due at %v, which is always", name, due)
			}
		}
		s.mu.Unlock()
		_, _ = s.Join(ctx, "n", c)
		_ = s.Renew(ctx, []driver.Ref{{Name: "n", Token: lease.Token{ID: mallory, Ticket: 8}, TTL: time.Second}})
		_, _ = s.Inspect(ctx, "n")
		for name, err := range s.Names(ctx, "") {
			if err == nil && lease.CheckName(name) != nil {
				t.Errorf("a name %q is listed", name)
			}
		}
		_, _ = s.Node(ctx)
		_, _ = s.Leave(ctx, "n", mallory, 0, lease.Seal{})
		if ctx.Err() != nil {
			t.Error("it does not end")
		}
	})
}

// FuzzAnswer reads one answer as each thing that an answer can be.
func FuzzAnswer(f *testing.F) {
	for _, answer := range []string{heldAnswer, waitingAnswer, ticketless, endless} {
		f.Add(answer)
	}
	entry := strconv.Quote("c\n30000\n0\n1764551336123\n" + mallory + ".1.\nlock:\x04cX\n.h=x")
	f.Add("[\n" + heldAnswer + "[\n\"" + mallory + "\"\n\"8\"\n]\n[\n\"" + mallory + "\"\n" + entry + "\n]\n\"9\"\n]")
	f.Add("[\n" + heldAnswer + "[\n\"odd\"\n]\n[\n\"odd\"\n]\n\"9\"\n]")
	f.Add("[\n" + heldAnswer + "[\n\"" + mallory + "\"\n\"-inf\"\n]\n[\n\"" + mallory + "\"\n" + entry + "\n]\n\"9\"\n]")
	f.Fuzz(func(t *testing.T, text string) {
		for _, value := range values(text) {
			fields, _ := value.([]any)
			if r, err := parseReply(fields); err == nil {
				_ = r.foreign()
				st, err := r.standing(mallory, 0)
				if err == nil && (st.Ticket >= 1<<53 || st.Left < 0 || st.Seal.For < 0 || st.Room < 0) {
					t.Errorf("a standing that cannot be: %+v", st)
				}
			}
			q, err := parseQueue(fields)
			if err != nil {
				continue
			}
			for _, e := range q.Claims {
				if !e.Held() && e.Ticket >= 1<<53 || e.TTL < 0 || e.Room < 0 {
					t.Errorf("a claim that cannot be: %+v", e)
				}
			}
		}
	})
}

// FuzzSeal reads a seal's text, and takes one that is written for what it says.
func FuzzSeal(f *testing.F) {
	f.Add(noVictim+"v=done", "value", "by", "reason")
	f.Add(mallory+"b=%zz&;", "\x00\xff", "", "\n")
	f.Fuzz(func(t *testing.T, text, value, by, reason string) {
		if s := parseSeal(text, time.Second); len(s.Victim) > len(text) {
			t.Errorf("a victim %q in %q", s.Victim, text)
		}
		want := lease.Seal{For: time.Second, Value: value, By: by, Reason: reason}
		if got := parseSeal(sealText(want), time.Second); got != want {
			t.Errorf("%+v came back as %+v", want, got)
		}
	})
}

// FuzzInfo reads who a server says it is.
func FuzzInfo(f *testing.F) {
	f.Add("# Server\r\nrun_id:0123456789abcdef\r\nuptime_in_seconds:42\r\n")
	f.Add("uptime_in_seconds:9223372036854775807\nrun_id:")
	f.Add("uptime_in_seconds:-5")
	f.Fuzz(func(t *testing.T, info string) {
		if n := parseNode(info); n.Uptime < 0 || n.Uptime%time.Second != 0 {
			t.Errorf("up for %v", n.Uptime)
		}
	})
}
