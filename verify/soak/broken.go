//go:build unix

package soak

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/lease"
)

// Broken is a way to break the product on purpose. A judgement that does not find it is
// worth nothing.
type Broken string

const (
	Sound Broken = ""

	// PlainDelete releases by DEL, without looking whose lock it is.
	PlainDelete Broken = "delete"

	// Trusting goes on with a hold whose context has ended.
	Trusting Broken = "trust"

	// Deaf waits without ever looking again, and hears nothing.
	Deaf Broken = "deaf"

	// Unordered gives out fences of another clock in each process.
	Unordered Broken = "fence"
)

// wrap returns the store as broken as it is asked for. Trusting and Unordered are the
// worker's doing.
func (b Broken) wrap(store driver.Store, client *redis.Client) driver.Store {
	switch b {
	case PlainDelete:
		return &plainDelete{Store: store, client: client, had: make(map[string]bool)}
	case Deaf:
		return deaf{store}
	}
	return store
}

// plainDelete deletes the lock when a claim leaves that had it once. It takes a holder
// that comes too late to show the difference, as in real programs.
type plainDelete struct {
	driver.Store

	client *redis.Client

	mu  sync.Mutex
	had map[string]bool // by claim ID
}

func (p *plainDelete) Join(ctx context.Context, name string, c lease.Claim) (lease.Standing, error) {
	st, err := p.Store.Join(ctx, name, c)
	return p.see(c.ID, st), err
}

func (p *plainDelete) Wait(ctx context.Context, name, id string, rev uint64) (lease.Standing, error) {
	st, err := p.Store.Wait(ctx, name, id, rev)
	return p.see(id, st), err
}

func (p *plainDelete) see(id string, st lease.Standing) lease.Standing {
	p.mu.Lock()
	defer p.mu.Unlock()

	if st.State == lease.Held {
		p.had[id] = true
	}
	return st
}

func (p *plainDelete) Leave(ctx context.Context, name, id string, ticket uint64, s lease.Seal) (lease.Standing, error) {
	p.mu.Lock()
	had := p.had[id]
	delete(p.had, id)
	p.mu.Unlock()
	if had {
		if err := p.client.Del(ctx, keyOf(name)).Err(); err != nil {
			return lease.Standing{}, err
		}
	}
	return p.Store.Leave(ctx, name, id, ticket, s)
}

type deaf struct{ driver.Store }

func (deaf) Wait(ctx context.Context, _, _ string, _ uint64) (lease.Standing, error) {
	<-ctx.Done()
	return lease.Standing{}, ctx.Err()
}
