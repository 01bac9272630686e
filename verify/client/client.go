// Package client is a client of locks on Redis as a program has it: with the client
// library's own defaults. The checks in verify share it, so that they measure the same
// thing.
package client

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/redisstore"
)

// Client is one process's view of a server.
type Client struct {
	Redis *redis.Client
	Store *redisstore.Store
	Locks *redlatch.Locker
}

// New sends nothing. wrap, if not nil, breaks the product on purpose.
func New(addr, name string, wrap func(driver.Store) driver.Store) (*Client, error) {
	c := &Client{Redis: redis.NewClient(&redis.Options{Addr: addr})}
	var err error
	if c.Store, err = redisstore.New(c.Redis, redisstore.Options{}); err != nil {
		return nil, err
	}
	var store driver.Store = c.Store
	if wrap != nil {
		store = wrap(store)
	}
	c.Locks, err = redlatch.New(store, redlatch.Config{Owner: redlatch.Owner{Name: name}})
	return c, err
}

// Close ends the client within a second; what it could not release runs out.
func (c *Client) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = c.Locks.Close(ctx) // what is left the check has reported
	_ = c.Store.Close()
	_ = c.Redis.Close()
}

// Silence keeps the client library of this process from reporting each connection that
// fails: failing is what they are made to do here.
func Silence() { redis.SetLogger(silence{}) }

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

// Pause sleeps, unless ctx ends: that is the error.
func Pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
