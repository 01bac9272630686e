//go:build linux

// Command soak runs many processes on one Redis server, stops, kills and cuts them off,
// and judges whether two ever trusted one lock at once. It starts its own server.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/redlatch/redlatch/verify"
)

func main() {
	verify.BeWorker()
	var s verify.Soak
	flag.DurationVar(&s.Duration, "duration", 2*time.Minute, "how long")
	flag.IntVar(&s.Processes, "processes", 8, "client processes")
	flag.IntVar(&s.Goroutines, "goroutines", 50, "goroutines in each")
	flag.IntVar(&s.Names, "names", 20, "names that they lock")
	flag.DurationVar(&s.TTL, "ttl", time.Second, "lease; holds take 0.1 to 3 times as long")
	flag.Uint64Var(&s.Seed, "seed", uint64(time.Now().UnixNano()), "of the dice")
	flag.StringVar(&s.Broken, "broken", "", "plain-del: break the product, to see that it is found out")
	flag.Parse()
	fmt.Printf("seed %d\n", s.Seed)
	v, err := s.Run(context.Background())
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(2)
	}
	fmt.Println(v)
	if !v.OK() {
		os.Exit(1)
	}
}
