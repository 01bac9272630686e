package redisstore

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/internal/elapsed"
	"github.com/redlatch/redlatch/internal/lines"
)

// inbox is the one subscription of the process. It begins when a claim has to wait for
// the first time, or is held for more than a moment, and ends when none has for a while.
//
// The receiving loop is our own. The client's channel helper connects again behind its
// user's back, and what was published in between is lost without a word. Here each
// connection is a subscription of its own, with a number, and after each new one every
// waiting claim looks where it stands.
//
// A subscription has three channels. Messages go to the process's channel, which stays
// the same, so that a waiter that was queued before a reconnect is still found. What was
// broken is told to all processes: a holder's channel stands nowhere. The marker is only this subscription's: the join script asks the server whether it knows
// it. If so, the server that answers the join is the one that this subscription is
// connected to, in the same run. That is what the run_id was to tell, and costs 2 µs in
// the one join that queues, where INFO in the script costs 8 µs, and a run_id asked
// once for each pooled connection needs hooks in a client that is not ours.
type inbox struct {
	s       *Store
	channel string

	mu      sync.Mutex
	now     subscription
	next    uint64
	running bool
	settled chan struct{} // closed when the loop has subscribed, or failed to, for the first time
	pubsub  *redis.PubSub
	dropped time.Time // when missed last ended a subscription

	idle time.Duration // without a waiter for that long there is no subscription
}

// subscription is one connection that messages come on. The zero value is none.
type subscription struct {
	id     uint64
	marker string
}

const (
	pingEvery   = time.Second
	silent      = 2 * time.Second // nothing heard for that long: dead
	deniedPause = 30 * time.Second
	channels    = 3 // the process's, the marker, the news
)

var (
	errSilent   = errors.New("the subscription is silent")
	errReplaced = errors.New("the client has replaced the subscription's connection")
	errIdle     = errors.New("nobody waits or holds")
)

func (in *inbox) init(s *Store) {
	in.s = s
	in.channel = s.keys.channel(s.process)
	in.idle = time.Minute
}

// subscription returns the one that is up.
func (in *inbox) subscription() subscription {
	in.mu.Lock()
	defer in.mu.Unlock()

	return in.now
}

// open returns a subscription that the server has acknowledged. If there is none in
// time it returns none, and the claim polls; the loop goes on trying.
func (in *inbox) open(ctx context.Context) subscription {
	settled := in.start()
	t := time.NewTimer(time.Second)
	defer t.Stop()
	select {
	case <-settled:
	case <-t.C:
	case <-ctx.Done():
	}
	return in.subscription()
}

func (in *inbox) start() <-chan struct{} {
	in.mu.Lock()
	defer in.mu.Unlock()

	if !in.running {
		in.running = true
		in.settled = make(chan struct{})
		in.s.spawn(in.run)
	}
	return in.settled
}

// missed is told of a claim that was queued by a server that does not know the
// subscription. There is none yet; or it is on another server than the commands, after
// a fail-over that it did not notice, and is made anew. If that does not help, somebody
// in between hides the subscribers, and waiters poll.
func (in *inbox) missed(sub subscription) {
	if in.s.opts.Poll {
		return
	}
	in.start()
	in.mu.Lock()
	defer in.mu.Unlock()

	if sub.id != 0 && in.now == sub && time.Since(in.dropped) > 5*time.Second {
		in.dropped = time.Now()
		_ = in.pubsub.Close()
	}
}

// run keeps a subscription up for as long as somebody waits.
func (in *inbox) run() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for fails := 0; ; fails++ {
		began := time.Now()
		err := in.listen(ctx)
		pause := min(50*time.Millisecond<<min(fails, 5), time.Second)
		if time.Since(began) > pingEvery {
			fails, pause = 0, 0
		}
		var f *driver.Fault
		if errors.As(fault(err), &f) && f.Kind == driver.Denied {
			pause = deniedPause
		}
		if in.down(err) {
			return
		}
		select {
		case <-time.After(pause/2 + rand.N(pause/2+1)):
		case <-in.s.quit:
		}
	}
}

// down ends a subscription and reports whether the loop is over.
func (in *inbox) down(err error) (over bool) {
	in.mu.Lock()
	defer in.mu.Unlock()

	in.now, in.pubsub = subscription{}, nil
	in.settle()
	over = errors.Is(err, errIdle) || in.s.quitting()
	in.running = !over
	return over
}

func (in *inbox) settle() {
	select {
	case <-in.settled:
	default:
		close(in.settled)
	}
}

// listen subscribes and receives until the connection fails.
func (in *inbox) listen(ctx context.Context) error {
	pubsub, sub, err := in.dial()
	if err != nil {
		return err
	}
	defer pubsub.Close()
	if err := pubsub.Subscribe(ctx, in.channel, sub.marker, in.s.keys.news()); err != nil {
		return err
	}
	heard, idle := elapsed.Now(), elapsed.Now()
	for acks := 0; ; {
		message, err := pubsub.ReceiveTimeout(ctx, pingEvery)
		now := elapsed.Now()
		switch {
		case in.s.quitting():
			return errIdle
		case err != nil && isTimeout(err):
			if now.Sub(heard) >= silent {
				return errSilent
			}
			if acks == channels {
				if in.s.listens() {
					idle = now
				} else if now.Sub(idle) > in.idle {
					return errIdle
				}
			}
			if err := pubsub.Ping(ctx); err != nil {
				return err
			}
			continue
		case err != nil:
			return err
		}
		// The pings come each second. If nothing was received for much longer it was this
		// process that did not run, and what its places have come to is unknown.
		if acks == channels && now.Sub(heard) > silent {
			in.s.lookEverywhere()
		}
		heard = now
		switch m := message.(type) {
		case *redis.Subscription:
			if acks++; acks > channels {
				return errReplaced
			}
			if acks == channels {
				in.up(sub)
			}
		case *redis.Message:
			in.s.deliver(m.Payload, sub.id)
		}
	}
}

