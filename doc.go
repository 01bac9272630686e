// Package redlatch gives programs locks that work across processes and hosts.
//
// A lock lives in a [driver.Store]: a Redis server (module redisstore), a directory
// on one host (package filestore), or memory (package memstore). The meaning is the
// same everywhere; what a store cannot do, it says in its Features.
//
//	locks, err := redlatch.New(store, redlatch.Config{})
//	err = locks.Do(ctx, "orders/42", redlatch.Options{}, func(ctx context.Context, held *redlatch.Held) error {
//		// ctx ends before anybody else can hold orders/42
//	})
//
// # What a lock promises
//
// A lock is a lease: the store gives it away when it has not been renewed for its
// TTL. A [Locker] renews its holds in the background and ends a hold's context before
// the lease can run out: trust counts from the moment the last acknowledged renewal
// was sent, less clock drift, on a clock that goes on while the machine sleeps.
//
// That holds as long as the process is scheduled. A process that is stopped between
// looking at its context and writing can write late, and no lock service can prevent
// it: give [Held.Fence], a number that only grows, to whatever stores the result, and
// let that refuse lower numbers. Money and stock are kept right by the database's own
// transaction or unique constraint; the lock only saves double work.
//
// # Errors
//
// "Somebody holds it" is [ErrHeld], "the store did not answer" is [ErrUnavailable],
// "the hold was lost" is [ErrLost]. They are never confused, and all errors of this
// package are wrapped once in an [*Error].
package redlatch
