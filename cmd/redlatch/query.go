package main

import (
	"context"
	"time"

	"github.com/redlatch/redlatch"
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
	return named(f(ctx, locks, store.name), store.name)
}