func (in *inbox) dial() (*redis.PubSub, subscription, error) {
	in.mu.Lock()
	defer in.mu.Unlock()

	if in.s.quitting() {
		return nil, subscription{}, errIdle
	}
	in.next++
	sub := subscription{id: in.next, marker: in.channel + "." + strconv.FormatUint(in.next, 10)}
	in.pubsub = in.s.client.Subscribe(context.Background()) // no channel yet: does not connect
	return in.pubsub, sub, nil
}

// up makes the subscription the one that joins name, and lets every claim that waits
// look where it stands: messages may have been lost, the server may be another.
func (in *inbox) up(sub subscription) {
	in.mu.Lock()
	in.now = sub
	in.settle()
	in.mu.Unlock()

	in.s.lookEverywhere()
}

func (in *inbox) close() {
	in.mu.Lock()
	defer in.mu.Unlock()

	if in.pubsub != nil {
		_ = in.pubsub.Close() // ends the receive
	}
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

// deliver takes a message in.
func (s *Store) deliver(payload string, subscription uint64) {
	parts, ok := cutAll(payload, 2)
	if !ok {
		return
	}
	switch kind, rest := parts[0], parts[1]; kind {
	case "g":
		s.granted(rest, subscription)
	case "s":
		s.sealed(rest)
	case "p":
		s.pointed(rest)
	case "b":
		s.broken(rest)
	case "l":
		s.lost(rest)
	}
}

// granted: id, ticket, lease, key. The lock is given to a waiter of this process.
func (s *Store) granted(message string, subscription uint64) {
	parts, ok := cutAll(message, 4)
	if !ok {
		return
	}
	id := parts[0]
	ticket, err := strconv.ParseUint(parts[1], 10, 64)
	ms, err2 := strconv.ParseInt(parts[2], 10, 64)
	name, ok := s.keys.name(parts[3])
	if err != nil || err2 != nil || !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.book.Given(name, id, lines.Given{Ticket: ticket, Lease: millis(ms), Subscription: subscription, At: elapsed.Now()}) {
		s.spawnLocked(func() {
			ctx, cancel := context.WithTimeout(context.Background(), lines.Grant)
			defer cancel()
			s.giveBack(ctx, name, id, parts[1])
		})
	}
}

// sealed: how long, key, seal. The name was closed.
func (s *Store) sealed(message string) {
	parts, ok := cutAll(message, 3)
	if !ok {
		return
	}
	ms, err := strconv.ParseInt(parts[0], 10, 64)
	name, ok := s.keys.name(parts[1])
	if err != nil || !ok {
		return
	}
	seal := parseSeal(parts[2], millis(ms))
	s.mu.Lock()
	defer s.mu.Unlock()

	s.book.Sealed(name, seal, elapsed.Now())
}

// pointed: id, how long, key. The lock is free for others for that long; then it is
// that claim's turn.
func (s *Store) pointed(message string) {
	parts, ok := cutAll(message, 3)
	if !ok {
		return
	}
	ms, err := strconv.ParseInt(parts[1], 10, 64)
	name, ok := s.keys.name(parts[2])
	if err != nil || !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()

	s.book.Pointed(name, parts[0], millis(ms), elapsed.Now())
}

// lost: key. The queue of the name was lost, and all places in it.
func (s *Store) lost(key string) {
	name, ok := s.keys.name(key)
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()

	s.book.Lost(name, elapsed.Now())
}

// broken: id, key, seal. Some process's hold was broken by an operator.
func (s *Store) broken(message string) {
	parts, ok := cutAll(message, 3)
	if !ok {
		return
	}
	name, ok := s.keys.name(parts[1])
	if !ok {
		return
	}
	seal := parseSeal(parts[2], 1) // how long it lasts is not part of it
	seal.For = 0
	s.lookAgain(name, parts[0])
	s.Tell(driver.Notice{Name: name, ID: parts[0], Seal: seal})
}

// lookAgain lets the claim look where it stands, if it waits.
func (s *Store) lookAgain(name, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.book.LookAgain(name, id, elapsed.Now())
}

// lookEverywhere lets every claim that waits look where it stands, soon, but not all
// at once.
func (s *Store) lookEverywhere() {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.book.LookEverywhere(elapsed.Now())
}

// listens reports whether this process has something to be told: that it is its turn, or
// that what it holds was broken.
func (s *Store) listens() bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.book.Waiters() > 0 || len(s.index.uses) > 0 && s.Wanted()
}

// hear begins to listen for whoever holds something for longer than a moment: for less,
// no process needs a second connection.
func (in *inbox) hear() {
	in.s.lifeline.prepare()
	if in.s.Wanted() && !in.s.opts.Poll {
		in.start()
	}
}

func (s *Store) quitting() bool {
	select {
	case <-s.quit:
		return true
	default:
		return false
	}
}

// spawn starts a goroutine that Close waits for, unless it is too late for that.
func (s *Store) spawn(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.spawnLocked(f)
}

func (s *Store) spawnLocked(f func()) {
	if !s.closed {
		s.work.Go(f)
	}
}
