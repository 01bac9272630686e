// Command sim plays the simulator's games.
//
//	go run ./internal/sim/cmd/sim -seed 7                  # one, and says how it went
//	go run ./internal/sim/cmd/sim -seed 1 -seeds 100000    # many
//	go run ./internal/sim/cmd/sim -for 10m                 # until the time is over, from a seed by chance
//	go run ./internal/sim/cmd/sim -seed 7 -calm -without 2,3 -trace 500
//
// The first game that breaks an invariant is shrunk and told, and the exit code is 1.
package main

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/sim"
)

func main() {
	seed := flag.Uint64("seed", 0, "the first seed; 0: by chance")
	seeds := flag.Int("seeds", 1, "how many")
	lasts := flag.Duration("for", 0, "go on with seeds until then")
	without := flag.String("without", "", "of one seed's faults, those that do not happen: 0,3")
	calm := flag.Bool("calm", false, "of one seed: no call is lost, late or repeated")
	trace := flag.Int("trace", 0, "of one seed: tell the last so many events")
	workers := flag.Int("workers", runtime.GOMAXPROCS(0), "games at a time")
	flag.Parse()
	if *seed == 0 {
		*seed = rand.Uint64() / 2
		fmt.Println("from seed", *seed)
	}
	if *without != "" || *calm || *trace > 0 {
		one(sim.Game{Seed: *seed, Calm: *calm, Trace: *trace, Without: numbers(*without)})
		return
	}
	if *lasts > 0 {
		*seeds = math.MaxInt
	}
	many(*seed, *seeds, *workers, *lasts)
}

func numbers(text string) []int {
	var all []int
	for _, part := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' }) {
		n, err := strconv.Atoi(part)
		if err != nil {
			fmt.Fprintf(os.Stderr, "sim: -without %q: a list of numbers is wanted, such as 0,3\n", text)
			os.Exit(2)
		}
		all = append(all, n)
	}
	return all
}

func one(g sim.Game) {
	r := sim.Play(g)
	if r.Failure == "" {
		for _, line := range r.Trace {
			fmt.Println(line)
		}
	}
	fmt.Println(r)
	if r.Failure != "" {
		os.Exit(1)
	}
}

func many(seed uint64, seeds, workers int, lasts time.Duration) {
	began := time.Now()
	var sum sim.Sum
	failed := false
	sim.Search(seed, seeds, workers, func(r sim.Result) bool {
		sum.Add(r)
		if r.Failure != "" {
			failed = true
			fmt.Println(r)
			return false
		}
		return lasts == 0 || time.Since(began) < lasts
	})
	fmt.Println(sum.In(time.Since(began)))
	if failed {
		os.Exit(1)
	}
}
