//go:build unix

// Command soak fights for locks on a Redis server of its own and judges the record: see
// package soak. It exits with 1 if something was seen that must not be.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redlatch/redlatch/verify/soak"
)

func main() {
	soak.Worker()
	cfg := soak.Config{}
	flag.DurationVar(&cfg.Duration, "duration", 2*time.Minute, "how long")
	flag.DurationVar(&cfg.TTL, "ttl", time.Second, "of every lock")
	flag.IntVar(&cfg.Processes, "processes", 8, "how many")
	flag.IntVar(&cfg.Goroutines, "goroutines", 50, "in each process")
	flag.IntVar(&cfg.Names, "names", 20, "that they lock")
	flag.Uint64Var(&cfg.Seed, "seed", 0, "of the faults; 0: a new one")
	flag.StringVar(&cfg.Dir, "record", "", "directory for the record, which is then left there")
	flag.DurationVar(&cfg.Limit, "limit", 0, "a name with a running waiter may be without a holder for so long; 0: TTL + 1 s")
	flag.StringVar((*string)(&cfg.Until), "until", "", `end at the first fault of that kind: "overlap", "stuck" or "fence"`)
	flag.StringVar((*string)(&cfg.Broken), "broken", "", `break the product on purpose: "delete", "trust", "deaf" or "fence"`)
	flag.Parse()
	if cfg.Seed == 0 {
		cfg.Seed = rand.Uint64()
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	began := time.Now()
	result, err := soak.Run(ctx, cfg)
	if err != nil {
		fmt.Fprintf(os.Stderr, "seed %d: %v\n", cfg.Seed, err)
		os.Exit(2)
	}
	fmt.Printf("seed %d, %v: %v", cfg.Seed, time.Since(began).Round(time.Second), result)
	if result.Bad() {
		os.Exit(1)
	}
}
