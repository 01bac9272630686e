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
// stands below the library, whose messages are about the names that were typed.
type namespaced struct {
	driver.Store

	prefix string
}

func (n namespaced) Join(ctx context.Context, name string, c lease.Claim) (lease.Standing, error) {
	return n.Store.Join(ctx, n.prefix+name, c)
}

func (n namespaced) Renew(ctx context.Context, refs []driver.Ref) []driver.Outcome {
	refs = slices.Clone(refs)
	for i := range refs {
		refs[i].Name = n.prefix + refs[i].Name
	}
	return n.Store.Renew(ctx, refs)
}

func (n namespaced) Leave(ctx context.Context, name, id string, s lease.Seal) (lease.Standing, error) {
	return n.Store.Leave(ctx, n.prefix+name, id, s)
}

func (n namespaced) Wait(ctx context.Context, name, id string, rev uint64) (lease.Standing, error) {
	return n.Store.Wait(ctx, n.prefix+name, id, rev)
}

func (n namespaced) Inspect(ctx context.Context, name string) (lease.Queue, error) {
	return n.Store.Inspect(ctx, n.prefix+name)
}

func (n namespaced) Names(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for name, err := range n.Store.Names(ctx, n.prefix+prefix) {
			if !yield(strings.TrimPrefix(name, n.prefix), err) {
				return
			}
		}
	}
}
