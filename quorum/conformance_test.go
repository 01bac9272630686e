package quorum_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/drivertest"
	"github.com/redlatch/redlatch/lease"
	"github.com/redlatch/redlatch/memstore"
	"github.com/redlatch/redlatch/quorum"
)

func TestConformance(t *testing.T) {
	for _, n := range []int{3, 4, 5} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			drivertest.Run(t, "quorum", func(*testing.T) func() driver.Store {
				var nodes []*memstore.Store
				for range n {
					nodes = append(nodes, memstore.New())
				}
				return func() driver.Store { return open(t, nodes...) }
			})
		})
	}
}

// durable is a server that does not forget when it restarts: its vote counts at once.
type durable struct{ driver.Store }

func (d durable) Join(ctx context.Context, name string, c lease.Claim) (lease.Standing, error) {
	st, err := d.Store.Join(ctx, name, c)
	st.Node.Durable = true
	return st, err
}

func open(t *testing.T, nodes ...*memstore.Store) *quorum.Store {
	t.Helper()
	var members []quorum.Member
	for i, n := range nodes {
		members = append(members, quorum.Member{Name: string(rune('a' + i)), Store: durable{n}})
	}
	s, err := quorum.New(members, quorum.Options{LongestTTL: 10 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return s
}
