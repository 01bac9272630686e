package quorum

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/internal/elapsed"
	"github.com/redlatch/redlatch/internal/vote"
	"github.com/redlatch/redlatch/lease"
)

// member is one server, with what is known about how it answers.
type member struct {
	Member
	s *Store

	mu      sync.Mutex
	breaker vote.Breaker
	undone  []leaving // what it has not acknowledged yet, oldest first
	busy    bool      // a goroutine sees to that
}

// leaving is a claim to be taken out at a server. It is tried until the server has
// acknowledged it, or until what it is about has ended by itself.
type leaving struct {
	name, id string
	ticket   uint64
	seal     lease.Seal
	until    lease.Instant
	done     func() // called when there is nothing more to be done about it; may be nil
}

var errHeldBack = errors.New("not asked")

// call runs f with the time that one call has, and learns from how it ends.
func (m *member) call(ctx context.Context, f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, m.s.o.NodeTimeout)
	defer cancel()
	err := f(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()

	// That the caller gave up says nothing about the server.
	if err == nil || kindOf(err) != driver.Unavailable || !errors.Is(err, context.Canceled) {
		m.breaker.Report(elapsed.Now(), err == nil || kindOf(err) != driver.Unavailable)
	}
	return timedOut(err, m.s.o.NodeTimeout)
}

// allow reports whether the member may be asked now.
func (m *member) allow(now lease.Instant) bool {
	m.mu.Lock()
	defer m.mu.Unlock()

	return m.breaker.Allow(now)
}

// heldBack is the answer of a member that was not asked.
func (m *member) heldBack(now lease.Instant) error {
	m.mu.Lock()
	defer m.mu.Unlock()

	return fmt.Errorf("%w, it has not answered for %v", errHeldBack, m.breaker.Silent(now).Round(time.Millisecond))
}

// asked returns whom to ask now: all who answer, and all others too where these are no
// majority, for then there is nothing to lose.
func (s *Store) asked(now lease.Instant) []bool {
	ask := make([]bool, len(s.members))
	n := 0
	for i, m := range s.members {
		if ask[i] = m.allow(now); ask[i] {
			n++
		}
	}
	if n < vote.Majority(len(s.members)) {
		for i := range ask {
			ask[i] = true
		}
	}
	return ask
}

// undo takes a claim out in the background.
func (m *member) undo(l leaving) {
	m.mu.Lock()
	defer m.mu.Unlock()

	m.undone = append(m.undone, l)
	if m.busy || m.s.ctx.Err() != nil {
		return
	}
	m.busy = true
	m.s.work.Go(m.work)
}

// work takes out what is to be taken out, one after the other: a server that does not
// answer costs one goroutine, however much is left to do there.
func (m *member) work() {
	for fails := 0; ; {
		m.mu.Lock()
		if len(m.undone) == 0 {
			m.undone, m.busy = nil, false
			m.mu.Unlock()
			return
		}
		l := m.undone[0]
		m.mu.Unlock()
		if l.until < elapsed.Now() { // it has ended by itself
			m.ended(l)
			continue
		}
		err := m.call(m.s.ctx, func(ctx context.Context) error {
			_, err := m.Store.Leave(ctx, l.name, l.id, l.ticket, l.seal)
			return err
		})
		switch {
		case err == nil || kindOf(err) != driver.Unavailable: // it will not do it the next time either
			fails = 0
			m.ended(l)
			continue
		case m.s.ctx.Err() != nil:
			return
		}
		fails++
		if !sleep(m.s.ctx, min(20*time.Millisecond<<min(fails, 10), time.Second)) {
			return
		}
	}
}

// ended strikes the first one out.
func (m *member) ended(l leaving) {
	m.mu.Lock()
	m.undone = m.undone[1:]
	m.mu.Unlock()
	if l.done != nil {
		l.done()
	}
}

// sleep reports false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
