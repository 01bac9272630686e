package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/cmd/redlatch/internal/duration"
	"github.com/redlatch/redlatch/lease"
)

// breakOptions are the flags of break.
type breakOptions struct {
	fence    uint64
	reason   string
	yes      bool
	dryRun   bool
	now      bool
	take     bool
	takeFor  time.Duration
	owner    string
	auditLog string
	doubts   []string
}

func (a *app) breakCommand() *cobra.Command {
	o := breakOptions{takeFor: 30 * time.Minute}
	cmd := &cobra.Command{
		Use:   "break NAME",
		Short: "take a lock away from its holder",
		Example: `redlatch break deploy                       shows who has it and asks
redlatch break deploy --fence 1764551336123456 --reason "dead NFS mount"
redlatch break deploy --take --for 1h       and let nobody in before it is set right
redlatch break deploy --dry-run`,
		Long: `Only the hold that was shown, or that --fence names, is broken: if somebody else has
the lock by now, nothing is done. The holder is told with its next renewal and stops;
nobody gets the lock before it has answered or its lease has run out. --now lets others
in at once, and says for how long two may be at work. --take lets nobody in for as long
as --for says, also none of those who wait; redlatch hold --end ends that.

Without a terminal to ask at, it takes --fence, or --yes for whichever hold is found,
and --reason. What is done is written to the system's log where there is one, and to
--audit-log as a line of JSON.`,
		Annotations: map[string]string{exitCodes: `  0  broken, or free already
 64  usage: a flag, the name, the store's URL, or not confirmed
 69  the store cannot be reached; whether it is broken is not known
 70  internal error
 75  somebody else has it by now, or it is closed: nothing was done
 77  the store refuses the user, the password or the right
 78  the configuration is invalid`},
		Args:              oneName,
		ValidArgsFunction: a.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("for") && !o.take {
				return usage("--for says how long --take keeps others out; --take is missing")
			}
			return a.breakLock(args[0], &o)
		},
	}
	f := cmd.Flags()
	f.Uint64Var(&o.fence, "fence", 0, "break the hold with fence `N` and no other")
	f.StringVar(&o.reason, "reason", "", "`TEXT` why, for the holder and the audit log")
	f.BoolVarP(&o.yes, "yes", "y", false, "do not ask")
	f.BoolVar(&o.dryRun, "dry-run", false, "show what would be broken")
	f.BoolVar(&o.now, "now", false, "let others in at once, beside a holder who is still at work")
	f.BoolVar(&o.take, "take", false, "let nobody in, for --for")
	f.Var(durationValue{&o.takeFor, &o.doubts}, "for", "with --take, for `DUR` (30m)")
	f.StringVar(&o.owner, "owner", "", "`WHO` breaks it, as others see it (user@host)")
	group(f, "Lease", "fence", "reason", "yes", "dry-run", "now", "take", "for", "owner")
	f.StringVar(&o.auditLog, "audit-log", "", "append a line of JSON to `FILE`")
	group(f, "Output", "audit-log")
	return cmd
}

// maxReason keeps the reason within what every store keeps of a seal.
const maxReason = 1000

func (o *breakOptions) check(asks bool) error {
	example := `for example: --fence N --reason "it hangs" (redlatch who shows the fence)`
	switch {
	case o.now && o.take:
		return usage("--now and --take exclude each other: others get in at once, or not at all")
	case o.take && o.takeFor == 0:
		return usage("--for 0s is no time to --take a lock for")
	case len(o.reason) > maxReason:
		return usage("--reason has %d bytes, %d is the most", len(o.reason), maxReason)
	case asks || o.dryRun:
		return nil
	case !o.yes && o.fence == 0:
		f := usage("there is no terminal to ask at: --fence or --yes is missing")
		f.next = example
		return f
	case o.reason == "":
		f := usage("there is no terminal to ask at: --reason is missing")
		f.next = example
		return f
	}
	return nil
}

