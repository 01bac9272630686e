package relay

import (
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"time"
)

const dialTimeout = 10 * time.Second

// A link is one client's connection and the one to the server that goes with it. Each way has a goroutine that reads and one that
// writes, with a queue between: so a delay is a latency, and a frozen or held way still notices what the sender does.
type link struct {
	relay    *Relay
	client   *net.TCPConn
	requests *lane
	replies  *lane
	once     sync.Once
	gone     chan struct{}

	// Guarded by the relay.

	server     conn // nil until there is one
	unanswered []unanswered
	subscribed bool // from here on replies are not counted
}

type conn interface {
	net.Conn
	CloseWrite() error
}

// An unanswered request is one whose reply has not come.
type unanswered struct {
	trap       *Trap // for the reply
	subscribes bool
}

// A lane is what is under way in one direction.
type lane struct {
	way    Direction
	nudged chan struct{}
	queue  []frame // guarded by the relay
}

// A frame is a whole message; or, without bytes, an order to end.
type frame struct {
	raw   []byte
	due   time.Time
	held  *Trap
	reset bool // an end that the relay makes, not the sender
}

func newLink(r *Relay, client *net.TCPConn) *link {
	return &link{
		relay:    r,
		client:   client,
		requests: &lane{way: Requests, nudged: make(chan struct{}, 1)},
		replies:  &lane{way: Replies, nudged: make(chan struct{}, 1)},
		gone:     make(chan struct{}),
	}
}

func (l *link) run() {
	defer l.relay.forget(l)
	if !l.connect() {
		l.cut()
		return
	}
	var ways sync.WaitGroup
	ways.Go(l.readRequests)
	ways.Go(l.writeRequests)
	ways.Go(l.readReplies)
	ways.Go(l.writeReplies)
	ways.Wait()
	l.end(false)
}

// swallow is the life of a link into a black hole.
func (l *link) swallow() {
	defer l.relay.forget(l)
	_, _ = io.Copy(io.Discard, l.client)
	l.end(false)
}

func (l *link) connect() bool {
	network := "tcp"
	if strings.HasPrefix(l.relay.upstream, "/") {
		network = "unix"
	}
	server, err := net.DialTimeout(network, l.relay.upstream, dialTimeout)
	if err != nil {
		return false // The server is away, which tests do on purpose.
	}
	l.relay.mu.Lock()
	defer l.relay.mu.Unlock()

	select {
	case <-l.gone:
		server.Close()
		return false
	default:
		l.server = server.(conn)
		return true
	}
}

func (l *link) readRequests() {
	cutter := newCutter(l.client)
	for {
		raw, args, err := cutter.request()
		if err != nil {
			l.ended(l.requests, err)
			return
		}
		l.tookRequest(raw, args)
	}
}

func (l *link) tookRequest(raw []byte, args []string) {
	r := l.relay
	r.mu.Lock()
	defer r.mu.Unlock()

	f := frame{raw: raw}
	if len(args) > 0 {
		command := strings.ToUpper(args[0])
		r.requests[command]++
		u := unanswered{subscribes: command == "SUBSCRIBE" || command == "PSUBSCRIBE" || command == "SSUBSCRIBE"}
		f.held, u.trap = r.spring(args)
		l.unanswered = append(l.unanswered, u)
	}
	if f.held != nil {
		close(f.held.caught)
	}
	l.push(l.requests, f)
}

func (l *link) readReplies() {
	cutter := newCutter(l.server)
	for {
		raw, err := cutter.reply()
		if err != nil {
			l.ended(l.replies, err)
			return
		}
		l.tookReply(raw)
	}
}

func (l *link) tookReply(raw []byte) {
	l.relay.mu.Lock()
	defer l.relay.mu.Unlock()

	trap, lost := l.answered(raw)
	if trap == nil {
		if !lost {
			l.push(l.replies, frame{raw: raw})
		}
		return
	}
	close(trap.caught)
	if trap.action == cutReply {
		// In the queue, so that the replies before it arrive.
		l.push(l.replies, frame{reset: true})
	}
}

