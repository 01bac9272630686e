package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/cmd/redlatch/internal/child"
	"github.com/redlatch/redlatch/cmd/redlatch/internal/duration"
)

// running is one redlatch run on its way.
type running struct {
	*app

	terminal bool // messages go to one

	o       *runOptions
	name    string
	store   *opened
	locks   *redlatch.Locker
	command child.Command
	signals chan os.Signal

	renewals atomic.Int64
	renewed  chan struct{} // capacity 1
	waiting  *waiting
	result   resultJSON
	resultTo resultFile // no path: nowhere
}

// do checks everything that can be checked before, gets the lock, runs the command and
// releases the lock.
func (r *running) do(given func(flag string) bool) error {
	var err error
	if r.command.Path, err = child.Look(r.command.Args[0]); err != nil {
		return err
	}
	if r.o.resultFile != "" {
		if r.resultTo, err = findResult(r.o.resultFile); err != nil {
			return usage("--result-file: %v; nothing was run", err)
		}
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
	r.waiting = newWaiting(r)
	r.locks, err = redlatch.New(r.waiting.store, redlatch.Config{
		Owner:         redlatch.Owner{Name: r.o.owner, Command: filepath.Base(r.command.Args[0])},
		Observer:      redlatch.Observer{Renewed: r.onRenewal},
		OnUnavailable: redlatch.Wait, // for how long is ours to say
	})
	if err != nil {
		return err
	}
	return r.locked()
}

// onRenewal delays the renewals of nobody.
func (r *running) onRenewal(redlatch.Event) {
	r.renewals.Add(1)
	select {
	case r.renewed <- struct{}{}:
	default:
	}
}

// locked gets the lock, runs the command and releases the lock.
func (r *running) locked() error {
	began := time.Now()
	held, err := r.acquire()
	r.result.WaitMS = time.Since(began).Milliseconds()
	if err != nil {
		var f *failure
		if r.o.onUnavailable == runWithout && errors.As(err, &f) && f.code == codeUnavailable {
			return r.unlocked(f)
		}
		return err
	}
	if r.waiting.told {
		r.info("acquired %s after %s, fence %d", r.name, duration.Format(time.Since(began)), held.Fence())
	} else {
		r.detail("acquired %s, fence %d", r.name, held.Fence())
	}
	return r.under(held)
}

// unlocked runs the command although there is no lock, as was asked for.
func (r *running) unlocked(why *failure) error {
	r.warn("%s; running WITHOUT THE LOCK, others may run it too (--on-unavailable=run)", strings.TrimSuffix(why.msg, "; nothing was run"))
	r.result.Outcome = "unlocked_run"
	return r.under(nil)
}

// acquire waits for the lock as long as it may. A signal withdraws the claim and ends
// the program as it would end any other.
func (r *running) acquire() (*redlatch.Held, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	take := r.locks.TryLock
	options := redlatch.Options{
		TTL: r.o.ttl, HoldAtLeast: r.o.holdAtLeast, StopMargin: r.o.grace + r.o.reserve(),
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

	w := r.waiting
	w.begin()
	defer w.end()
	var ended error // why it is given up
	for {
		select {
		case got := <-answered:
			w.end()
			if ended == nil {
				return got.held, r.notAcquired(got.err)
			}
			if got.held != nil {
				_ = got.held.Unlock() // it ends with its lease if this does not reach the store
			}
			return nil, ended
		case sig := <-r.signals:
			if slices.Contains(ending, sig) {
				ended = interrupted(sig)
				cancel()
			}
		case <-w.store.changed:
			w.answered()
		case <-w.giveUp.C:
			if ended == nil {
				ended = r.notAcquired(w.unavailable())
				cancel()
			}
		case <-w.tell.C:
			w.progress()
		}
	}
}

func interrupted(sig os.Signal) *failure {
	return &failure{code: 128 + signalNumber(sig), kind: "interrupted", msg: "ended by " + signalName(sig) + " while waiting"}
}

// under runs the command under the lock and gives the lock back. held is nil if it runs
// without.
func (r *running) under(held *redlatch.Held) error {
	r.command.Env = r.environment(held)
	if held != nil {
		r.result.Fence = held.Fence()
	}
	began := time.Now()
	r.result.StartedAt = &stamp{began}
	c, err := r.start(held)
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
		if code != child.CodeUnknown {
			r.result.ExitCode = &code
		}
		if signal != "" {
			r.result.Signal = &signal
		}
	}
	r.result.FinishedAt = &stamp{time.Now()}
	lost := r.release(held)
	if !s.warned {
		r.result.HeldMS = time.Since(began).Milliseconds()
	}
	switch {
	case err != nil:
		return err
	case lost != nil && !s.warned:
		// Found only now: the command has ended by itself, but somebody else may have
		// worked beside it.
		return &failure{code: codeLost, kind: "lost", msg: "lost lock " + r.name + ": " + lost.Loss.String() +
			"; found at the release, the command had ended with exit code " + strconv.Itoa(code)}
	case code == child.CodeUnknown:
		return internal("the guard was killed as the command ended: its exit code is not known")
	}
	r.code = code
	return nil
}

// start starts the command, and the guard between it and us.
func (r *running) start(held *redlatch.Held) (*child.Child, error) {
	if r.o.noGuard || !child.HasGuard {
		return child.Start(r.command)
	}
	r.command.Guard = &child.Orders{Grace: r.o.grace, Signal: r.o.onLost.asks()}
	if held != nil && !r.o.onLost.warn {
		r.command.Guard.For = time.Until(held.Until()) - r.o.last()
	}
	if files, ok := r.store.Store.(interface{ Lifeline() (*os.File, error) }); ok && held != nil {
		keep, err := files.Lifeline()
		if err != nil {
			return nil, internal("the lock's file cannot be handed to the guard: %v; nothing was run", err)
		}
		defer keep.Close()
		r.command.Guard.Keep = keep
	}
	c, err := child.Start(r.command)
	var cannot *child.CannotRunError
	if err != nil && !errors.As(err, &cannot) {
		f := internal("%v; nothing was run", err)
		f.next = "--no-guard does without it"
		return nil, f
	}
	return c, err
}

func internal(format string, args ...any) *failure {
	return &failure{code: codeInternal, kind: "internal", msg: fmt.Sprintf(format, args...)}
}

// release gives the lock back. A release that does not reach the store is told, but
// the command has done its work: its exit code stands.
func (r *running) release(held *redlatch.Held) *redlatch.LostError {
	if held == nil {
		return nil
	}
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
	if r.resultTo.path != "" {
		if err := r.resultTo.write(&r.result); err != nil {
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
