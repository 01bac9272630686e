// Package memstore keeps locks in the memory of one process: for tests, for examples,
// and for programs whose goroutines are all there is to exclude. It can do whatever a
// store can, and does it by the rules of package lease alone, so the other stores are
// measured against it.
//
// It runs in the bubbles of testing/synctest. A Store belongs to the bubble in which
// it was first used.
package memstore

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/internal/elapsed"
	"github.com/redlatch/redlatch/lease"
)

// minTTL is the shortest lease. The holder takes 2 ms and 1 % off, and goroutines get
// their turn when they get it.
const minTTL = 10 * time.Millisecond

// Store is a [driver.Store]. The zero Store is empty and ready; it must not be copied.
// Lockers that share one exclude each other.
type Store struct {
	driver.Notices

	mu      sync.Mutex
	node    string    // "" until the first use
	started time.Time // the first use
	lines   map[string]*line

	// floor is the highest ticket of all names that were forgotten, and the last ticket of
	// any name that comes anew. The clock alone would do for tickets drawn from it, but not
	// for those that are proposed.
	floor uint64
}

var _ driver.Store = (*Store)(nil)

// New returns an empty Store, for where an expression is handier than a variable.
func New() *Store { return new(Store) }

// Features implements [driver.Store].
func (s *Store) Features() driver.Features {
	return driver.Features{
		Fence: true, FIFO: true, Seal: true, Push: true, WaitersExpire: true, ProcessOnly: true,
		Modes:  []lease.Mode{lease.Exclusive, lease.Shared, lease.Permit},
		MinTTL: minTTL,
	}
}

// Join implements [driver.Store].
func (s *Store) Join(ctx context.Context, name string, c lease.Claim) (lease.Standing, error) {
	asked := elapsed.Now()
	if err := refuses(ctx, c.TTL); err != nil {
		return lease.Standing{}, err
	}
	var st lease.Standing
	err := s.move(name, func(q *lease.Queue, now time.Time) (err error) {
		st, err = q.Join(c, now)
		if c.Vote && err == nil {
			st.Node = s.self(now)
		}
		return err
	})
	if err != nil {
		return lease.Standing{}, err
	}
	return dated(st, asked), nil
}

// Renew implements [driver.Store].
func (s *Store) Renew(ctx context.Context, refs []driver.Ref) []driver.Outcome {
	asked := elapsed.Now()
	outcomes := make([]driver.Outcome, len(refs))
	for i, ref := range refs {
		if err := refuses(ctx, ref.TTL); err != nil {
			outcomes[i].Err = err
			continue
		}
		// A move never fails where its function does not.
		_ = s.move(ref.Name, func(q *lease.Queue, now time.Time) error {
			st := q.Renew(ref.Token.ID, ref.Token.Ticket, ref.TTL, ref.Fence, now)
			outcomes[i].Standing = dated(st, asked)
			return nil
		})
	}
	return outcomes
}

// Leave implements [driver.Store].
func (s *Store) Leave(ctx context.Context, name, id string, ticket uint64, seal lease.Seal) (lease.Standing, error) {
	asked := elapsed.Now()
	if err := ended(ctx); err != nil {
		return lease.Standing{}, err
	}
	var st lease.Standing
	_ = s.move(name, func(q *lease.Queue, now time.Time) error {
		st = q.Leave(id, ticket, seal, now)
		return nil
	})
	st.Once = true
	if st.State == lease.Held && seal.By != "" {
		s.Tell(driver.Notice{Name: name, ID: id, Seal: seal})
	}
	return dated(st, asked), nil
}

// Inspect implements [driver.Store].
func (s *Store) Inspect(ctx context.Context, name string) (lease.Queue, error) {
	if err := ended(ctx); err != nil {
		return lease.Queue{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()

	now := s.now()
	l := s.lines[name]
	if l == nil {
		return lease.Queue{Now: now}, nil
	}
	l.queue.Advance(now)
	all := lease.Queue{Now: l.queue.Now, Last: l.queue.Last, Claims: slices.Clone(l.queue.Claims)}
	all.SetSeal(l.queue.Seal())
	s.settle(name, l, now)
	return all, nil
}

// Names implements [driver.Store]. It is exact, and sorted.
func (s *Store) Names(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for _, name := range s.used(prefix) {
			if err := ended(ctx); err != nil {
				yield("", err)
				return
			}
			if !yield(name, nil) {
				return
			}
		}
	}
}

func (s *Store) used(prefix string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()

	now := s.now()
	var names []string
	for name, l := range s.lines {
		if !strings.HasPrefix(name, prefix) {
			continue
		}
		l.queue.Advance(now)
		if len(l.queue.Claims) > 0 || l.queue.Seal().Closed() {
			names = append(names, name)
		}
		s.settle(name, l, now)
	}
	slices.Sort(names)
	return names
}

// Node implements [driver.Store]. Nothing here survives a crash: not durable.
func (s *Store) Node(ctx context.Context) (lease.Node, error) {
	if err := ended(ctx); err != nil {
		return lease.Node{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.self(s.now()), nil
}

// Close implements [driver.Store]. A Store runs nothing but timers, which end with the
// last lease, so it goes on to work for whoever shares it.
func (s *Store) Close() error { return nil }

// move is one step of one name. What it changes is told to those it concerns.
func (s *Store) move(name string, f func(q *lease.Queue, now time.Time) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	now := s.now()
	l := s.line(name)
	err := f(&l.queue, now)
	s.settle(name, l, now)
	return err
}

// now is the store's clock: the wall clock at the start, and from then on a monotonic
// one. Tickets follow it, and behind a wall clock that is put back they would run ahead.
func (s *Store) now() time.Time {
	if s.node == "" {
		s.node, s.started = lease.NewID(), time.Now()
		s.lines = make(map[string]*line)
	}
	return s.started.Add(time.Since(s.started))
}

func (s *Store) self(now time.Time) lease.Node {
	return lease.Node{ID: s.node, Uptime: now.Sub(s.started), Clock: now}
}

func refuses(ctx context.Context, ttl time.Duration) error {
	if ttl < minTTL {
		return &driver.Fault{Kind: driver.Refused, Err: fmt.Errorf("a TTL of %v is below the shortest, %v", ttl, minTTL)}
	}
	return ended(ctx)
}

func ended(ctx context.Context) error {
	if ctx.Err() != nil {
		return &driver.Fault{Kind: driver.Unavailable, Err: ctx.Err()}
	}
	return nil
}
