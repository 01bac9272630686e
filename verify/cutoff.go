//go:build linux

package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/relay"
	"github.com/redlatch/redlatch/internal/servertest"
	"github.com/redlatch/redlatch/redisstore"
)

// CutOff plays rounds in which a holder's network is frozen while another one waits for
// its lock, and returns how long after the end of the holder's context the other one
// had the lock, in ascending order: below zero two trusted it at once.
func CutOff(ctx context.Context, server *servertest.RedisServer, rounds int, ttl time.Duration) ([]time.Duration, error) {
	line, err := relay.New(server.Addr(), func(error) {})
	if err != nil {
		return nil, err
	}
	defer line.Close()
	cut, closeCut, err := NewLocker(line.Addr())
	if err != nil {
		return nil, err
	}
	defer closeCut()
	other, closeOther, err := NewLocker(server.Addr())
	if err != nil {
		return nil, err
	}
	defer closeOther()

	var margins []time.Duration
	for round := range rounds {
		margin, err := cutOffOnce(ctx, line, cut, other, fmt.Sprintf("cut/%d", round), ttl)
		if err != nil {
			return margins, fmt.Errorf("round %d: %w", round, err)
		}
		margins = append(margins, margin)
	}
	slices.Sort(margins)
	return margins, nil
}

func cutOffOnce(ctx context.Context, line *relay.Relay, cut, other *redlatch.Locker, name string, ttl time.Duration) (time.Duration, error) {
	held, err := cut.Lock(ctx, name, redlatch.Options{TTL: ttl})
	if err != nil {
		return 0, err
	}
	defer func() { _ = held.Unlock() }() // lost by now
	ended := make(chan time.Duration, 1)
	context.AfterFunc(held.Context(), func() { ended <- hostNow() })
	line.Freeze(relay.Both)
	defer line.Thaw()

	next, err := other.Lock(ctx, name, redlatch.Options{TTL: ttl})
	got := hostNow()
	if err != nil {
		return 0, err
	}
	defer func() { _ = next.Unlock() }() // its lease is short
	return got - <-ended, nil
}

// NewLocker returns a Locker of a process of its own on a server.
func NewLocker(addr string) (*redlatch.Locker, func(), error) {
	redis.SetLogger(quiet{})
	client := redis.NewClient(&redis.Options{Addr: addr})
	store, err := redisstore.New(client, redisstore.Options{})
	if err != nil {
		return nil, nil, errors.Join(err, client.Close())
	}
	locks, err := redlatch.New(store, redlatch.Config{})
	if err != nil {
		return nil, nil, errors.Join(err, store.Close(), client.Close())
	}
	return locks, func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = locks.Close(ctx) // what it could not release runs out
		_ = store.Close()
		_ = client.Close()
	}, nil
}

// Quantiles says how a sorted list is spread.
func Quantiles(list []time.Duration) string {
	at := func(q float64) time.Duration { return list[int(q*float64(len(list)-1))].Round(10 * time.Microsecond) }
	return fmt.Sprintf("n %d  min %v  p1 %v  p50 %v  p99 %v  max %v", len(list), at(0), at(0.01), at(0.5), at(0.99), at(1))
}