// answered finds the request that a reply belongs to and returns the trap set for it, or that the reply is a message to be lost.
func (l *link) answered(raw []byte) (trap *Trap, lost bool) {
	if !l.subscribed && len(l.unanswered) > 0 && l.unanswered[0].subscribes {
		l.subscribed, l.unanswered = true, nil
	}
	if l.subscribed {
		return nil, l.relay.dropMessages && isMessage(raw)
	}
	if isPush(raw) || len(l.unanswered) == 0 {
		return nil, false // Nobody asked: an invalidation, or why the server hangs up.
	}
	trap = l.unanswered[0].trap
	l.unanswered = l.unanswered[1:]
	return trap, false
}

// ended passes an end on behind what came before it. What of a message came before the end is lost: it was never whole.
func (l *link) ended(lane *lane, err error) {
	if errors.Is(err, errProtocol) {
		l.relay.report(err)
		l.cut()
		return
	}
	l.relay.mu.Lock()
	defer l.relay.mu.Unlock()

	l.push(lane, frame{})
}

func (l *link) writeRequests() {
	l.write(l.requests, l.server)
	// The client may have closed only its sending side. A server never does that.
	_ = l.server.CloseWrite()
}

func (l *link) writeReplies() {
	reset := l.write(l.replies, l.client)
	l.end(reset)
}

// write sends what is due until the end. When a peer no longer takes it, the rest is thrown away, and nothing else is done: the client
// that has gone has perhaps a request in the other lane, held, that shall still arrive.
func (l *link) write(lane *lane, to net.Conn) (reset bool) {
	for {
		f, ok := l.next(lane)
		if !ok || f.raw == nil {
			return f.reset
		}
		_, _ = to.Write(f.raw)
	}
}

// next waits for the next frame that may go. It is false when the link was cut.
func (l *link) next(lane *lane) (frame, bool) {
	for {
		f, ready, wait := l.relay.head(lane)
		if ready {
			return f, true
		}
		var due <-chan time.Time
		if wait > 0 {
			due = time.After(wait)
		}
		select {
		case <-l.gone:
			return frame{}, false
		case <-lane.nudged:
		case <-due:
		}
	}
}

// head takes the first frame out of a lane if it may go. If only time is missing, it says how much.
func (r *Relay) head(lane *lane) (f frame, ready bool, wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()

	if len(lane.queue) == 0 || r.frozen&lane.way != 0 {
		return frame{}, false, 0
	}
	f = lane.queue[0]
	if f.held != nil && !f.held.released {
		return frame{}, false, 0
	}
	if wait := time.Until(f.due); wait > 0 {
		return frame{}, false, wait
	}
	lane.queue = lane.queue[1:]
	return f, true, 0
}

// push puts a frame into a lane. The caller has the lock.
func (l *link) push(lane *lane, f frame) {
	f.due = time.Now().Add(l.relay.delay[lane.way])
	lane.queue = append(lane.queue, f)
	lane.nudge()
}

func (l *link) wake() {
	l.requests.nudge()
	l.replies.nudge()
}

func (l *lane) nudge() {
	select {
	case l.nudged <- struct{}{}:
	default:
	}
}

func (l *link) cut() { l.end(true) }

// end closes both sides, at once and whatever is under way.
func (l *link) end(hard bool) {
	l.once.Do(func() {
		l.relay.mu.Lock()
		close(l.gone)
		server := l.server
		l.relay.mu.Unlock()

		if hard {
			reset(l.client)
		} else {
			l.client.Close()
		}
		if server != nil {
			server.Close()
		}
	})
}

// reset closes a connection so that the peer sees a reset and not an orderly end.
func reset(c *net.TCPConn) {
	_ = c.SetLinger(0)
	c.Close()
}
