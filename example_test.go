package redlatch_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/memstore"
)

func ExampleLocker_Do() {
	locks, err := redlatch.New(memstore.New(), redlatch.Config{})
	if err != nil {
		panic(err)
	}
	err = locks.Do(context.Background(), "orders/42", redlatch.Options{}, func(ctx context.Context, held *redlatch.Held) error {
		fmt.Println("holds", held.Name(), held.Fence() > 0)
		return ctx.Err()
	})
	fmt.Println(err)
	// Output:
	// holds orders/42 true
	// <nil>
}

func ExampleLocker_TryLock() {
	store := memstore.New()
	here, err := redlatch.New(store, redlatch.Config{Owner: redlatch.Owner{Name: "deploy@web-3"}})
	if err != nil {
		panic(err)
	}
	there, err := redlatch.New(store, redlatch.Config{})
	if err != nil {
		panic(err)
	}
	held, err := here.TryLock(context.Background(), "nightly/report", redlatch.Options{})
	if err != nil {
		panic(err)
	}
	_, err = there.TryLock(context.Background(), "nightly/report", redlatch.Options{})
	var busy *redlatch.HeldError
	fmt.Println(errors.Is(err, redlatch.ErrHeld), errors.As(err, &busy), busy.Holder.Owner.Name)
	fmt.Println(held.Unlock())
	// Output:
	// true true deploy@web-3
	// <nil>
}
