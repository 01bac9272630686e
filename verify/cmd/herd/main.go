//go:build unix

// Command herd measures what comes down on a Redis server that comes back: see package
// herd. It needs two files a waiter on either side: mind `ulimit -n`. It exits with 1 if
// a hold had more than one verdict or somebody gave up.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/redlatch/redlatch/verify/client"
	"github.com/redlatch/redlatch/verify/herd"
)

func main() {
	cfg := herd.Config{}
	flag.IntVar(&cfg.Waiters, "waiters", 0, "processes with one waiter each")
	flag.IntVar(&cfg.Names, "names", 10, "that they wait for")
	flag.IntVar(&cfg.Holds, "holds", 0, "in one process, instead of waiters")
	flag.DurationVar(&cfg.TTL, "ttl", time.Hour, "of the holds")
	flag.DurationVar(&cfg.Away, "away", 0, "how long the server is")
	flag.BoolVar(&cfg.Cut, "cut", false, "cut the connections, and leave the server running")
	flag.Parse()

	client.Silence()
	r, err := herd.Run(context.Background(), cfg)
	if err != nil {
		fmt.Fprintln(os.Stderr, "herd:", err)
		os.Exit(2)
	}
	fmt.Println(r)
	if r.Twice+r.Failed > 0 {
		os.Exit(1)
	}
}
