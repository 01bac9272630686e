package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/cmd/redlatch/internal/child"
	"github.com/redlatch/redlatch/cmd/redlatch/internal/duration"
)

// running is one redlatch run on its way.
type running struct {
	*app

	o       *runOptions
	name    string
	store   *opened
	locks   *redlatch.Locker
	command child.Command
	signals chan os.Signal

	renewals atomic.Int64
	told     bool // that we wait
	result   resultJSON
}

// do checks everything that can be checked before, gets the lock, runs the command and
// releases the lock.
func (r *running) do(given func(flag string) bool) error {
	var err error
	if r.command.Path, err = child.Look(r.command.Args[0]); err != nil {
		return err
	}
	if r.store, err = r.open(); err != nil {
		return err
	}
	r.result.Store = &r.store.name
	if r.store.ttl != 0 && !given("ttl") {
		r.o.ttl = r.store.ttl
	}
	if err := r.o.check(given); err != nil {
		return err
	}
	catch(r.signals)
	r.locks, err = redlatch.New(r.store, redlatch.Config{
		Owner:    redlatch.Owner{Name: r.o.owner, Command: filepath.Base(r.command.Args[0])},
		Observer: redlatch.Observer{Renewed: func(redlatch.Event) { r.renewals.Add(1) }},
	})
	if err != nil {
		return err
	}
	return r.locked()
}

// locked gets the lock, runs the command and releases the lock.
func (r *running) locked() error {
	began := time.Now()
	held, err := r.acquire()
	r.result.WaitMS = time.Since(began).Milliseconds()
	if err != nil {
		return err
	}
	if r.told {
		r.info("acquired %s after %s, fence %d", r.name, duration.Format(time.Since(began)), held.Fence())
	} else {
		r.detail("acquired %s, fence %d", r.name, held.Fence())
	}
	return r.under(held)
}

// acquire waits for the lock as long as it may. A signal withdraws the claim and ends
// the program as it would end any other.
func (r *running) acquire() (*redlatch.Held, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	take := r.locks.TryLock
	options := redlatch.Options{
		TTL: r.o.ttl, HoldAtLeast: r.o.holdAtLeast, StopMargin: r.o.grace + reserve,
		Confirm: true, Labels: r.o.labels, Note: r.o.note,
	}
	if r.o.wait != 0 {
		take = r.locks.Lock
		options.MaxWait = max(r.o.wait, 0)
	}
	type answer struct {
		held *redlatch.Held
		err  error
	}
	answered := make(chan answer, 1)
	go func() {
		held, err := take(ctx, r.name, options)
		answered <- answer{held, err}
	}()

	tell := time.NewTimer(firstProgress)
	defer tell.Stop()
	var ended os.Signal
	for {
		select {
		case got := <-answered:
			if ended == nil {
				return got.held, r.notAcquired(got.err)
			}
			if got.held != nil {
				_ = got.held.Unlock() // it ends with its lease if this does not reach the store
			}
			return nil, interrupted(ended)
		case sig := <-r.signals:
			if slices.Contains(ending, sig) {
				ended = sig
				cancel()
			}
		case <-tell.C:
			if r.o.wait != 0 {
				tell.Reset(r.progress())
			}
		}
	}
}

func interrupted(sig os.Signal) *failure {
	return &failure{code: 128 + signalNumber(sig), kind: "interrupted", msg: "ended by " + signalName(sig) + " while waiting"}
}

// under runs the command under the lock and gives the lock back.
func (r *running) under(held *redlatch.Held) error {
	r.result.Fence = held.Fence()
	r.command.Env = r.environment(held)
	began := time.Now()
	r.result.StartedAt = &stamp{began}
	c, err := child.Start(r.command)
	if err != nil {
		_ = r.release(held) // nothing has run under it
		return err
	}
	catchStop(r.signals)
	r.detail("started pid %d", c.PID())
	s := &supervisor{running: r, held: held, child: c, began: began}
	err = s.wait()
	c.Close()
	var code int
	if !s.abandoned {
		var signal string
		code, signal = c.Code()
		r.result.ExitCode = &code
		if signal != "" {
			r.result.Signal = &signal
		}
	}
	r.result.FinishedAt = &stamp{time.Now()}
	lost := r.release(held)
	r.result.HeldMS = time.Since(began).Milliseconds()
	switch {
	case err != nil:
		return err
	case lost != nil && !s.warned:
		// Found only now: the command has ended by itself, but somebody else may have
		// worked beside it.
		return &failure{code: codeLost, kind: "lost", msg: "lost lock " + r.name + ": " + lost.Loss.String() +
			"; found at the release, the command had ended with exit code " + strconv.Itoa(code)}
	}
	r.code = code
	return nil
}

// release gives the lock back. A release that does not reach the store is told, but
// the command has done its work: its exit code stands.
func (r *running) release(held *redlatch.Held) *redlatch.LostError {
	err := held.Unlock()
	var lost *redlatch.LostError
	switch {
	case err == nil:
	case errors.As(err, &lost):
		return lost
	case errors.Is(err, redlatch.ErrUnavailable):
		r.warn("could not release %s: %s; others get it when its lease is over, in %s", r.name, explain(err).msg, duration.Format(time.Until(held.Until())))
	default:
		r.warn("could not release %s: %s", r.name, explain(err).msg)
	}
	return nil
}

// finish ends what goes on in the background, such as the withdrawal of a claim, and
// writes the result. It does not wait long: a store that is away must not keep a
// program that was told to end, and the claim ends with its lease.
func (r *running) finish(err error) error {
	if r.locks != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = r.locks.Close(ctx) // what is left of it then is said above
	}
	if r.store != nil {
		r.store.close()
	}
	var f *failure
	if err != nil {
		f = explain(err)
	}
	r.result.Renewals = r.renewals.Load()
	r.result.conclude(f)
	if r.o.resultFile != "" {
		if err := r.result.write(r.o.resultFile); err != nil {
			r.warn("--result-file: %v", err)
		}
	}
	if f == nil {
		if r.json {
			r.document(r.err, r.result)
		}
		return nil
	}
	if r.json {
		r.document(r.err, r.result)
		f.told = true
	}
	if f.kind == "held" || f.kind == "wait_timeout" {
		f = &failure{code: r.o.conflict, kind: f.kind, msg: f.msg, next: f.next, told: f.told || r.quiet}
	}
	return f
}
