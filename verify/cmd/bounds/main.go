//go:build unix

// Command bounds measures by how much a holder that is cut off stops before another one
// has its lock, and when calls with a deadline to a stopped server return and nothing is
// left of them: see packages cutoff and deadline. It exits with 1 if one stopped too late,
// more than one call in 100 took half as long again as its deadline, or something was left.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/redlatch/redlatch/verify/cutoff"
	"github.com/redlatch/redlatch/verify/deadline"
)

func main() {
	rounds := flag.Int("rounds", 200, "holders that are cut off, and calls to a stopped server")
	lanes := flag.Int("lanes", 8, "holders that are cut off at one time")
	ttl := flag.Duration("ttl", 300*time.Millisecond, "shortest lease of one that is cut off; the longest is 5/3 of it")
	seed := flag.Uint64("seed", rand.Uint64(), "of the moments")
	flag.Parse()

	fmt.Println("seed", *seed)
	cut, err := cutoff.Run(context.Background(), cutoff.Config{Rounds: *rounds, Lanes: *lanes, TTL: *ttl, Seed: *seed})
	check(err)
	fmt.Printf("cut off: from the end of the context to the other one's lock: %v\n", cut.Margins)
	calls, err := deadline.Run(context.Background(), deadline.Config{Calls: *rounds, Seed: *seed})
	check(err)
	fmt.Print(calls)
	for _, fault := range cut.Faults {
		fmt.Println(fault)
	}
	if len(cut.Faults)+len(calls.Faults) > 0 || calls.All.At(0.99) > deadline.Deadline*3/2 {
		os.Exit(1)
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bounds:", err)
		os.Exit(2)
	}
}
