package main

import (
	"context"
	"errors"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/cmd/redlatch/internal/duration"
)

// queryTimeout bounds a question to the store.
const queryTimeout = 10 * time.Second

// ask opens the store, lets f ask it, and names it where that fails.
func (a *app) ask(timeout time.Duration, f func(ctx context.Context, locks *redlatch.Locker, store string) error) error {
	return a.askAs(redlatch.Config{}, timeout, f)
}

func (a *app) askAs(cfg redlatch.Config, timeout time.Duration, f func(ctx context.Context, locks *redlatch.Locker, store string) error) error {
	store, err := a.open()
	if err != nil {
		return err
	}
	defer store.close()
	locks, err := redlatch.New(store, cfg)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	err = f(ctx, locks, store.name)
	if ctx.Err() != nil && errors.Is(err, context.DeadlineExceeded) {
		f := unavailable("no answer within %s", duration.Format(timeout))
		f.next, err = remedy(f.msg), f
	}
	return named(err, store.name)
}
