package sim

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/lines"
	"github.com/redlatch/redlatch/internal/redismodel"
	"github.com/redlatch/redlatch/lease"
)

// process is one that uses redlatch: its clock, its network, its one Book, and the loop
// that keeps its subscription up. The Book is what ships. The loop, and the calls, are
// played: redisstore's inbox.go (listen, run, missed), join.go (ask, sendJoin, heard),
// wait.go (Wait) and go-redis' repeating of what failed.
type process struct {
	w       *world
	number  int
	life    int // of how many it is
	ppm     int64
	origin  int64
	slept   int64 // how long Go's timers stood still
	dead    bool
	asleep  int64 // it does not run until then
	polls   bool  // Options.Poll
	channel string

	cutUntil  int64 // nothing gets in or out
	slowUntil int64
	snare     time.Duration // for so long it hangs with its next call

	snareRenewal time.Duration // the same with the next renewal
	hazy         int64         // the last time that anything about it was out of order

	book    lines.Book
	waiters map[*lines.Claim]*waiter
	workers []*worker

	sub     *conn // up
	dialing bool
	nextSub uint64
	onSub   []func() // who waits for the subscription
	dropped int64
}

func newProcess(w *world, number, life int) *process {
	p := &process{
		w: w, number: number, life: life, ppm: w.rand.Int64N(8001) - 4000, origin: w.now - w.rand.Int64N(1e12), hazy: w.now,
		polls: w.chance(w.plan.polls), channel: fmt.Sprintf("c%d.%d", number, life),
		waiters: make(map[*lines.Claim]*waiter), dropped: -int64(time.Minute),
	}
	p.book = lines.Book{Wake: p.wake, Began: func(string) {}, Ended: func(string) {}, Random: w.rand.Int64N}
	for i := range w.plan.workers {
		p.workers = append(p.workers, newWorker(p, i))
	}
	return p
}

func (p *process) String() string { return fmt.Sprintf("p%d.%d", p.number, p.life) }

// clock is the process's own: it counts through suspend.
func (p *process) clock() lease.Instant {
	t := p.w.now - p.origin
	return lease.Instant(t + t/1_000_000*p.ppm)
}

// when is the true time at which the clock shows i.
func (p *process) when(i lease.Instant) int64 {
	t := int64(i)
	return p.origin + t - t/(1_000_000+p.ppm)*p.ppm
}

// after is a timer: it stands still while the machine sleeps, and waits while the process
// does not run.
func (p *process) after(d time.Duration, do func()) {
	d -= d / time.Duration(1_000_000+p.ppm) * time.Duration(p.ppm) // it runs on the process's clock
	due := p.w.now - p.slept + int64(d)
	var ring func()
	ring = func() {
		switch {
		case p.dead:
		case p.w.now < p.asleep:
			p.w.at(p.asleep, ring)
		case p.w.now-p.slept < due:
			p.w.at(due+p.slept, ring)
		default:
			do()
		}
	}
	p.w.at(p.w.now+int64(d), ring)
}

// receive hands something to the process that comes at t from outside.
func (p *process) receive(t int64, do func()) {
	var come func()
	come = func() {
		switch {
		case p.dead:
		case p.w.now < p.asleep:
			p.w.at(p.asleep, come)
		default:
			do()
		}
	}
	p.w.at(t, come)
}

func (p *process) delay() time.Duration {
	d := p.w.plan.delay + p.w.between(0, p.w.plan.jitter+1)
	if p.w.now < p.slowUntil {
		d += p.w.between(0, time.Second)
	}
	return d
}

func (p *process) isCut() bool { return p.w.now < p.cutUntil }

// disturbed: what is promised to those with whom all is well is not promised to it now.
func (p *process) disturbed() { p.hazy = max(p.hazy, p.w.now) }

func (p *process) pause(d time.Duration) {
	p.asleep = max(p.asleep, p.w.now+int64(d))
	p.hazy = max(p.hazy, p.asleep)
}

func (p *process) suspend(d time.Duration) {
	if p.w.now < p.asleep {
		return
	}
	p.pause(d)
	p.w.at(p.asleep-1, func() {
		p.slept += int64(d)
	})
}

