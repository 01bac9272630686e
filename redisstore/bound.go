package redisstore

import "context"

// bound calls f and returns when f does or ctx ends, whichever is first.
//
// go-redis looks at ctx before it sends a command and between its tries, but not while
// it reads a reply, unless its ContextTimeoutEnabled is set: a call with 100 ms left
// to a stopped server came back after its read timeout of 5 s. So f is left behind
// then. What it was about may still happen; the caller knows, and leaves.
//
// How many can be left behind is bounded by the client's pool. A call that has been
// sent has a connection of the pool, and keeps it until its read timeout. One that has
// none waits for one under ctx, and ends with it. So a stopped server collects as many
// goroutines as the pool has connections (10 for each CPU by default), for one read
// timeout, however many callers come.
func bound[T any](ctx context.Context, f func() (T, error)) (T, error) {
	if ctx.Done() == nil {
		return f()
	}
	var none T
	if err := ctx.Err(); err != nil {
		return none, ctx.Err()
	}
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := f()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		return none, ctx.Err()
	}
}