func (a *app) breakLock(name string, o *breakOptions) error {
	asks := isTerminal(os.Stdin) && isTerminal(os.Stderr) && !a.json && !a.quiet
	if err := o.check(asks); err != nil {
		return err
	}
	for _, doubt := range o.doubts {
		a.warn("%s", doubt)
	}
	log, err := openAudit(o.auditLog) // before anything is done that it must have
	if err != nil {
		return err
	}
	defer log.close()
	// Whoever is asked takes the time that it takes: each call has its own.
	return a.askAs(redlatch.Config{Owner: redlatch.Owner{Name: o.owner}}, time.Hour, func(ctx context.Context, locks *redlatch.Locker, store string) error {
		e, q, err := a.toBreak(ctx, locks, name, o)
		if err != nil || e == nil {
			return err
		}
		if asks || o.dryRun && !a.json && !a.quiet {
			a.showBreak(name, *e, q, o)
		}
		if asks && !o.dryRun {
			if err := a.confirm(name, o); err != nil {
				return err
			}
		}
		record := auditOf(name, store, *e, q, locks.Owner(), o)
		if o.dryRun {
			record.Outcome = "dry_run"
			a.sayBroken(record, o)
			return nil
		}
		broken, err := locks.Break(ctx, name, o.how(*e, locks.Owner().Name))
		if err != nil {
			return notBroken(name, err)
		}
		record.MayWorkMS = broken.Left.Milliseconds()
		logged := log.write(record)
		a.sayBroken(record, o)
		if logged != nil {
			return &failure{code: codeInternal, kind: "internal", msg: "the lock is broken, but the audit log could not be written: " + logged.Error()}
		}
		return nil
	})
}

func (o *breakOptions) how(e lease.Entry, by string) redlatch.BreakOptions {
	how := redlatch.BreakOptions{Fence: e.Ticket, By: by, Reason: o.reason}
	switch {
	case o.take:
		how.Take = o.takeFor
	case o.now, reserved(e.Owner):
		how.Now = true // no process works under a person's reservation
	}
	return how
}

