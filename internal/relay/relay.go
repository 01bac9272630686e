// Package relay is a TCP relay between a Redis client and its server that does on demand what networks do: it delays, freezes, loses and
// cuts. It cuts the streams in whole requests and replies, so that a test can say "lose the answer to this release" and mean just that.
// Faults of the server itself (stopped, killed, restarted) are package servertest's. It does not speak TLS, and it does not understand
// connections that answer otherwise than once per request, except subscribers: no MONITOR, no CLIENT REPLY, no replication.
package relay

import (
	"errors"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// A Direction is one way through the relay, or both.
type Direction int

const (
	Requests Direction = 1 << iota // from client to server
	Replies                        // from server to client, messages of pub/sub too

	Both = Requests | Replies
)

// A Match chooses a request by its words. It is called under the relay's lock, so it must not call the relay.
type Match func(args []string) bool

// Command matches a command by its name, in any case.
func Command(name string) Match {
	return func(args []string) bool { return strings.EqualFold(args[0], name) }
}

// A Relay passes connections on to one server. All of its methods may be called at any time from any goroutine.
type Relay struct {
	upstream string
	listener net.Listener
	report   func(error)
	running  sync.WaitGroup

	mu           sync.Mutex
	closed       bool
	refuse       bool
	blackhole    bool
	dropMessages bool
	frozen       Direction
	delay        map[Direction]time.Duration
	traps        []*Trap // those that have not caught anything yet
	links        map[*link]struct{}
	connections  int
	requests     map[string]int
}

// Start starts a relay that lives until the test ends. The upstream is a host:port, or the path of a socket. The test fails when
// something that is not RESP goes through.
func Start(t testing.TB, upstream string) *Relay {
	t.Helper()
	r, err := New(upstream, func(err error) { t.Errorf("relay to %s: %v", upstream, err) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// New starts a relay that lives until Close. It reports what it cannot understand, and cuts that connection.
func New(upstream string, report func(error)) (*Relay, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &Relay{
		upstream: upstream,
		listener: l,
		report:   report,
		delay:    make(map[Direction]time.Duration),
		links:    make(map[*link]struct{}),
		requests: make(map[string]int),
	}
	r.running.Go(r.accept)
	return r, nil
}

// Addr is the host:port that clients connect to.
func (r *Relay) Addr() string { return r.listener.Addr().String() }

// Close cuts everything and returns when the relay's goroutines have ended.
func (r *Relay) Close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.listener.Close()
	r.Cut()
	r.running.Wait()
}

// Hold keeps back the next request that matches until the trap is released. What its connection sends later waits behind it, as TCP
// has it; other connections go on. If the client gives up and closes, the request still reaches the server after the release.
func (r *Relay) Hold(match Match) *Trap { return r.set(hold, match) }

// DropReply lets the next request that matches through and loses its reply. The connection stays open, and its later replies come
// through: a client that takes the next reply for the lost one is wrong. A client that gives up in time is what this is for.
func (r *Relay) DropReply(match Match) *Trap { return r.set(dropReply, match) }

// CutReply lets the next request that matches through and cuts the connection in place of its reply.
func (r *Relay) CutReply(match Match) *Trap { return r.set(cutReply, match) }

// Freeze keeps everything that goes that way, also the ends of connections, until Thaw. New connections can still be made.
func (r *Relay) Freeze(d Direction) {
	r.change(func() { r.frozen |= d })
}

// Thaw ends every Freeze; what was kept goes on in order.
func (r *Relay) Thaw() {
	r.change(func() { r.frozen = 0 })
}

// Delay makes what arrives from now on take that much longer; zero ends it. It is a latency and not a rate: a pipeline of ten requests
// is late once.
func (r *Relay) Delay(d Direction, by time.Duration) {
	r.change(func() {
		for _, way := range []Direction{Requests, Replies} {
			if d&way != 0 {
				r.delay[way] = by
			}
		}
	})
}

// DropMessages loses the messages of pub/sub, and nothing else, while it is on: a subscription that has died and looks alive.
func (r *Relay) DropMessages(on bool) {
	r.change(func() { r.dropMessages = on })
}

// Refuse resets new connections at once while it is on. A client sees its dial succeed and its first use fail, as with a proxy that
// has nothing behind it: to close the port itself would let somebody else have it.
func (r *Relay) Refuse(on bool) {
	r.change(func() { r.refuse = on })
}

// Blackhole accepts new connections while it is on and never answers on them. They stay so until they are cut.
func (r *Relay) Blackhole(on bool) {
	r.change(func() { r.blackhole = on })
}

// Cut resets all connections on both sides. What is in the relay is lost, also what is held or frozen.
func (r *Relay) Cut() {
	r.mu.Lock()
	links := slices.Collect(maps.Keys(r.links))
	r.mu.Unlock()
	for _, l := range links {
		l.cut()
	}
}

// Connections counts the connections made so far, refused ones too.
func (r *Relay) Connections() int {
	r.mu.Lock()
	defer r.mu.Unlock()

	return r.connections
}

// Open counts the connections that exist.
func (r *Relay) Open() int {
	r.mu.Lock()
	defer r.mu.Unlock()

	return len(r.links)
}

// Requests counts the requests that clients have sent so far, by command in upper case.
func (r *Relay) Requests() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()

	return maps.Clone(r.requests)
}

func (r *Relay) set(what action, match Match) *Trap {
	trap := &Trap{relay: r, match: match, action: what, caught: make(chan struct{})}
	r.change(func() { r.traps = append(r.traps, trap) })
	return trap
}

// change applies a change of the rules and lets everything that waits look at them again.
func (r *Relay) change(rule func()) {
	r.mu.Lock()
	defer r.mu.Unlock()

	rule()
	for l := range r.links {
		l.wake()
	}
}

func (r *Relay) accept() {
	for {
		client, err := r.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			r.report(err)
			return
		}
		r.open(client.(*net.TCPConn))
	}
}

func (r *Relay) open(client *net.TCPConn) {
	r.mu.Lock()
	defer r.mu.Unlock()

	r.connections++
	if r.refuse || r.closed {
		reset(client)
		return
	}
	l := newLink(r, client)
	r.links[l] = struct{}{}
	if r.blackhole {
		r.running.Go(l.swallow)
		return
	}
	r.running.Go(l.run)
}

func (r *Relay) forget(l *link) {
	r.mu.Lock()
	defer r.mu.Unlock()

	delete(r.links, l)
}
