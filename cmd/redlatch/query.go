package main

import (
	"context"
	"fmt"
	"time"

	"github.com/redlatch/redlatch"
)

// queryTimeout bounds a question to the store.
const queryTimeout = 10 * time.Second

// ask opens the store, lets f ask it, and names it where that fails.
func (a *app) ask(timeout time.Duration, f func(ctx context.Context, locks *redlatch.Locker, store string) error) error {
	store, err := a.open()
	if err != nil {
		return err
	}
	defer store.close()
	locks, err := redlatch.New(store, redlatch.Config{})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if err := f(ctx, locks, store.name); err != nil {
		f := explain(err)
		if f.code == codeUnavailable || f.code == codeDenied {
			f.msg = fmt.Sprintf("%s: %s", store.name, f.msg)
		}
		return f
	}
	return nil
}