func (p *process) cut(d time.Duration) {
	p.cutUntil = max(p.cutUntil, p.w.now+int64(d))
	p.hazy = max(p.hazy, p.cutUntil)
	p.w.at(p.cutUntil, func() {
		if !p.isCut() {
			p.w.server.heal()
		}
	})
}

func (p *process) slow(d time.Duration) {
	p.slowUntil = p.w.now + int64(d)
	p.hazy = max(p.hazy, p.slowUntil)
}

// crash kills the process; another one comes in its place.
func (p *process) crash(silently bool) {
	if p.dead {
		return
	}
	p.dead = true
	for _, wk := range p.workers {
		wk.die()
	}
	w, gone := p.w, p.w.between(0, 5*time.Millisecond)
	if silently {
		gone = w.between(0, 10*time.Second) // its machine is gone too, and nobody tells the server
	}
	for _, c := range append([]*conn{}, w.server.conns...) {
		if c.p == p {
			c.broken = true
			w.after(gone, func() { w.server.drop(c) })
		}
	}
	w.after(w.between(0, 3*time.Second), func() { w.procs[p.number] = newProcess(w, p.number, p.life+1) })
}

// hear takes a message in.
func (p *process) hear(c *conn, message string, epoch int) {
	if p.sub != c {
		return
	}
	p.w.note("%v hears %q", p, message)
	kind, rest, _ := strings.Cut(message, "\n")
	now := p.clock()
	switch parts := strings.SplitN(rest, "\n", 4); kind {
	case "g":
		id, name := parts[0], parts[3]
		ticket, _ := strconv.ParseUint(parts[1], 10, 64)
		ms, _ := strconv.ParseInt(parts[2], 10, 64)
		p.w.judge.toldEpoch(id, ticket, epoch)
		g := lines.Given{Ticket: ticket, Lease: time.Duration(ms) * time.Millisecond, Subscription: c.id, At: now}
		if p.book.Given(name, id, g) {
			p.leave(name, id, parts[1], "no", lines.Grant, func(redismodel.Reply, error) {})
		}
	case "p":
		ms, _ := strconv.ParseInt(parts[1], 10, 64)
		p.book.Pointed(parts[2], parts[0], time.Duration(ms)*time.Millisecond, now)
	case "l":
		p.book.Lost(rest, now)
	}
}

// subscribe sees to it that there is a subscription, and goes on when there is, or when it
// has taken too long.
func (p *process) subscribe(then func()) {
	if p.sub != nil {
		then()
		return
	}
	done := false
	once := func() {
		if !done {
			done = true
			then()
		}
	}
	p.onSub = append(p.onSub, once)
	p.after(time.Second, once)
	p.dial()
}

func (p *process) dial() {
	if p.dialing || p.sub != nil {
		return
	}
	p.dialing = true
	p.nextSub++
	c := &conn{p: p, id: p.nextSub}
	c.channels = [3]string{p.channel, p.channel + "." + strconv.FormatUint(c.id, 10), "news"}
	p.after(p.delay(), func() { // the connection
		if p.isCut() || p.w.server.down {
			p.after(p.w.between(25*time.Millisecond, time.Second), func() {
				p.dialing = false
				p.settle()
				p.dial()
			})
			return
		}
		c.there = true
		p.w.server.conns = append(p.w.server.conns, c)
		p.after(p.delay(), func() { // its answer
			p.dialing = false
			if c.broken || !c.there {
				p.settle()
				p.dial()
				return
			}
			p.sub = c
			p.w.note("%v is subscribed, number %d", p, c.id)
			p.settle()
			p.book.LookEverywhere(p.clock())
			p.ping(c, p.clock())
		})
	})
}

func (p *process) settle() {
	all := p.onSub
	p.onSub = nil
	for _, f := range all {
		f()
	}
}

// ping looks each second whether the connection lives: a silent one is dead after two.
func (p *process) ping(c *conn, heard lease.Instant) {
	p.after(time.Second, func() {
		if p.sub != c || p.w.judge.resting {
			return
		}
		now := p.clock()
		if now.Sub(heard) > 2*time.Second {
			p.book.LookEverywhere(now) // it was the process that did not run
		}
		if c.broken || p.isCut() {
			c.broken = true
			if now.Sub(heard) >= 2*time.Second {
				p.hungUp(c)
				return
			}
			p.ping(c, heard)
			return
		}
		p.ping(c, now)
	})
}

