package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/cmd/redlatch/internal/duration"
	"github.com/redlatch/redlatch/lease"
)

// notAcquired turns what the library says about a failed acquire into what a person
// wants to know: who has it, since when, and what can be done.
func (r *running) notAcquired(err error) error {
	if err == nil {
		return nil
	}
	f := explain(err)
	switch f.code {
	case codeHeld:
	case codeUnavailable:
		f.msg = fmt.Sprintf("%s: %s; nothing was run", r.store.name, f.msg)
		f.unanswered(r.store.name)
		return f
	case codeDenied:
		f.msg = fmt.Sprintf("%s: %s; nothing was run", r.store.name, f.msg)
		return f
	default:
		return f
	}
	f.msg = r.name + " is " + r.inTheWay(err)
	who := "redlatch who " + quoted(r.name)
	if r.o.wait == 0 {
		f.next = "not waiting (use -w 10m to wait; " + who + ")"
	} else {
		f.kind = "wait_timeout"
		f.next = "gave up after " + duration.Format(r.o.wait) + " (" + who + ")"
	}
	return f
}

// inTheWay says who or what keeps us from the lock. It asks the store, which knows
// since when; if the store does not tell, or it is over by now, what the refusal
// said must do.
func (r *running) inTheWay(refusal error) string {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	q, err := r.locks.Inspect(ctx, r.name)
	if err == nil {
		if holders := q.Holders(); len(holders) > 0 {
			r.result.Holder = new(holderOf(holders[0], q.Now))
			return "held by " + heldBy(holders, q.Now)
		}
		if seal := q.Seal(); seal.Closed() {
			return sealedText(seal)
		}
	}
	var sealed *redlatch.SealedError
	if errors.As(refusal, &sealed) {
		return sealedText(sealed.Seal)
	}
	var held *redlatch.HeldError
	if errors.As(refusal, &held) && held.Holder != nil {
		r.result.Holder = new(holderOf(lease.Entry{
			Claim: lease.Claim{Owner: held.Holder.Owner}, Ticket: held.Holder.Ticket, Foreign: held.Holder.Foreign,
		}, time.Time{}))
		text := "held by " + whoText(held.Holder.Owner, held.Holder.Foreign)
		if held.Holder.Ticket > 0 { // a store draws it from its clock when the claim comes
			text += ", which came " + time.UnixMicro(int64(held.Holder.Ticket)).UTC().Format("2006-01-02 15:04:05 UTC")
		}
		if held.Left > 0 {
			text += "; lease expires in " + duration.Format(held.Left) + " unless renewed"
		}
		return text
	}
	if err != nil && refusal == nil {
		return "not known by whom, the store does not answer now"
	}
	return "taken; whoever had it has just left, others are ahead"
}

func sealedText(s lease.Seal) string {
	left := duration.Format(s.For)
	if redlatch.Taken(s) {
		return fmt.Sprintf("closed for %s more by %s (%s), who has broken its last hold", left, lease.Printable(s.By), lease.Printable(s.Reason))
	}
	if s.Victim != "" {
		return fmt.Sprintf("closed for %s more: broken by %s (%s), and its last holder may still run", left, lease.Printable(s.By), lease.Printable(s.Reason))
	}
	return "closed for " + left + " more by its last holder (--hold-at-least)"
}

// heldBy is the first holder, and how many others there are.
func heldBy(holders []lease.Entry, now time.Time) string {
	e := holders[0]
	var b strings.Builder
	b.WriteString(whoText(e.Owner, e.Foreign))
	if len(holders) > 1 {
		fmt.Fprintf(&b, " and %d more", len(holders)-1)
	}
	if e.Foreign == "" {
		b.WriteString(" for " + duration.Format(now.Sub(e.Granted)))
	}
	switch {
	case e.Expires.IsZero():
		b.WriteString("; its lease has no end")
		return b.String()
	case renewed(e, now).IsZero():
		b.WriteString("; lease")
	default:
		fmt.Fprintf(&b, "; lease renewed %s ago,", duration.Format(now.Sub(renewed(e, now))))
	}
	fmt.Fprintf(&b, " expires in %s unless renewed", duration.Format(e.Expires.Sub(now)))
	return b.String()
}

// whoText names a holder. All of it was written by somebody else.
func whoText(o lease.Owner, foreign string) string {
	if foreign != "" {
		return "a program that does not use redlatch (value " + lease.Abridged(foreign) + ")"
	}
	if o.Host == "" || strings.HasSuffix(o.Name, "@"+o.Host) {
		return o.String()
	}
	o.Name += " on " + o.Host
	return o.String()
}

// renewed is when the lease was last renewed; zero if that cannot be told. A store that
// does not keep the TTL answers what is left of it in its place.
func renewed(e lease.Entry, now time.Time) time.Time {
	if !knowsTTL(e, now) {
		return time.Time{}
	}
	if at := e.Expires.Add(-e.TTL); at.After(e.Joined) {
		return at
	}
	return e.Joined // a lease that is shorter than the TTL: it was handed over
}

func knowsTTL(e lease.Entry, now time.Time) bool {
	return e.TTL > 0 && !e.Expires.IsZero() && e.Expires.Sub(now) < e.TTL
}
