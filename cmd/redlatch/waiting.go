package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/cmd/redlatch/internal/duration"
	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/lease"
)

const (
	// firstProgress is when a wait is first told: a shorter one is not worth a line.
	firstProgress = 300 * time.Millisecond

	// fresh is how often we ask who holds the lock, to say it on the terminal.
	fresh = 10 * time.Second
)

// waiting is what a person is told while we wait, and how long we wait for a store that
// does not answer.
type waiting struct {
	r     *running
	began time.Time

	tell  *time.Timer
	told  bool
	lines int    // of a log
	live  bool   // there is a line on the terminal that is written anew
	who   string // is in the way
	asked time.Time

	store  *watched
	silent error       // not nil: it does not answer
	said   bool        // that it does not
	giveUp *time.Timer // runs while it does not
}

func newWaiting(r *running) *waiting {
	return &waiting{r: r, store: &watched{Store: r.store, changed: make(chan struct{}, 1)}}
}

func (w *waiting) begin() {
	w.began = time.Now()
	w.tell = time.NewTimer(firstProgress)
	w.giveUp = time.NewTimer(0)
	w.giveUp.Stop()
}

// progress tells that we wait and for whom: on a terminal in one line that is written
// anew each second, in a log at first, after 10 s, after a minute, and then every five.
func (w *waiting) progress() {
	switch {
	case w.silent != nil:
		w.progressSilent() // and there is nobody to ask
		return
	case w.r.o.wait == 0:
		return
	}
	w.told = true
	if time.Since(w.asked) >= fresh {
		w.who, w.asked = w.r.inTheWay(nil), time.Now()
	}
	if w.r.rewrites() {
		w.live = true
		fmt.Fprintf(w.r.err, "\r\x1b[Kredlatch: waiting for %s (%s) - %s, %s",
			w.r.name, duration.Format(time.Since(w.began).Truncate(time.Second)), w.who, w.r.limit())
		w.tell.Reset(time.Second)
		return
	}
	w.asked = time.Time{}
	w.r.info("waiting for %s - %s, %s", w.r.name, w.who, w.r.limit())
	pauses := []time.Duration{10 * time.Second, 50 * time.Second, 5 * time.Minute}
	w.tell.Reset(pauses[min(w.lines, len(pauses)-1)])
	w.lines++
}

// progress tells once that we wait, and for whom.
func (r *running) progress() { r.info("waiting for %s - %s, %s", r.name, r.inTheWay(nil), r.limit()) }

func (r *running) limit() string {
	if r.o.wait == forever {
		return "without limit"
	}
	return "up to " + duration.Format(r.o.wait)
}

// rewrites reports whether messages go to a person who sees a line change.
func (r *running) rewrites() bool {
	return r.terminal && !r.quiet && !r.json && os.Getenv("TERM") != "dumb" && os.Getenv("CI") == ""
}

// clear takes the line off the terminal, for other messages.
func (w *waiting) clear() {
	if w.live {
		w.live = false
		fmt.Fprint(w.r.err, "\r\x1b[K")
	}
}

func (w *waiting) end() {
	w.clear()
	w.tell.Stop()
	w.giveUp.Stop()
}

// answered looks whether the store answers.
func (w *waiting) answered() {
	since, err := w.store.silence()
	before := w.silent
	w.silent = err
	switch {
	case err == nil && before != nil:
		w.said = false
		w.giveUp.Stop()
		w.tell.Reset(0)
	case err != nil && before == nil:
		w.tell.Reset(firstProgress)
		if w.r.o.onUnavailable != keepTrying {
			w.giveUp.Reset(time.Until(since.Add(w.r.o.retryStart)))
		}
	}
}

// progressSilent tells that the store does not answer.
func (w *waiting) progressSilent() {
	w.tell.Reset(time.Second)
	if w.said {
		return
	}
	w.said = true
	w.clear()
	how := "trying for " + duration.Format(w.r.o.retryStart)
	if w.r.o.onUnavailable == keepTrying {
		how = "trying on (--on-unavailable=wait)"
	}
	w.r.info("%s: %v; %s", w.r.store.name, explain(w.unavailable()).msg, how)
}

// unavailable is the error of a store that has not answered for too long.
func (w *waiting) unavailable() error {
	if errors.Is(w.silent, context.DeadlineExceeded) {
		return fmt.Errorf("%w: no answer", redlatch.ErrUnavailable)
	}
	return fmt.Errorf("%w: %w", redlatch.ErrUnavailable, w.silent)
}

// watched is a store that remembers since when it does not answer the calls by which a
// lock is got.
type watched struct {
	driver.Store

	changed chan struct{} // capacity 1

	mu    sync.Mutex
	since time.Time
	err   error
}

func (s *watched) Join(ctx context.Context, name string, claim lease.Claim) (lease.Standing, error) {
	sent := time.Now()
	st, err := s.Store.Join(ctx, name, claim)
	s.note(sent, err)
	return st, err
}

// Wait may rightly take its time: a silence begins with its end.
func (s *watched) Wait(ctx context.Context, name, id string, rev uint64) (lease.Standing, error) {
	st, err := s.Store.Wait(ctx, name, id, rev)
	s.note(time.Now(), err)
	return st, err
}

func (s *watched) note(since time.Time, err error) {
	s.mu.Lock()
	if s.err == nil {
		s.since = since
	}
	s.err = nil
	if unanswered(err) {
		s.err = err
	}
	s.mu.Unlock()

	select {
	case s.changed <- struct{}{}:
	default:
	}
}

func (s *watched) silence() (since time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.since, s.err
}

// unanswered reports whether an error says that there was no answer, or none for now.
// After any other there is nothing to try again for.
func unanswered(err error) bool {
	var fault *driver.Fault
	var mode *lease.ModeError
	switch {
	case err == nil, errors.Is(err, lease.ErrQueueFull), errors.As(err, &mode):
		return false
	case errors.As(err, &fault):
		return fault.Kind == driver.Unavailable
	}
	return true
}
