package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/cmd/redlatch/internal/duration"
	"github.com/redlatch/redlatch/lease"
)

func (a *app) waitCommand() *cobra.Command {
	timeout, doubts := forever, []string(nil)
	cmd := &cobra.Command{
		Use:   "wait NAME",
		Short: "wait until a lock is free, without taking it",
		Example: `redlatch wait deploy && echo free
redlatch wait --timeout 10m deploy || echo "still busy"`,
		Long: `It looks again and again, once a second at the most. The lock may be somebody's again
when it returns: to do something only while it is free, take it (redlatch run -w).`,
		Annotations: map[string]string{exitCodes: `  0  it is free
 64  usage: a flag, the name, the store's URL
 69  the store cannot be reached
 70  internal error
 75  it was not free within --timeout
 77  the store refuses the user, the password or the right
 78  the configuration is invalid
128+n  signal n ended the wait`},
		Args:              oneName,
		ValidArgsFunction: a.completeNames,
		RunE: func(_ *cobra.Command, args []string) error {
			for _, doubt := range doubts {
				a.warn("%s", doubt)
			}
			return a.wait(args[0], timeout)
		},
	}
	cmd.Flags().Var(waitValue{durationValue{&timeout, &doubts}}, "timeout", "wait for `DUR` at most, or forever (the default)")
	group(cmd.Flags(), "Waiting", "timeout")
	return cmd
}

// Looks at the lock come closer together than a second only at the beginning.
const (
	firstLook = 20 * time.Millisecond
	lastLook  = time.Second
)

func (a *app) wait(name string, timeout time.Duration) error {
	return a.ask(queryTimeout, func(_ context.Context, locks *redlatch.Locker, store string) error {
		ctx, stop := untilSignal()
		defer stop()
		end := never()
		if timeout != forever {
			end = time.After(timeout)
		}
		answered, told := time.Now(), false
		for pause := firstLook; ; pause = min(2*pause, lastLook) {
			q, err := locks.Inspect(ctx, name)
			switch {
			case ctx.Err() != nil:
				return context.Cause(ctx)
			case errors.Is(err, redlatch.ErrUnavailable) && told && time.Since(answered) < queryTimeout:
				// A server that restarts is no reason to give a long wait up.
			case err != nil:
				return err
			case stateOf(&q) == stateFree:
				if a.json {
					a.document(a.out, lockOf(name, store, &q))
				}
				return nil
			default:
				answered = time.Now()
				if !told {
					told = true
					a.info("waiting for %s - %s", lease.Printable(name), busyText(&q))
				}
			}
			select {
			case <-end:
				return &failure{
					code: codeHeld, kind: "wait_timeout", msg: lease.Printable(name) + " is " + busyText(&q),
					next: "gave up after " + duration.Format(timeout) + " (redlatch who " + quoted(name) + ")",
				}
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(pause):
			}
		}
	})
}

func never() <-chan time.Time { return nil }

// busyText says why a lock is not free.
func busyText(q *lease.Queue) string {
	if holders := q.Holders(); len(holders) > 0 {
		return "held by " + heldBy(holders, q.Now)
	}
	if s := q.Seal(); s.Closed() {
		return sealedText(s)
	}
	return "about to be somebody's"
}
