//go:build linux

package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/servertest"
)

// Deadline calls a stopped server with 100 ms of time and says how long each call took,
// in ascending order, and which keys were left 200 ms after the server went on.
func Deadline(ctx context.Context, server *servertest.RedisServer, rounds int) ([]time.Duration, []string, error) {
	locks, done, err := NewLocker(server.Addr())
	if err != nil {
		return nil, nil, err
	}
	defer done()
	warm, err := locks.TryLock(ctx, "warm", redlatch.Options{})
	if err != nil {
		return nil, nil, err
	}
	if err := warm.Unlock(); err != nil {
		return nil, nil, err
	}
	calls := map[string]func(ctx context.Context, name string) error{
		"lock": func(ctx context.Context, name string) error {
			_, err := locks.Lock(ctx, name, redlatch.Options{})
			return err
		},
		"try": func(ctx context.Context, name string) error {
			_, err := locks.TryLock(ctx, name, redlatch.Options{})
			return err
		},
		"all": func(ctx context.Context, name string) error {
			_, err := locks.LockAll(ctx, []string{name, name + "b"}, redlatch.Options{})
			return err
		},
		"do": func(ctx context.Context, name string) error {
			return locks.Do(ctx, name, redlatch.Options{}, func(context.Context, *redlatch.Held) error { return nil })
		},
		"who": func(ctx context.Context, name string) error { _, err := locks.Inspect(ctx, name); return err },
	}
	var took []time.Duration
	var left []string
	for round := range rounds {
		for verb, call := range calls {
			name := fmt.Sprintf("deadline/%s/%d", verb, round)
			server.Stop()
			from := hostNow()
			short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			err := call(short, name)
			cancel()
			took = append(took, hostNow()-from)
			server.Continue()
			if !errors.Is(err, redlatch.ErrUnavailable) {
				return took, left, fmt.Errorf("%s on a stopped server: %w", verb, err)
			}
			on := hostNow()
			for hostNow()-on < 200*time.Millisecond {
				if gone, err := free(server, name); err != nil || gone {
					break
				}
			}
			if gone, err := free(server, name); err != nil || !gone {
				left = append(left, name)
			}
		}
	}
	slices.Sort(took)
	return took, left, nil
}

func free(server *servertest.RedisServer, name string) (bool, error) {
	for _, key := range []string{name, name + "b"} {
		if n, err := server.Do("EXISTS", "lock:"+key); err != nil || n != int64(0) {
			return false, err
		}
	}
	return true, nil
}