// hungUp: the process has noticed that the connection is gone.
func (p *process) hungUp(c *conn) {
	if p.sub != c {
		return
	}
	p.w.note("%v has lost its subscription", p)
	p.disturbed()
	p.sub = nil
	c.broken = true
	if !p.isCut() {
		p.w.after(p.delay(), func() { p.w.server.drop(c) })
	}
	p.after(p.w.between(25*time.Millisecond, 50*time.Millisecond), p.dial)
}

func (p *process) killSubscription(silently bool) {
	p.disturbed()
	c := p.sub
	if c == nil {
		return
	}
	c.broken = true
	if silently {
		p.hazy = max(p.hazy, p.w.now+int64(4*time.Second))
		return
	}
	p.w.server.drop(c)
	p.receive(p.w.now+int64(p.delay()), func() { p.hungUp(c) })
}

// missed: the server that answered a join does not know the subscription.
func (p *process) missed(id uint64) {
	if p.polls {
		return
	}
	p.dial()
	if id != 0 && p.sub != nil && p.sub.id == id && p.w.now-p.dropped > int64(5*time.Second) {
		p.dropped = p.w.now
		p.hungUp(p.sub)
	}
}

var (
	errTimeout   = errors.New("no answer in time")
	errReset     = errors.New("the connection was reset")
	errCancelled = errors.New("cancelled")
)

// flight is a call on its way.
type flight struct {
	over bool
	done func(error)
}

// end gives the call up, or ends it; what was sent goes its way.
func (f *flight) end(err error) {
	if !f.over {
		f.over = true
		f.done(err)
	}
}

// call lets do happen at the server, once, never or more often, and then done at the
// process. What do returns is its reply, carried out where that arrives.
func (p *process) call(timeout time.Duration, do func() (reply func()), done func(error)) *flight {
	f := &flight{done: done}
	p.after(timeout, func() { f.end(errTimeout) })
	p.send(f, do, 3)
	return f
}

// readTimeout is go-redis': a connection that only hangs is given up then.
const readTimeout = 5 * time.Second

func (p *process) send(f *flight, do func() func(), retries int) {
	w := p.w
	if d := p.snare; d > 0 {
		// The worst moment: it hangs while its answer is there, and then cannot say anything.
		p.snare = 0
		p.pause(d)
		w.after(4*(w.plan.delay+w.plan.jitter), func() { p.cut(d + w.plan.maxTTL) })
	}
	lost := w.plan.lost
	if w.quiet || w.game.Calm {
		lost = 0
	}
	if p.isCut() || w.chance(lost) {
		if !p.isCut() && w.chance(w.plan.late) {
			w.after(w.between(0, 8*time.Second), func() {
				if !w.server.down {
					w.note("a call of %v comes late", p)
					p.hazy = max(p.hazy, w.now+int64(lines.Grant+time.Second))
					do()
				}
			})
		}
		p.breaks(f, do, retries)
		return
	}
	w.after(p.delay(), func() {
		if w.server.down || p.isCut() {
			p.breaks(f, do, retries)
			return
		}
		reply := do()
		if w.chance(lost) {
			p.breaks(f, do, retries)
			return
		}
		w.after(p.delay(), func() {
			if p.isCut() {
				p.breaks(f, do, retries)
				return
			}
			p.receive(w.now, func() { // it may stand in a buffer until the process runs
				if !f.over {
					reply()
					f.end(nil)
				}
			})
		})
	})
}

// breaks: the connection that the call went out on is reset, or hangs. go-redis sends the
// call again, after a pause.
func (p *process) breaks(f *flight, do func() func(), retries int) {
	p.w.note("a connection of %v breaks", p)
	w, hangs := p.w, readTimeout
	if w.chance(.5) {
		hangs = w.between(0, 40*time.Millisecond)
	}
	// Until it is answered, and a grant was that it did not answer, the process may seem dead.
	p.hazy = max(p.hazy, w.now+int64(hangs+lines.Grant+time.Second))
	if p.dead {
		return
	}
	p.after(hangs, func() {
		switch {
		case f.over:
		case retries == 0:
			f.end(errReset)
		default:
			p.after(w.between(8*time.Millisecond, 200*time.Millisecond), func() {
				if !f.over {
					p.send(f, do, retries-1)
				}
			})
		}
	})
}
