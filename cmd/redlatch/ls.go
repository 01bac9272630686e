package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/cmd/redlatch/internal/duration"
	"github.com/redlatch/redlatch/lease"
)

func (a *app) lsCommand() *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:   "ls [PREFIX]",
		Short: "list what is locked",
		Example: `redlatch ls
redlatch ls nightly/
redlatch ls --json | jq -r '.locks[].name'`,
		Long: `Shows the locks whose names begin with PREFIX. One that was taken within the last
second may be missing; redlatch who NAME does not miss it.`,
		Annotations: map[string]string{exitCodes: queryCodes},
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usage("one prefix is expected, there are %d", len(args))
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if limit < 1 {
				return usage("--limit %d is not positive", limit)
			}
			prefix := strings.Join(args, "")
			return a.ask(queryTimeout, func(ctx context.Context, locks *redlatch.Locker, store string) error {
				return a.ls(ctx, locks, store, prefix, limit)
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 500, "show `N` locks at most")
	group(cmd.Flags(), "Output", "limit")
	return cmd
}

// listed is one lock of the list.
type listed struct {
	name  string
	queue lease.Queue
}

func (a *app) ls(ctx context.Context, locks *redlatch.Locker, store, prefix string, limit int) error {
	began := time.Now()
	var names []string
	for name, err := range locks.Names(ctx, prefix) {
		if err != nil {
			return err
		}
		names = append(names, name)
	}
	slices.Sort(names)
	var list []listed
	more := false
	for _, name := range slices.Compact(names) {
		q, err := locks.Inspect(ctx, name)
		if err != nil {
			return err
		}
		if stateOf(&q) == stateFree && len(q.Claims) == 0 {
			continue // gone since the name was listed
		}
		if len(list) == limit {
			more = true
			break
		}
		list = append(list, listed{name, q})
	}
	if a.json {
		doc := listJSON{Schema: "redlatch.locks/v1", Locks: []lockJSON{}, More: more, Store: store, ObservedAt: stamp{time.Now()}}
		for _, l := range list {
			doc.Locks = append(doc.Locks, lockOf(l.name, store, &l.queue))
		}
		a.document(a.out, doc)
		return nil
	}
	if len(list) == 0 {
		under := ""
		if prefix != "" {
			under = " under " + lease.Printable(prefix)
		}
		a.info("no locks are held%s on %s", under, store)
		return nil
	}
	waiters := a.table(list)
	a.info("%s, %s   %s   read in %s", count(len(list), "lock"), count(waiters, "waiter"), store, duration.Format(time.Since(began)))
	if more {
		a.info("there are more; --limit shows them")
	}
	return nil
}

type listJSON struct {
	Schema     string     `json:"schema"`
	Locks      []lockJSON `json:"locks"`
	More       bool       `json:"more"` // --limit left some out
	Partial    bool       `json:"partial"`
	Store      string     `json:"store"`
	ObservedAt stamp      `json:"observed_at"`
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

// table prints the list and returns how many wait.
func (a *app) table(list []listed) int {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tSTATE\tHOLDER\tPID\tAGE\tTTL LEFT\tFENCE\tWAIT\tNOTE")
	waiters := 0
	for _, l := range list {
		n := len(l.queue.Waiters())
		waiters += n
		fmt.Fprintln(w, strings.Join(append(row(l), strconv.Itoa(n), note(&l.queue)), "\t"))
	}
	_ = w.Flush() // into a string
	for line := range strings.Lines(b.String()) {
		fmt.Fprintln(a.out, strings.TrimRight(line, " \n"))
	}
	return waiters
}

// row is the first seven columns.
func row(l listed) []string {
	holders, now := l.queue.Holders(), l.queue.Now
	cells := []string{lease.Printable(l.name), stateOf(&l.queue), "-", "-", "-", "-", "-"}
	if s := l.queue.Seal(); len(holders) == 0 && s.Closed() {
		cells[5] = duration.Format(s.For)
	}
	if len(holders) == 0 {
		return cells
	}
	e := holders[0]
	if e.Mode == lease.Permit {
		cells[1] = fmt.Sprintf("%d/%d", used(holders), e.Slots)
	}
	if !e.Expires.IsZero() {
		cells[5] = duration.Format(e.Expires.Sub(now))
		if expiring(e, now) {
			cells[5] += " !"
		}
	}
	switch {
	case e.Foreign != "":
		cells[2] = "(not redlatch)"
		return cells
	case len(holders) > 1:
		cells[2] = count(len(holders), "holder")
	default:
		cells[2], cells[6] = lease.Printable(e.Owner.Name), strconv.FormatUint(e.Ticket, 10)
		if e.Owner.PID != 0 {
			cells[3] = strconv.Itoa(e.Owner.PID)
		}
	}
	cells[4] = duration.Format(now.Sub(e.Granted))
	return cells
}

func note(q *lease.Queue) string {
	holders := q.Holders()
	switch {
	case len(holders) == 0 && q.Seal().Closed():
		return sealedText(q.Seal())
	case len(holders) == 0:
		return ""
	case stateOf(q) == stateExpiring:
		return "no renewal for " + duration.Format(q.Now.Sub(renewed(holders[0], q.Now)))
	}
	return lease.Printable(holders[0].Owner.Note)
}
