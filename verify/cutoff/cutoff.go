//go:build unix

// Package cutoff cuts the holder of a lock off from its Redis server and measures by how
// much the end of its context comes before somebody else can have the lock. The server
// and the other client stay well: it is the network that is broken, in a relay.
//
// Two things are looked at. When the other client's call returns with the lock, the
// holder's Valid must say no: that is the promise, and no scheduling can excuse a yes. And
// a goroutine that only waits for the context's end notes when it heard of it; from there
// to the moment at which the other one has the lock is the margin. It has in it the drift
// that trust is shortened by (1 % of the TTL and 2 ms), and what a waiter takes to notice
// that the lease is over.
package cutoff

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/internal/relay"
	"github.com/redlatch/redlatch/internal/servertest"
	"github.com/redlatch/redlatch/verify/client"
	"github.com/redlatch/redlatch/verify/quantile"
)

// Config is the size of a run.
type Config struct {
	Rounds int
	Lanes  int           // rounds at one time, each with a relay and a name of its own
	TTL    time.Duration // the shortest; the longest is 5/3 of it
	Seed   uint64

	wrap func(driver.Store) driver.Store // breaks the product on purpose; nil: not
}

// Result is what came of a run.
type Result struct {
	Margins quantile.Spread // from the context's end to the other one's lock
	Faults  []string
}

// Run runs the rounds. The error says that a round did not work, whatever it was to show.
func Run(ctx context.Context, cfg Config) (Result, error) {
	server, err := servertest.StartRedis(ctx, servertest.RedisConfig{})
	if err != nil {
		return Result{}, err
	}
	defer server.Close()
	client.Silence()

	var mu sync.Mutex
	var margins []time.Duration
	var result Result
	var errs []error
	var work sync.WaitGroup
	for i := range cfg.Lanes {
		work.Go(func() {
			err := lap(ctx, server.Addr(), i, cfg, func(round int, margin time.Duration, faults []string) {
				mu.Lock()
				defer mu.Unlock()
				margins = append(margins, margin)
				for _, f := range faults {
					result.Faults = append(result.Faults, fmt.Sprintf("round %d: %s", round, f))
				}
			})
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		})
	}
	work.Wait()
	result.Margins = quantile.Of(margins)
	return result, errors.Join(errs...)
}

// lap runs the rounds of one lane and tells what came of each.
func lap(ctx context.Context, addr string, number int, cfg Config, tell func(round int, margin time.Duration, faults []string)) error {
	l, err := newLane(addr, number, cfg)
	if err != nil {
		return err
	}
	defer l.close()
	for round := number; round < cfg.Rounds; round += cfg.Lanes {
		margin, faults, err := l.round(ctx)
		if err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		tell(round, margin, faults)
	}
	return nil
}

// lane is a pair of clients, one of them behind a relay.
type lane struct {
	name   string
	ttl    time.Duration
	random *rand.Rand
	relay  *relay.Relay
	cut    *client.Client // the holder that is cut off
	well   *client.Client // the other one
}

func newLane(addr string, number int, cfg Config) (*lane, error) {
	l := &lane{
		name: fmt.Sprint("lane-", number), ttl: cfg.TTL, random: rand.New(rand.NewPCG(cfg.Seed, uint64(number))),
	}
	var err error
	// A relay that does not understand something cuts that connection, which the round sees.
	if l.relay, err = relay.New(addr, func(error) {}); err != nil {
		return nil, err
	}
	if l.cut, err = client.New(l.relay.Addr(), "cut off", cfg.wrap); err != nil {
		return nil, err
	}
	l.well, err = client.New(addr, "well", nil)
	return l, err
}

func (l *lane) close() {
	l.relay.Close()
	l.cut.Close()
	l.well.Close()
}

// round cuts the holder off at some moment of its lease, or just while a renewal is under
// way, in one direction or both, with or without somebody who waits for the lock already.
func (l *lane) round(ctx context.Context) (margin time.Duration, faults []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	o := redlatch.Options{TTL: l.ttl + time.Duration(l.random.Int64N(int64(l.ttl)*2/3))}
	held, err := l.cut.Locks.Lock(ctx, l.name, o)
	if err != nil {
		return 0, nil, err
	}
	ended := make(chan time.Time, 1)
	go func() { // it ends with the hold, at its Unlock at the latest
		<-held.Context().Done()
		ended <- time.Now()
	}()
	others := make(chan got, 1)
	other := func() {
		held, err := l.well.Locks.Lock(ctx, l.name, o)
		others <- got{held, err, time.Now()}
	}
	waits := l.random.IntN(2) == 0
	if waits {
		go other()
	}
	way := []relay.Direction{relay.Requests, relay.Replies, relay.Both}[l.random.IntN(3)]
	if err := l.moment(ctx, o.TTL); err != nil {
		return 0, nil, err
	}
	l.relay.Freeze(way)
	defer l.relay.Thaw()
	if !waits {
		go other()
	}
	g := <-others
	stillValid := held.Valid()
	if g.err != nil {
		l.relay.Thaw()
		return 0, nil, fmt.Errorf("the other client: %w", errors.Join(g.err, held.Unlock()))
	}
	if stillValid {
		faults = append(faults, "the holder's Valid says yes when the other one has the lock")
	}
	select {
	case end := <-ended:
		margin = g.at.Sub(end)
	case <-time.After(time.Second):
		margin = -time.Second
	}
	if margin <= 0 {
		faults = append(faults, fmt.Sprintf("the context of a hold of %v ended %v after the other one had the lock (frozen: %v)", o.TTL, -margin, way))
	}
	if g.held.Fence() <= held.Fence() {
		faults = append(faults, fmt.Sprintf("fence %d after %d", g.held.Fence(), held.Fence()))
	}
	return margin, append(faults, l.comeBack(held, g.held)...), nil
}

// got is what the other one's call returned.
type got struct {
	held *redlatch.Held
	err  error
	at   time.Time
}

// moment returns at some moment of the lease, or when the next renewal has gone through
// and its answer is under way.
func (l *lane) moment(ctx context.Context, ttl time.Duration) error {
	if l.random.IntN(2) == 0 {
		return client.Pause(ctx, time.Duration(l.random.Int64N(int64(ttl))))
	}
	before := l.relay.Requests()["EVALSHA"]
	for l.relay.Requests()["EVALSHA"] == before {
		if err := client.Pause(ctx, 100*time.Microsecond); err != nil {
			return err
		}
	}
	return nil
}

// comeBack lets the network be well again. What the one who was cut off has sent
// meanwhile arrives now, and must not hurt the other one; its release tells of the loss.
func (l *lane) comeBack(lost, held *redlatch.Held) (faults []string) {
	l.relay.Thaw()
	if err := lost.Unlock(); !errors.Is(err, redlatch.ErrLost) {
		faults = append(faults, fmt.Sprintf("the release of the lost hold says: %v", err))
	}
	if !held.Valid() {
		faults = append(faults, fmt.Sprintf("the other one lost the lock when the first came back: %v", context.Cause(held.Context())))
	}
	if err := held.Unlock(); err != nil {
		faults = append(faults, fmt.Sprintf("the other one's release: %v", err))
	}
	return faults
}
