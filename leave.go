package redlatch

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/internal/elapsed"
	"github.com/redlatch/redlatch/lease"
)

// leavings takes claims back whose acquire or release ended without an answer: such a
// call may have been carried out, or may still be. Each is left again and again until
// the store acknowledges it or the lease that it could have got is over anyway.
//
// A few goroutines serve all of them in turn, so that a service that is down for long
// costs neither a goroutine per lost call nor a herd when it is back.
type leavings struct {
	store driver.Store

	mu      sync.Mutex
	queue   []*leaving
	workers int
	work    sync.WaitGroup
}

type leaving struct {
	name, id string
	seal     func() lease.Seal // as it is at the time of a try
	until    lease.Instant
	next     lease.Instant
	fails    int
	tried    chan struct{} // closed after the first try
}

const (
	leaveWorkers = 8
	leaveTimeout = time.Second

	// leavePause is short: when a service comes back, what it still has of a call that
	// was given up is gone within that.
	leavePause = 100 * time.Millisecond

	// leavePatience is how long an acquire that failed waits for its first leave: with a
	// healthy store nothing is left behind when it returns.
	leavePatience = 25 * time.Millisecond
)

func (l *leavings) init(store driver.Store) { l.store = store }

// add leaves a claim that was given up.
func (l *leavings) add(name, id string, until lease.Instant) {
	e := l.addSealed(name, id, func() lease.Seal { return lease.Seal{} }, until)
	patience := time.NewTimer(leavePatience)
	defer patience.Stop()
	select {
	case <-e.tried:
	case <-patience.C:
	}
}

func (l *leavings) addSealed(name, id string, seal func() lease.Seal, until lease.Instant) *leaving {
	e := &leaving{name: name, id: id, seal: seal, until: until, next: elapsed.Now(), tried: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue = append(l.queue, e)
	if l.workers < leaveWorkers {
		l.workers++
		l.work.Go(l.run)
	}
	return e
}

func (l *leavings) run() {
	for {
		e, nap := l.pop()
		if e == nil {
			return
		}
		if nap > 0 {
			time.Sleep(nap)
		}
		if !l.try(e) {
			l.push(e)
		}
	}
}

// try leaves once and reports whether that is the end of it.
func (l *leavings) try(e *leaving) bool {
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	_, err := l.store.Leave(ctx, e.name, e.id, 0, e.seal())
	if e.fails == 0 {
		close(e.tried)
	}
	e.fails++
	now := elapsed.Now()
	e.next = now.Add(min(backoff(e.fails), leavePause))
	return err == nil || !errors.Is(storeError(err), ErrUnavailable) || now >= e.until
}

// pop takes the leaving that is due first, and how long it is until then.
func (l *leavings) pop() (*leaving, time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) == 0 {
		l.workers--
		return nil, 0
	}
	first := 0
	for i, e := range l.queue {
		if e.next < l.queue[first].next {
			first = i
		}
	}
	e := l.queue[first]
	l.queue[first] = l.queue[len(l.queue)-1]
	l.queue = l.queue[:len(l.queue)-1]
	return e, e.next.Sub(elapsed.Now())
}

func (l *leavings) push(e *leaving) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue = append(l.queue, e)
}

// wait returns when nothing is left to leave.
func (l *leavings) wait() { l.work.Wait() }
