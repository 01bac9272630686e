package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/cmd/redlatch/internal/duration"
	"github.com/redlatch/redlatch/lease"
)

func (a *app) whoCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "who NAME",
		Aliases: []string{"show"},
		Short:   "who holds a lock, since when, and who waits for it",
		Example: `redlatch who nightly/report
redlatch who --json nightly/report`,
		Long: `Holders that do not use redlatch are shown as far as they can be known. All names
and notes were written by others; what could play tricks on a terminal is escaped.`,
		Annotations:       map[string]string{exitCodes: queryCodes},
		Args:              oneName,
		ValidArgsFunction: a.completeNames,
		RunE: func(_ *cobra.Command, args []string) error {
			return a.ask(queryTimeout, func(ctx context.Context, locks *redlatch.Locker, store string) error {
				q, err := locks.Inspect(ctx, args[0])
				if err != nil {
					return err
				}
				if a.json {
					a.document(a.out, lockOf(args[0], store, &q))
					return nil
				}
				fmt.Fprint(a.out, whoPage(args[0], &q))
				return nil
			})
		},
	}
}

// whoPage is a lock for people.
func whoPage(name string, q *lease.Queue) string {
	var b strings.Builder
	line := func(title, format string, args ...any) {
		fmt.Fprintf(&b, "  %-8s %s\n", title, fmt.Sprintf(format, args...))
	}
	holders, waiters := q.Holders(), q.Waiters()
	name = lease.Printable(name)
	switch state := stateOf(q); state {
	case stateFree:
		fmt.Fprintf(&b, "%s is free\n", name)
	case stateSealed:
		fmt.Fprintf(&b, "%s is %s\n", name, sealedText(q.Seal()))
	default:
		fmt.Fprintf(&b, "%s is %s\n", name, strings.ToUpper(state))
	}
	for _, e := range holders {
		if e.Foreign != "" {
			line("holder", "%s", whoText(e.Owner, e.Foreign))
			line("lease", "%s", leaseText(e, q.Now))
			continue
		}
		line("holder", "%s", holderLine(e.Owner))
		line("since", "%s  (%s ago)     lease %s", e.Granted.UTC().Format("2006-01-02 15:04:05 UTC"), duration.Format(q.Now.Sub(e.Granted)), leaseText(e, q.Now))
		fence := fmt.Sprint(e.Ticket)
		if len(e.Owner.Labels) > 0 {
			fence += "        labels " + labelsText(e.Owner.Labels)
		}
		line("fence", "%s", fence)
		if e.Owner.Note != "" {
			line("note", "%s", lease.Printable(e.Owner.Note))
		}
	}
	if len(waiters) > 0 {
		var texts []string
		for _, e := range waiters {
			texts = append(texts, fmt.Sprintf("%s (%s)", lease.Printable(e.Owner.Name), duration.Format(q.Now.Sub(e.Joined))))
		}
		line("waiting", "%s", strings.Join(texts, ", "))
	}
	return b.String()
}

func holderLine(o lease.Owner) string {
	parts := []string{lease.Printable(o.Name)}
	if o.Host != "" && !strings.HasSuffix(o.Name, "@"+o.Host) {
		parts = append(parts, "on "+lease.Printable(o.Host))
	}
	if o.PID != 0 {
		parts = append(parts, fmt.Sprintf("pid %d", o.PID))
	}
	if o.Command != "" {
		parts = append(parts, lease.Printable(o.Command))
	}
	return strings.Join(parts, "  ")
}

// leaseText is how long a lease is and how much of it is left.
func leaseText(e lease.Entry, now time.Time) string {
	if e.Expires.IsZero() {
		return "without an end"
	}
	var parts []string
	if knowsTTL(e, now) {
		parts = append(parts, duration.Format(e.TTL))
	}
	parts = append(parts, duration.Format(e.Expires.Sub(now))+" left")
	if at := renewed(e, now); !at.IsZero() {
		parts = append(parts, "renewed "+duration.Format(now.Sub(at))+" ago")
	}
	return strings.Join(parts, ", ")
}

func labelsText(labels map[string]string) string {
	var texts []string
	for k, v := range labels {
		texts = append(texts, lease.Printable(k+"="+v))
	}
	slices.Sort(texts)
	return strings.Join(texts, " ")
}