// toBreak finds the hold that is meant; nil if there is nothing to do.
func (a *app) toBreak(ctx context.Context, locks *redlatch.Locker, name string, o *breakOptions) (*lease.Entry, *lease.Queue, error) {
	q, err := locks.Inspect(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	holders := q.Holders()
	switch {
	case len(holders) == 0 && q.Seal().Closed():
		return nil, nil, &failure{
			code: codeHeld, kind: "held", msg: fmt.Sprintf("nobody holds %s, but it is %s", lease.Printable(name), sealedText(q.Seal())),
			next: "nothing was done",
		}
	case len(holders) == 0:
		a.info("%s is already free", lease.Printable(name))
		if a.json {
			a.document(a.out, auditJSON{Schema: auditSchema, Outcome: "already_free", Name: name, Store: "", By: byJSON{locks.Owner().Name, locks.Owner().Host}})
		}
		return nil, nil, nil
	case holders[0].ID == "":
		return nil, nil, &failure{
			code: codeUsage, kind: "conflict", msg: fmt.Sprintf("%s is held by %s, which cannot be told to stop", lease.Printable(name), whoText(holders[0].Owner, holders[0].Foreign)),
			next: "stop it and delete its key by hand: redlatch keys " + quoted(name),
		}
	case o.fence == 0 && len(holders) > 1:
		var fences []string
		for _, e := range holders {
			fences = append(fences, fmt.Sprintf("--fence %d (%s)", e.Ticket, lease.Printable(e.Owner.Name)))
		}
		f := usage("%d hold %s: say which is meant", len(holders), lease.Printable(name))
		f.next = strings.Join(fences, ", ")
		return nil, nil, f
	case o.fence == 0:
		return &holders[0], &q, nil
	}
	for _, e := range holders {
		if e.Ticket == o.fence {
			return &e, &q, nil
		}
	}
	return nil, nil, &failure{
		code: codeHeld, kind: "held", msg: fmt.Sprintf("no hold of %s has fence %d; now held by %s", lease.Printable(name), o.fence, heldBy(holders, q.Now)),
		next: "nothing was done",
	}
}

// showBreak says what it is that is about to be broken, and what follows from it.
func (a *app) showBreak(name string, e lease.Entry, q *lease.Queue, o *breakOptions) {
	alive := ""
	if at := renewed(e, q.Now); !at.IsZero() && !expiring(e, q.Now) && !reserved(e.Owner) {
		alive = " - THE HOLDER LOOKS ALIVE"
	}
	a.warn("%s is held by %s%s", lease.Printable(name), heldBy([]lease.Entry{e}, q.Now), alive)
	left := "before its lease ends, which has no end"
	if !e.Expires.IsZero() {
		left = "within " + duration.Format(e.Expires.Sub(q.Now))
	}
	if !reserved(e.Owner) {
		a.warn("breaking does not stop that process: if it uses redlatch it stops by itself %s; what the lock protects must refuse its writes with fence %d", left, e.Ticket)
	}
	waiters := q.Waiters()
	switch {
	case o.take:
		a.warn("nobody gets it for %s, also none of the %s", duration.Format(o.takeFor), count(len(waiters), "waiter"))
	case len(waiters) == 0:
	case o.now:
		a.warn("%s; %s gets it at once, beside a holder who may still be at work", count(len(waiters), "waiter"), lease.Printable(waiters[0].Owner.Name))
	default:
		a.warn("%s; %s gets it when the holder has stopped. --take keeps it for you instead", count(len(waiters), "waiter"), lease.Printable(waiters[0].Owner.Name))
	}
}

// confirm has the name typed: a habit of pressing y breaks the wrong lock some day.
func (a *app) confirm(name string, o *breakOptions) error {
	in := bufio.NewReader(os.Stdin)
	if !o.yes {
		fmt.Fprintf(a.err, "Type the lock name to break it: ")
		if line, _ := in.ReadString('\n'); strings.TrimRight(line, "\r\n") != name {
			f := usage("that is not the name; nothing was done")
			f.kind = "not_confirmed"
			return f
		}
	}
	if o.reason == "" {
		fmt.Fprintf(a.err, "Reason (for the holder and the audit log): ")
		line, _ := in.ReadString('\n')
		o.reason = strings.TrimSpace(line)
		if o.reason == "" || len(o.reason) > maxReason {
			f := usage("a reason of 1 to %d bytes is needed; nothing was done", maxReason)
			f.kind = "not_confirmed"
			return f
		}
	}
	return nil
}

// notBroken says that the hold which was meant is not there any more.
func notBroken(name string, err error) error {
	var held *redlatch.HeldError
	switch {
	case errors.As(err, &held):
		return &failure{
			code: codeHeld, kind: "held", msg: fmt.Sprintf("%s is now held by %s", lease.Printable(name), whoText(held.Holder.Owner, held.Holder.Foreign)),
			next: "nothing was done",
		}
	case errors.Is(err, redlatch.ErrNotHeld):
		return &failure{code: codeHeld, kind: "held", msg: "that hold of " + lease.Printable(name) + " has ended by itself", next: "nothing was done"}
	}
	return err
}

func (a *app) sayBroken(r auditJSON, o *breakOptions) {
	if a.json {
		a.document(a.out, r)
		return
	}
	left := time.Duration(r.MayWorkMS) * time.Millisecond
	name := lease.Printable(r.Name)
	if r.Outcome == "dry_run" {
		a.info("%s, fence %d would be broken; nothing was done (--dry-run)", name, r.Fence)
		return
	}
	a.info("broken: %s, fence %d, audit %s", name, r.Fence, r.ID)
	if r.Mode == modeNow {
		a.warn("possible overlap: the holder may be at work for %s more, beside whoever gets %s now", duration.Format(left), name)
		return
	}
	if r.Mode == modeTake {
		a.info("%s is closed to everybody for %s; redlatch hold --end %s ends that", name, duration.Format(o.takeFor), quoted(r.Name))
	}
	if left > 0 {
		a.info("its holder has up to %s to stop", duration.Format(left))
	}
}
