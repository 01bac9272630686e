package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/cmd/redlatch/internal/duration"
	"github.com/redlatch/redlatch/lease"
)

// reservation is the command of a holder that is a person.
const reservation = "redlatch hold"

func reserved(o lease.Owner) bool { return o.Command == reservation }

func (a *app) holdCommand() *cobra.Command {
	o := acquireOptions{conflict: codeHeld, command: reservation}
	var end bool
	cmd := &cobra.Command{
		Use:   "hold NAME --for DUR",
		Short: "reserve a lock for a person",
		Example: `redlatch hold deploy --for 2h --note "db migration"
redlatch hold --end deploy`,
		Long: `Nobody else gets the lock until --for has passed or you end it. Others see it as
reserved, with the note. No process is behind it, and the store's restart may end it.
--end ends a reservation of the same owner; redlatch break ends anybody's.`,
		Annotations:       map[string]string{exitCodes: acquireCodes, usageOf: "redlatch hold NAME --for DUR [flags]\nredlatch hold --end NAME"},
		Args:              oneName,
		ValidArgsFunction: a.completeNames,
		RunE: func(_ *cobra.Command, args []string) error {
			switch {
			case end:
				return a.endHold(args[0], &o)
			case o.ttl == 0:
				f := usage("--for is missing: how long is %s to be held?", quoted(args[0]))
				f.next = "redlatch hold " + quoted(args[0]) + " --for 2h"
				return f
			}
			return a.hold(args[0], &o)
		},
	}
	f := cmd.Flags()
	o.flags(f)
	f.Var(o.length(&o.ttl), "for", "for `DUR`")
	f.BoolVar(&end, "end", false, "end the reservation")
	group(f, "Lease", "for", "end")
	return cmd
}

func (a *app) hold(name string, o *acquireOptions) error {
	if err := o.check(); err != nil {
		return err
	}
	return a.detached(redlatch.Config{Owner: o.holder()}, func(locks *redlatch.Locker, store *opened) error {
		began := time.Now()
		held, err := a.obtain(locks, store, name, o)
		if err != nil {
			return o.conflicted(err)
		}
		if a.json {
			doc := holdOf(held, o.ttl, store.name)
			doc.WaitMS = time.Since(began).Milliseconds()
			a.document(a.out, doc)
			return nil
		}
		a.info("%s is reserved for %s for %s; redlatch hold --end %s ends it", lease.Printable(name), lease.Printable(ownerOf(held.Token())),
			duration.Format(o.ttl), quoted(name))
		return nil
	})
}

// endHold ends a reservation. The one who made it has no token: who he is must do, which
// keeps colleagues from a mistake and nobody from more.
func (a *app) endHold(name string, o *acquireOptions) error {
	if o.ttl != 0 {
		return usage("--end and --for exclude each other")
	}
	return a.askAs(redlatch.Config{Owner: redlatch.Owner{Name: o.owner}}, queryTimeout, func(ctx context.Context, locks *redlatch.Locker, store string) error {
		q, err := locks.Inspect(ctx, name)
		if err != nil {
			return err
		}
		me := locks.Owner().Name
		holders := q.Holders()
		switch {
		case len(holders) == 0 && redlatch.Taken(q.Seal()):
			err = locks.Reopen(ctx, name, me)
		case len(holders) == 0:
			err = redlatch.ErrNotHeld
		case !reserved(holders[0].Owner) || holders[0].Owner.Name != me:
			return &failure{
				code: codeHeld, kind: "held",
				msg:  fmt.Sprintf("%s is no reservation of %s: it is held by %s", lease.Printable(name), lease.Printable(me), heldBy(holders, q.Now)),
				next: "redlatch break " + quoted(name),
			}
		default: // nobody works under it who could overlap
			_, err = locks.Break(ctx, name, redlatch.BreakOptions{Fence: holders[0].Ticket, Now: true})
		}
		var sealed *redlatch.SealedError
		switch {
		case errors.Is(err, redlatch.ErrNotHeld):
			a.info("%s is not reserved", lease.Printable(name))
			return nil
		case errors.As(err, &sealed) && sealed.Seal.By == me:
			return &failure{
				code: codeHeld, kind: "held",
				msg:  fmt.Sprintf("the holder of %s that was broken may still be at work for %s", lease.Printable(name), duration.Format(sealed.Seal.For)),
				next: "it cannot be given to others before that",
			}
		case errors.As(err, &sealed):
			return &failure{
				code: codeHeld, kind: "held",
				msg: fmt.Sprintf("%s is no reservation of %s: it is %s", lease.Printable(name), lease.Printable(me), sealedText(sealed.Seal)),
			}
		case err != nil:
			return err
		}
		a.info("%s is not reserved any more", lease.Printable(name))
		return nil
	})
}
