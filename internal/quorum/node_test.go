package quorum_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/internal/quorum"
	"github.com/redlatch/redlatch/lease"
	"github.com/redlatch/redlatch/memstore"
)

// node is a server that tests do things to.
type node struct {
	driver.Store // of the time when it was made; see store

	mu    sync.Mutex
	now   driver.Store
	state nodeState
	late  time.Duration // calls are carried out that much later, also if nobody waits any more
	young bool          // it has just started
	calls int
}

type nodeState uint8

const (
	up      nodeState = iota
	hangs             // says nothing
	refuses           // the connection
)

func newNode() *node {
	s := memstore.New()
	return &node{Store: s, now: s}
}

func (n *node) set(f func(n *node)) {
	n.mu.Lock()
	defer n.mu.Unlock()

	f(n)
}

// wipe restarts the server empty. Its counters are lost, too.
func (n *node) wipe() { n.set(func(n *node) { n.now = memstore.New() }) }

var errRefused = &driver.Fault{Kind: driver.Unavailable, Err: errors.New("connection refused")}

// call does f as the node is now.
func (n *node) call(ctx context.Context, f func(ctx context.Context, s driver.Store)) error {
	n.mu.Lock()
	s, state, late := n.now, n.state, n.late
	n.calls++
	n.mu.Unlock()
	switch {
	case state == refuses:
		return errRefused
	case state == hangs:
		<-ctx.Done()
		return &driver.Fault{Kind: driver.Unavailable, Err: ctx.Err()}
	case late == 0:
		f(ctx, s)
		return nil
	}
	done := make(chan struct{})
	go func() {
		time.Sleep(late)
		f(context.WithoutCancel(ctx), s)
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return &driver.Fault{Kind: driver.Unavailable, Err: ctx.Err()}
	}
}

func (n *node) Join(ctx context.Context, name string, c lease.Claim) (lease.Standing, error) {
	type answer struct {
		st  lease.Standing
		err error
	}
	got := make(chan answer, 1)
	if err := n.call(ctx, func(ctx context.Context, s driver.Store) {
		st, err := s.Join(ctx, name, c)
		got <- answer{st, err}
	}); err != nil {
		return lease.Standing{}, err
	}
	a := <-got
	n.mu.Lock()
	a.st.Node.Durable = !n.young
	n.mu.Unlock()
	return a.st, a.err
}

func (n *node) Renew(ctx context.Context, refs []driver.Ref) []driver.Outcome {
	got := make(chan []driver.Outcome, 1)
	if err := n.call(ctx, func(ctx context.Context, s driver.Store) { got <- s.Renew(ctx, refs) }); err != nil {
		out := make([]driver.Outcome, len(refs))
		for i := range out {
			out[i].Err = err
		}
		return out
	}
	return <-got
}

func (n *node) Leave(ctx context.Context, name, id string, ticket uint64, seal lease.Seal) (lease.Standing, error) {
	type answer struct {
		st  lease.Standing
		err error
	}
	got := make(chan answer, 1)
	if err := n.call(ctx, func(ctx context.Context, s driver.Store) {
		st, err := s.Leave(ctx, name, id, ticket, seal)
		got <- answer{st, err}
	}); err != nil {
		return lease.Standing{}, err
	}
	a := <-got
	return a.st, a.err
}

func (n *node) Inspect(ctx context.Context, name string) (lease.Queue, error) {
	type answer struct {
		q   lease.Queue
		err error
	}
	got := make(chan answer, 1)
	if err := n.call(ctx, func(ctx context.Context, s driver.Store) {
		q, err := s.Inspect(ctx, name)
		got <- answer{q, err}
	}); err != nil {
		return lease.Queue{}, err
	}
	a := <-got
	return a.q, a.err
}

// holds reports how many claims the server keeps of the name, whatever state it is in.
func (n *node) holds(t *testing.T, name string) int {
	t.Helper()
	n.mu.Lock()
	s := n.now
	n.mu.Unlock()
	q, err := s.Inspect(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return len(q.Holders())
}

func cluster(n int) []*node {
	var nodes []*node
	for range n {
		nodes = append(nodes, newNode())
	}
	return nodes
}

// over is a Store over those nodes, as one process has it.
func over(t *testing.T, nodes []*node) *quorum.Store {
	t.Helper()
	var members []quorum.Member
	for i, n := range nodes {
		members = append(members, quorum.Member{Name: string(rune('a' + i)), Store: n})
	}
	s, err := quorum.New(members, quorum.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func locker(t *testing.T, nodes []*node) *redlatch.Locker {
	t.Helper()
	l, err := redlatch.New(over(t, nodes), redlatch.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close(context.Background()) })
	return l
}
