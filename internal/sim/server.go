package sim

import (
	"time"

	"github.com/redlatch/redlatch/internal/redismodel"
	"github.com/redlatch/redlatch/lease"
)

// server is the Redis server, its clock and the connections that messages go out on. A
// script is one step of it.
type server struct {
	w     *world
	model redismodel.Server
	ppm   int64 // how much faster its clock runs
	off   int64 // by how much it was set, in ns
	down  bool

	// epoch counts what no lease survives: data lost, a clock put forward. Two holds of one
	// epoch never overlap; of two, they may.
	epoch int

	conns []*conn

	queues map[string]*lease.Queue // in games with shares
}

// conn is a subscription's connection. To the server it lives until it is told otherwise.
type conn struct {
	p        *process
	id       uint64
	channels [3]string // the process's, the marker, the news
	there    bool      // the server knows it
	broken   bool      // nothing comes through any more
	old      bool      // it leads to a server that is the master no more
	last     int64     // when the last message arrives
}

func newServer(w *world) *server {
	s := &server{w: w, ppm: w.rand.Int64N(8001) - 4000, queues: make(map[string]*lease.Queue)}
	s.model.Subscribers = s.subscribers
	s.model.Publish = s.publish
	return s
}

// clock is 1 December 2026 and what has passed since, as the server sees it.
func (s *server) clock() int64 {
	return 1_796_083_200_000_000 + (s.w.now+s.w.now/1_000_000*s.ppm+s.off)/1000
}

func (s *server) subscribers(channel string) int {
	n := 0
	for _, c := range s.conns {
		if c.there && !c.old && (c.channels[0] == channel || c.channels[1] == channel || c.channels[2] == channel) {
			n++
		}
	}
	return n
}

func (s *server) publish(channel, message string) int {
	n := 0
	for _, c := range s.conns {
		if !c.there || c.old || c.channels[0] != channel && c.channels[1] != channel && c.channels[2] != channel {
			continue
		}
		n++
		if c.broken || c.p.isCut() {
			c.broken = true // the bytes are lost, and with them the connection
			continue
		}
		c.last = max(c.last, s.w.now+int64(c.p.delay()))
		epoch := s.epoch
		c.p.receive(c.last, func() {
			if !c.broken {
				c.p.hear(c, message, epoch)
			}
		})
	}
	return n
}

// do carries out one call, and lets the judge see what it has changed.
func (s *server) do(lock string, call func(m *redismodel.Server)) {
	s.model.Now = s.clock()
	s.w.judge.before(lock)
	call(&s.model)
	s.w.judge.after(lock)
}

// step sets the clock.
func (s *server) step(by time.Duration) {
	s.off += int64(by)
	if by > 0 {
		s.newEpoch(false)
		return
	}
	s.w.judge.stretched += -by // everything lasts longer, and is waited for
}

// newEpoch: what was promised before does not count any more.
func (s *server) newEpoch(restored bool) {
	s.epoch++
	s.w.judge.newEpoch(restored)
}

// restart: the server is away for a while, and comes back with what it had or with nothing.
func (s *server) restart(forgets bool, away time.Duration) {
	if s.down {
		return
	}
	s.down = true
	s.dropAll(false)
	s.w.after(away, func() {
		s.down = false
		if forgets {
			s.model.Restore(nil)
			s.queues = make(map[string]*lease.Queue)
			s.newEpoch(false)
		}
		s.w.note("the server is back")
	})
}

// failOver: what was written in the lag before it is lost; the new master's
// clock is its own. Linger: subscriptions stay with the old one, which goes on to answer
// their pings.
func (s *server) failOver(lag time.Duration, linger bool) {
	replica := s.model.Clone()
	s.w.after(lag, func() {
		if s.down {
			return
		}
		s.model.Restore(replica)
		s.off += int64(s.w.between(0, 5*time.Millisecond))
		s.dropAll(linger)
		s.newEpoch(true)
		s.w.note("another server is the master, with what there was %v ago", lag)
	})
}

func (s *server) evict(queue bool) {
	for _, lock := range s.w.names {
		s.model.Now = s.clock()
		n := s.model.Name(lock)
		if queue {
			n.Queue, n.About = nil, redismodel.About{}
		} else {
			n.Last = redismodel.Text{}
		}
	}
	s.w.judge.disturbed()
}

// dropAll ends all subscriptions, or leaves them with a server that is none any more.
func (s *server) dropAll(linger bool) {
	for _, c := range s.conns {
		if linger {
			c.old = true
			continue
		}
		s.drop(c)
		c.p.receive(s.w.now+int64(c.p.delay()), func() { c.p.hungUp(c) })
	}
	if !linger {
		s.conns = nil
	}
	for _, p := range s.w.procs {
		p.disturbed()
	}
}

// drop makes the server forget a connection.
func (s *server) drop(c *conn) {
	c.there = false
	for i, o := range s.conns {
		if o == c {
			s.conns = append(s.conns[:i:i], s.conns[i+1:]...)
			return
		}
	}
}

// heal: the server notices the connections whose other end is gone.
func (s *server) heal() {
	for _, c := range append([]*conn{}, s.conns...) {
		if c.broken || c.p.dead {
			s.drop(c)
		}
	}
}
