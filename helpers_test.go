package redlatch_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/lease"
	"github.com/redlatch/redlatch/memstore"
)

var errDown = errors.New("connection refused")

// meddler is a store whose calls can be delayed, lost before they take effect, or
// robbed of their reply. The zero meddler of a store changes nothing.
type meddler struct {
	driver.Store

	mu     sync.Mutex
	down   bool                                   // calls fail before they reach the store
	mute   bool                                   // calls reach the store, their replies are lost
	hung   bool                                   // calls wait for their ctx to end and do nothing
	deaf   bool                                   // a Locker that is made now hears no notices
	before func(ctx context.Context, verb string) // runs ahead of a call
	late   time.Duration                          // replies take that long
	renews atomic.Int64
	refs   atomic.Int64
	joins  atomic.Int64
	leaves atomic.Int64
}

func (m *meddler) set(change func(m *meddler)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(m)
}

// meddle does what is set for a call around op.
func (m *meddler) meddle(ctx context.Context, verb string, op func()) error {
	m.mu.Lock()
	before := m.before
	m.mu.Unlock()
	if before != nil {
		before(ctx, verb)
	}
	m.mu.Lock()
	down, mute, hung, late := m.down, m.mute, m.hung, m.late
	m.mu.Unlock()
	switch {
	case hung:
		<-ctx.Done()
		return ctx.Err()
	case down:
		return errDown
	}
	op()
	if late > 0 {
		select {
		case <-time.After(late):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if mute {
		return errDown
	}
	return nil
}

func (m *meddler) Join(ctx context.Context, name string, c lease.Claim) (st lease.Standing, err error) {
	m.joins.Add(1)
	if lost := m.meddle(ctx, "join", func() { st, err = m.Store.Join(ctx, name, c) }); lost != nil {
		return lease.Standing{}, lost
	}
	return st, err
}

func (m *meddler) Renew(ctx context.Context, refs []driver.Ref) (outs []driver.Outcome) {
	m.renews.Add(1)
	m.refs.Add(int64(len(refs)))
	if lost := m.meddle(ctx, "renew", func() { outs = m.Store.Renew(ctx, refs) }); lost != nil {
		outs = make([]driver.Outcome, len(refs))
		for i := range outs {
			outs[i].Err = lost
		}
	}
	return outs
}

func (m *meddler) Leave(ctx context.Context, name, id string, ticket uint64, s lease.Seal) (st lease.Standing, err error) {
	m.leaves.Add(1)
	if lost := m.meddle(ctx, "leave", func() { st, err = m.Store.Leave(ctx, name, id, ticket, s) }); lost != nil {
		return lease.Standing{}, lost
	}
	return st, err
}

func (m *meddler) Notify(f func(driver.Notice)) (stop func()) {
	if m.deaf {
		return func() {}
	}
	return m.Store.Notify(f)
}

// locker returns a Locker on store, closed at the end of the test.
func locker(t *testing.T, store driver.Store, cfg redlatch.Config) *redlatch.Locker {
	t.Helper()
	l, err := redlatch.New(store, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return l
}

// pair is two lockers of two processes on one store; the first one's calls can be
// meddled with.
func pair(t *testing.T) (a, b *redlatch.Locker, m *meddler) {
	t.Helper()
	store := memstore.New()
	m = &meddler{Store: store}
	a = locker(t, m, redlatch.Config{Owner: redlatch.Owner{Name: "alice", PID: 1}})
	b = locker(t, store, redlatch.Config{Owner: redlatch.Owner{Name: "bob", PID: 2}})
	return a, b, m
}

func mustLock(t *testing.T, l *redlatch.Locker, name string, o redlatch.Options) *redlatch.Held {
	t.Helper()
	held, err := l.Lock(t.Context(), name, o)
	if err != nil {
		t.Fatalf("lock: %v", err)
	}
	return held
}

func mustUnlock(t *testing.T, held interface{ Unlock() error }) {
	t.Helper()
	if err := held.Unlock(); err != nil {
		t.Errorf("unlock: %v", err)
	}
}

// mustBe checks that err is each of the targets.
func mustBe(t *testing.T, err error, targets ...error) {
	t.Helper()
	for _, target := range targets {
		if !errors.Is(err, target) {
			t.Errorf("error is %v, want one that is %v", err, target)
		}
	}
}

func mustNotBe(t *testing.T, err error, targets ...error) {
	t.Helper()
	for _, target := range targets {
		if errors.Is(err, target) {
			t.Errorf("error is %v, must not be %v", err, target)
		}
	}
}

// lostWhy waits until held's context ends and says why.
func lostWhy(t *testing.T, held *redlatch.Held) lease.Loss {
	t.Helper()
	<-held.Context().Done()
	var lost *redlatch.LostError
	if !errors.As(context.Cause(held.Context()), &lost) {
		t.Fatalf("the hold ended because of %v, want a LostError", context.Cause(held.Context()))
	}
	return lost.Loss
}
