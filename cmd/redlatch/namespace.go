package main

import (
	"context"
	"iter"
	"slices"
	"strings"

	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/lease"
)

// namespaced is a store in which every name begins with a prefix that nobody sees. It
// stands below the library, whose messages are about the names that were typed. It does
// not embed the store: a method that comes to have names would pass by it.
type namespaced struct {
	store  driver.Store
	prefix string
}

var _ driver.Store = namespaced{}

func (n namespaced) Join(ctx context.Context, name string, c lease.Claim) (lease.Standing, error) {
	return n.store.Join(ctx, n.prefix+name, c)
}

func (n namespaced) Renew(ctx context.Context, refs []driver.Ref) []driver.Outcome {
	refs = slices.Clone(refs)
	for i := range refs {
		refs[i].Name = n.prefix + refs[i].Name
	}
	return n.store.Renew(ctx, refs)
}

func (n namespaced) Leave(ctx context.Context, name, id string, ticket uint64, s lease.Seal) (lease.Standing, error) {
	return n.store.Leave(ctx, n.prefix+name, id, ticket, s)
}

func (n namespaced) Wait(ctx context.Context, name, id string, rev uint64) (lease.Standing, error) {
	return n.store.Wait(ctx, n.prefix+name, id, rev)
}

func (n namespaced) Inspect(ctx context.Context, name string) (lease.Queue, error) {
	return n.store.Inspect(ctx, n.prefix+name)
}

func (n namespaced) Names(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for name, err := range n.store.Names(ctx, n.prefix+prefix) {
			if !yield(strings.TrimPrefix(name, n.prefix), err) {
				return
			}
		}
	}
}

func (n namespaced) Notify(f func(driver.Notice)) (stop func()) {
	return n.store.Notify(func(notice driver.Notice) {
		name, ours := strings.CutPrefix(notice.Name, n.prefix)
		if ours {
			notice.Name = name
			f(notice)
		}
	})
}

func (n namespaced) Node(ctx context.Context) (lease.Node, error) { return n.store.Node(ctx) }
func (n namespaced) Features() driver.Features                    { return n.store.Features() }
func (n namespaced) Close() error                                 { return n.store.Close() }
