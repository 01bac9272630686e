//go:build unix

package relay_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/relay"
	"github.com/redlatch/redlatch/internal/servertest"
)

// awhile is what the tests wait to see that something does not happen. Too short, it can only miss a fault, not invent one.
const awhile = 50 * time.Millisecond

func start(t *testing.T) (*servertest.RedisServer, *relay.Relay) {
	t.Helper()
	s := servertest.Redis(t, servertest.RedisConfig{})
	return s, relay.Start(t, s.Addr())
}

func dial(t *testing.T, r *relay.Relay) *servertest.Conn {
	t.Helper()
	c, err := servertest.Dial(r.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func send(t *testing.T, c *servertest.Conn, args ...string) {
	t.Helper()
	if err := c.Send(args...); err != nil {
		t.Fatal(err)
	}
}

func answers(t *testing.T, c *servertest.Conn, want any) {
	t.Helper()
	if got, err := c.Receive(5 * time.Second); fmt.Sprint(got) != fmt.Sprint(want) || err != nil {
		t.Errorf("answer %v, %v; want %v", got, err, want)
	}
}

func silent(t *testing.T, c *servertest.Conn) {
	t.Helper()
	if got, err := c.Receive(awhile); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("answer %v, %v; want none", got, err)
	}
}

// broken wants the connection to have ended, and not just to be silent.
func broken(t *testing.T, c *servertest.Conn) {
	t.Helper()
	if got, err := c.Receive(5 * time.Second); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("answer %v, %v; want a broken connection", got, err)
	}
}

func caught(t *testing.T, trap *relay.Trap) {
	t.Helper()
	select {
	case <-trap.Caught():
	case <-time.After(5 * time.Second):
		t.Fatal("the trap caught nothing")
	}
}

