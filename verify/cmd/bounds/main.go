//go:build linux

// Command bounds measures the margin by which a cut-off holder stops before another one
// has its lock, and how long calls to a stopped server take that have 100 ms.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/redlatch/redlatch/internal/servertest"
	"github.com/redlatch/redlatch/verify"
)

func main() {
	rounds := flag.Int("rounds", 200, "of each")
	ttl := flag.Duration("ttl", 300*time.Millisecond, "lease of the holder that is cut off")
	flag.Parse()
	if err := run(context.Background(), *rounds, *ttl); err != nil {
		fmt.Fprintln(os.Stderr, "bounds:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, rounds int, ttl time.Duration) error {
	server, err := servertest.StartRedis(ctx, servertest.RedisConfig{})
	if err != nil {
		return err
	}
	defer server.Close()
	margins, err := verify.CutOff(ctx, server, rounds, ttl)
	if err != nil {
		return err
	}
	fmt.Println("cut off, margin:  ", verify.Quantiles(margins))
	took, left, err := verify.Deadline(ctx, server, rounds/5)
	if err != nil {
		return err
	}
	fmt.Println("100 ms, call took:", verify.Quantiles(took))
	if margins[0] < 0 || len(left) > 0 {
		return fmt.Errorf("overlap %v, left behind %v", margins[0], left)
	}
	return nil
}
