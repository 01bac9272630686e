//go:build unix

package soak

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/lease"
	"github.com/redlatch/redlatch/redisstore"
	"github.com/redlatch/redlatch/verify/client"
	"github.com/redlatch/redlatch/verify/history"
)

// ordersVariable tells a process that it is a worker, and what to do.
const ordersVariable = "REDLATCH_SOAK_ORDERS"

// Orders are what a worker is told.
type Orders struct {
	Addr       string
	Dir        string
	Process    string
	Names      []string
	Goroutines int
	TTL        time.Duration
	Seed       uint64
	Broken     Broken
}

// Worker makes this process a worker if a run has started it as one, and then does not
// return. Programs and tests that call [Run] call it first of all.
func Worker() {
	text, ok := os.LookupEnv(ordersVariable)
	if !ok {
		return
	}
	var orders Orders
	err := json.Unmarshal([]byte(text), &orders)
	if err == nil {
		err = orders.carryOut()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// worker is one process that wants locks.
type worker struct {
	Orders

	log   *history.Log
	locks *redlatch.Locker
	calls atomic.Uint64
}

func (o Orders) carryOut() (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	client.Silence()
	client := redis.NewClient(&redis.Options{Addr: o.Addr})
	defer client.Close()
	store, err := redisstore.New(client, redisstore.Options{})
	if err != nil {
		return err
	}
	w := &worker{Orders: o}
	w.locks, err = redlatch.New(o.Broken.wrap(store, client), redlatch.Config{Owner: redlatch.Owner{Name: o.Process}})
	if err != nil {
		return err
	}
	if w.log, err = history.OpenLog(o.Dir, o.Process); err != nil {
		return err
	}
	var work sync.WaitGroup
	for i := range o.Goroutines {
		random := rand.New(rand.NewPCG(o.Seed, stream(o.Process, i)))
		work.Go(func() {
			for ctx.Err() == nil {
				w.turn(ctx, random)
			}
		})
	}
	work.Wait()
	end, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return errors.Join(w.locks.Close(end), store.Close(), w.log.Close())
}

// stream is another one for each goroutine of each process of a run.
func stream(process string, goroutine int) uint64 {
	var number, starts uint64
	if _, err := fmt.Sscanf(process, "%d.%d", &number, &starts); err != nil {
		panic(err) // the run has made it up
	}
	return number<<40 | starts<<20 | uint64(goroutine)
}

// turn is one call for a lock and what comes of it.
func (w *worker) turn(ctx context.Context, random *rand.Rand) {
	t := &turn{w: w, name: w.Names[random.IntN(len(w.Names))], call: w.calls.Add(1), random: random}
	o := redlatch.Options{TTL: w.TTL, NoRenew: random.IntN(10) == 0, Confirm: random.IntN(10) == 0}
	if random.IntN(2) == 0 {
		o.MaxWait = 1 + time.Duration(random.Float64()*8*float64(w.TTL))
	}
	t.write(history.Record{Kind: history.Want, At: history.Now()})

	var held *redlatch.Held
	var err error
	switch random.IntN(8) {
	case 0:
		held, err = w.locks.TryLock(ctx, t.name, o)
	case 1:
		err = w.locks.Do(ctx, t.name, o, func(_ context.Context, held *redlatch.Held) error {
			t.hold(ctx, held)
			return nil
		})
	default:
		held, err = w.locks.Lock(ctx, t.name, o)
	}
	if held != nil {
		t.hold(ctx, held)
		err = held.Unlock()
	}
	end := history.Record{Kind: history.Ended, At: history.Now(), Note: cmp.Or(t.early, ending(err))}
	if t.held {
		t.write(end)
		return
	}
	end.Kind = history.Gave
	t.write(end)
	// Who was refused does not come back at once: the server has others to serve.
	pause(ctx, time.Duration(random.Float64()*float64(w.TTL)/4))
}

type turn struct {
	w      *worker
	name   string
	call   uint64
	random *rand.Rand
	held   bool
	early  string // the server had given a trusted lock away
}

func (t *turn) write(r history.Record) {
	r.Process, r.Name, r.Call = t.w.Process, t.name, t.call
	t.w.log.Add(r)
}

// hold keeps the lock for 0.1 to 3 TTL, short ones more often than long ones, as long as
// it is trusted and the process shall not end, and writes stamps.
func (t *turn) hold(ctx context.Context, held *redlatch.Held) {
	t.held = true
	most := math.Log(30)
	end := time.NewTimer(time.Duration(0.1 * math.Exp(t.random.Float64()*most) * float64(t.w.TTL)))
	defer end.Stop()
	again := time.NewTicker(t.w.TTL / 40)
	defer again.Stop()
	lost := held.Context().Done()
	if t.w.Broken == Trusting {
		lost = nil
	}
	for t.stamp(held) {
		select {
		case <-again.C:
			continue
		case <-lost:
			t.lost(context.Cause(held.Context()))
			return
		case <-end.C:
		case <-ctx.Done():
		}
		t.stamp(held) // the last moment before the release
		return
	}
}

// lost looks at why. Trust ends by the clock before the server can give the lock away; so
// whoever hears from the server that it is gone, while it is trusted, has been wronged.
func (t *turn) lost(err error) {
	loss, ok := errors.AsType[*redlatch.LostError](err)
	if ok && (loss.Loss.Why == lease.Taken || loss.Loss.Why == lease.Vanished) {
		t.early = lostEarly + ": " + err.Error()
	}
}

// stamp writes that the hold is trusted, if it is. The time is read first: see package
// history for why.
func (t *turn) stamp(held *redlatch.Held) bool {
	now := history.Now()
	if !held.Valid() && t.w.Broken != Trusting {
		return false
	}
	fence := held.Fence()
	if t.w.Broken == Unordered {
		fence = t.call
	}
	t.write(history.Record{Kind: history.Hold, Fence: fence, At: now})
	return true
}

// How calls end that must not.
const (
	lostEarly = "lost while trusted"
	unheardOf = "failed otherwise" // nobody has asked for that
)

var lossKinds = map[lease.Why]string{
	lease.Expired: "lost, expired", lease.Unreachable: "lost, unreachable", lease.Taken: "lost, taken",
	lease.Vanished: "lost, vanished", lease.Broken: "lost, broken", lease.HeldTooLong: "lost, held too long",
}

// ending sorts how a call ended, with the details behind a colon.
func ending(err error) string {
	loss, lost := errors.AsType[*redlatch.LostError](err)
	for _, kind := range []struct {
		err  error
		name string
	}{
		{redlatch.ErrHeld, "held by others"},
		{redlatch.ErrUnavailable, "unavailable"},
		{redlatch.ErrClosed, "closed"},
		{context.Canceled, "cancelled"},
	} {
		if errors.Is(err, kind.err) && !lost {
			return kind.name + ": " + err.Error()
		}
	}
	switch {
	case err == nil:
		return "released"
	case lost:
		return lossKinds[loss.Loss.Why] + ": " + err.Error()
	}
	return unheardOf + ": " + err.Error()
}
