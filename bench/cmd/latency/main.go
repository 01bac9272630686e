//go:build unix

// Command latency compares a lock and its release that nobody else wants with the two bare
// commands that are the least one can do: SET NX PX, and a script that deletes what has the
// same value. Both go through the same client to the same server, in turns, so that what
// else the machine does meets both. The ratio is what counts, not the times.
package main

import (
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/servertest"
	"github.com/redlatch/redlatch/redisstore"
)

func main() {
	rounds := flag.Int("rounds", 20000, "of each")
	flag.Parse()
	if err := run(context.Background(), *rounds); err != nil {
		fmt.Fprintln(os.Stderr, "latency:", err)
		os.Exit(1)
	}
}

// compareDelete is what everybody releases with who locks with SET NX.
var compareDelete = redis.NewScript(`if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) end return 0`)

func run(ctx context.Context, rounds int) error {
	server, err := servertest.StartRedis(ctx, servertest.RedisConfig{})
	if err != nil {
		return err
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	store, err := redisstore.New(client, redisstore.Options{})
	if err != nil {
		return err
	}
	defer store.Close()
	locks, err := redlatch.New(store, redlatch.Config{})
	if err != nil {
		return err
	}

	bare := func() error {
		token := rand.Text()
		if ok, err := client.SetNX(ctx, "bare", token, redlatch.DefaultTTL).Result(); err != nil || !ok {
			return fmt.Errorf("SET NX: %v, %w", ok, err)
		}
		return compareDelete.EvalSha(ctx, client, []string{"bare"}, token).Err()
	}
	ours := func() error {
		held, err := locks.Lock(ctx, "ours", redlatch.Options{})
		if err != nil {
			return err
		}
		return held.Unlock()
	}
	if err := compareDelete.Load(ctx, client).Err(); err != nil {
		return err
	}
	const warm = 500
	var bares, oursTook []time.Duration
	for i := range warm + rounds {
		b, err := timed(bare)
		if err != nil {
			return err
		}
		o, err := timed(ours)
		if err != nil {
			return err
		}
		if i >= warm {
			bares, oursTook = append(bares, b), append(oursTook, o)
		}
	}
	slices.Sort(bares)
	slices.Sort(oursTook)
	for _, part := range []float64{0.5, 0.99} {
		b, o := bares[int(part*float64(rounds-1))], oursTook[int(part*float64(rounds-1))]
		fmt.Printf("p%.0f: bare %v, ours %v, ratio %.2f\n", part*100, b, o, float64(o)/float64(b))
	}
	return nil
}

func timed(f func() error) (time.Duration, error) {
	began := time.Now()
	err := f()
	return time.Since(began), err
}