func stored(t *testing.T, s *servertest.RedisServer, key string) any {
	t.Helper()
	got, err := s.Do("GET", key)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestItPassesAndCounts(t *testing.T) {
	s, r := start(t)
	big := strings.Repeat("x\r\n", 100_000)
	var clients sync.WaitGroup
	for i := range 4 {
		c := dial(t, r)
		clients.Go(func() {
			key := fmt.Sprint("k", i)
			for _, args := range [][]string{{"set", key, big}, {"GET", key}, {"GET", "none"}, {"EVAL", "return {1, {2, 'a'}}", "0"}} {
				if err := c.Send(args...); err != nil {
					t.Error(err)
				}
			}
			answers(t, c, "OK")
			answers(t, c, big)
			answers(t, c, nil)
			answers(t, c, "[1 [2 a]]")
		})
	}
	clients.Wait()
	if got := r.Requests(); got["SET"] != 4 || got["GET"] != 8 || got["EVAL"] != 4 {
		t.Errorf("requests %v", got)
	}
	if n, m := r.Connections(), r.Open(); n != 4 || m != 4 {
		t.Errorf("%d connections, %d open", n, m)
	}
	overSocket := relay.Start(t, s.Socket())
	if got, err := dial(t, overSocket).Do("GET", "k1"); got != big || err != nil {
		t.Errorf("over the socket: %d bytes, %v", len(fmt.Sprint(got)), err)
	}
}

func TestAClosedClientIsForgottenAndSoIsTheServers(t *testing.T) {
	s, r := start(t)
	c := dial(t, r)
	send(t, c, "PING")
	answers(t, c, "PONG")
	c.Close()
	servertest.Eventually(t, 5*time.Second, "the closed connection to be forgotten", func() bool { return r.Open() == 0 })
	c = dial(t, r)
	send(t, c, "PING")
	answers(t, c, "PONG")
	s.Kill()
	broken(t, c)
	servertest.Eventually(t, 5*time.Second, "the dead server's connection to be forgotten", func() bool { return r.Open() == 0 })
}

func TestAHeldRequestIsOvertakenByOtherConnections(t *testing.T) {
	s, r := start(t)
	join := r.Hold(func(args []string) bool { return slices.Contains(args, "join") })
	a, b := dial(t, r), dial(t, r)
	send(t, a, "SET", "before", "1")
	send(t, a, "SET", "k", "join")
	send(t, a, "SET", "after", "1")
	caught(t, join)
	answers(t, a, "OK")
	send(t, b, "SET", "k", "leave")
	answers(t, b, "OK")
	silent(t, a)
	if got := stored(t, s, "after"); got != nil {
		t.Errorf("a later request of the same connection overtook the held one")
	}
	send(t, b, "SET", "other", "join")
	answers(t, b, "OK") // A trap catches once.
	join.Release()
	join.Release()
	answers(t, a, "OK")
	answers(t, a, "OK")
	if got := stored(t, s, "k"); got != "join" {
		t.Errorf("after the release the key is %v", got)
	}
}

func TestAHeldRequestArrivesThoughItsClientHasGone(t *testing.T) {
	s, r := start(t)
	held := r.Hold(relay.Command("set"))
	c := dial(t, r)
	send(t, c, "GET", "k")
	send(t, c, "SET", "k", "late")
	c.Close()
	caught(t, held)
	if got := stored(t, s, "k"); got != nil {
		t.Errorf("the held request is carried out: %v", got)
	}
	held.Release()
	servertest.Eventually(t, 5*time.Second, "the held request to be carried out", func() bool { return stored(t, s, "k") == "late" })
	servertest.Eventually(t, 5*time.Second, "the link to end", func() bool { return r.Open() == 0 })
}

func TestAReleasedTrapCatchesNothing(t *testing.T) {
	_, r := start(t)
	r.Hold(relay.Command("PING")).Release()
	c := dial(t, r)
	send(t, c, "PING")
	answers(t, c, "PONG")
}

func TestALostReplyIsTheOneThatWasChosen(t *testing.T) {
	s, r := start(t)
	lost := r.DropReply(relay.Command("INCR"))
	c := dial(t, r)
	for _, word := range []string{"1", "2"} {
		send(t, c, "ECHO", word)
		send(t, c, "INCR", "n")
	}
	answers(t, c, "1")
	answers(t, c, "2")
	answers(t, c, 2)
	caught(t, lost)
	if got := stored(t, s, "n"); got != "2" {
		t.Errorf("INCR twice made %v", got)
	}
}

func TestALostReplyIsTheOneThatWasChosenInRESP3(t *testing.T) {
	_, r := start(t)
	c := dial(t, r)
	send(t, c, "HELLO", "3")
	if _, err := c.Receive(5 * time.Second); err != nil {
		t.Fatal(err)
	}
	send(t, c, "CLIENT", "TRACKING", "ON")
	answers(t, c, "OK")
	lost := r.DropReply(relay.Command("SET"))
	send(t, c, "GET", "k")
	answers(t, c, nil)
	send(t, c, "SET", "k", "v") // Its own invalidation comes as a push, and is no reply.
	caught(t, lost)
	send(t, c, "DEBUG", "PROTOCOL", "attrib")
	send(t, c, "DEBUG", "PROTOCOL", "map")
	answers(t, c, "[invalidate [k]]")
	answers(t, c, "Some real reply following the attribute")
	answers(t, c, "[0 false 1 true 2 false]")
}

func TestACutReplyIsACarriedOutRequest(t *testing.T) {
	s, r := start(t)
	cut := r.CutReply(relay.Command("INCR"))
	c, other := dial(t, r), dial(t, r)
	send(t, c, "PING")
	send(t, c, "INCR", "n")
	answers(t, c, "PONG")
	broken(t, c)
	caught(t, cut)
	if got := stored(t, s, "n"); got != "1" {
		t.Errorf("n is %v", got)
	}
	send(t, other, "PING")
	answers(t, other, "PONG")
}

func TestFrozenBytesAreKept(t *testing.T) {
	for _, test := range []struct {
		what       string
		way        relay.Direction
		carriedOut bool
	}{
		{"requests", relay.Requests, false},
		{"replies", relay.Replies, true},
		{"both ways", relay.Both, false},
	} {
		t.Run(test.what, func(t *testing.T) {
			s, r := start(t)
			c := dial(t, r)
			send(t, c, "PING")
			answers(t, c, "PONG")
			r.Freeze(test.way)
			send(t, c, "SET", "k", "v")
			send(t, c, "ECHO", "x")
			silent(t, c)
			if got := stored(t, s, "k") != nil; got != test.carriedOut {
				t.Errorf("carried out while frozen: %v", got)
			}
			r.Thaw()
			answers(t, c, "OK")
			answers(t, c, "x")
		})
	}
}

func TestADelayIsALatency(t *testing.T) {
	s, r := start(t)
	c := dial(t, r)
	for _, way := range []relay.Direction{relay.Requests, relay.Replies, relay.Both} {
		r.Delay(way, 100*time.Millisecond)
		least := 100 * time.Millisecond
		if way == relay.Both {
			least *= 2
		}
		began := time.Now()
		for range 20 {
			send(t, c, "PING")
		}
		for range 20 {
			answers(t, c, "PONG")
		}
		// Twenty delays one after the other would be two seconds and more.
		if took := time.Since(began); took < least || took > 10*least {
			t.Errorf("delay on %d: 20 pipelined requests took %v, want %v and little more", way, took, least)
		}
		r.Delay(relay.Both, 0)
	}
	r.Delay(relay.Replies, time.Hour)
	send(t, c, "SET", "k", "v")
	servertest.Eventually(t, 5*time.Second, "the request to pass undelayed", func() bool { return stored(t, s, "k") == "v" })
}

func TestCutEndsAllConnectionsAndAllowsNewOnes(t *testing.T) {
	s, r := start(t)
	held := r.Hold(relay.Command("SET"))
	a, b := dial(t, r), dial(t, r)
	send(t, b, "PING")
	answers(t, b, "PONG")
	send(t, a, "SET", "k", "v")
	caught(t, held)
	r.Cut()
	broken(t, a)
	broken(t, b)
	held.Release()
	c := dial(t, r)
	send(t, c, "PING")
	answers(t, c, "PONG")
	if got := stored(t, s, "k"); got != nil {
		t.Errorf("a request that was cut in the relay was carried out")
	}
}

func TestRefuseIsForNewConnectionsOnly(t *testing.T) {
	_, r := start(t)
	old := dial(t, r)
	send(t, old, "PING")
	answers(t, old, "PONG")
	r.Refuse(true)
	if c, err := servertest.Dial(r.Addr()); err == nil {
		broken(t, c)
		c.Close()
	}
	send(t, old, "PING")
	answers(t, old, "PONG")
	r.Refuse(false)
	c := dial(t, r)
	send(t, c, "PING")
	answers(t, c, "PONG")
	if n := r.Connections(); n != 3 {
		t.Errorf("%d connections counted", n)
	}
}

func TestABlackholeNeverAnswers(t *testing.T) {
	_, r := start(t)
	r.Blackhole(true)
	c := dial(t, r)
	send(t, c, "PING")
	silent(t, c)
	r.Blackhole(false)
	silent(t, c)
	r.Cut()
	broken(t, c)
	c = dial(t, r)
	send(t, c, "PING")
	answers(t, c, "PONG")
}

func TestAServerThatIsAwayBreaksTheConnection(t *testing.T) {
	s, r := start(t)
	s.Kill()
	broken(t, dial(t, r))
	s.Restart()
	c := dial(t, r)
	send(t, c, "PING")
	answers(t, c, "PONG")
}

func TestASubscriptionCanDieSilently(t *testing.T) {
	for _, protocol := range []string{"2", "3"} {
		t.Run("RESP"+protocol, func(t *testing.T) {
			s, r := start(t)
			c := dial(t, r)
			send(t, c, "HELLO", protocol)
			if _, err := c.Receive(5 * time.Second); err != nil {
				t.Fatal(err)
			}
			send(t, c, "SUBSCRIBE", "a", "b")
			answers(t, c, "[subscribe a 1]")
			answers(t, c, "[subscribe b 2]")
			send(t, c, "PSUBSCRIBE", "c*")
			answers(t, c, "[psubscribe c* 3]")
			send(t, c, "SSUBSCRIBE", "d")
			answers(t, c, "[ssubscribe d 1]")
			publish(t, s, "PUBLISH", "a", "1")
			publish(t, s, "PUBLISH", "cc", "2")
			publish(t, s, "SPUBLISH", "d", "3")
			answers(t, c, "[message a 1]")
			answers(t, c, "[pmessage c* cc 2]")
			answers(t, c, "[smessage d 3]")

			r.DropMessages(true)
			publish(t, s, "PUBLISH", "a", "lost")
			publish(t, s, "PUBLISH", "cc", "lost")
			publish(t, s, "SPUBLISH", "d", "lost")
			send(t, c, "PING", "alive")
			if protocol == "2" {
				answers(t, c, "[pong alive]")
			} else {
				answers(t, c, "alive")
			}
			r.DropMessages(false)
			publish(t, s, "PUBLISH", "b", "4")
			answers(t, c, "[message b 4]")

			r.Freeze(relay.Replies)
			publish(t, s, "PUBLISH", "b", "5")
			silent(t, c)
			r.Thaw()
			answers(t, c, "[message b 5]")
			r.Cut()
			broken(t, c)
		})
	}
}

func publish(t *testing.T, s *servertest.RedisServer, command, channel, text string) {
	t.Helper()
	if n, err := s.Do(command, channel, text); n != int64(1) || err != nil {
		t.Fatalf("%s %s reached %v, %v", command, channel, n, err)
	}
}
