package drivertest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/lease"
)

// process is one client process in a play: a Store, and calls that must not fail.
type process struct {
	driver.Store
	w *world
}

func (w *world) process() *process {
	w.Helper()
	p := &process{Store: w.open(), w: w}
	w.Cleanup(func() {
		if err := p.Close(); err != nil {
			w.Errorf("close: %v", err)
		}
	})
	return p
}

// call is the time that one call may take.
func (p *process) call() (context.Context, context.CancelFunc) {
	return context.WithTimeout(p.w.Context(), patience)
}

func (p *process) join(name string, c lease.Claim) lease.Standing {
	p.w.Helper()
	ctx, cancel := p.call()
	defer cancel()
	st, err := p.Join(ctx, name, c)
	if err != nil {
		p.w.Fatalf("join %q: %v", name, err)
	}
	return st
}

func (p *process) joins(name string, c lease.Claim, want lease.State) lease.Standing {
	p.w.Helper()
	st := p.join(name, c)
	if st.State != want {
		p.w.Fatalf("join %q: %v, want it %v; %s", name, st.State, want, p.picture(name))
	}
	return st
}

// holds joins and must be granted.
func (p *process) holds(name string, c lease.Claim) lease.Standing {
	p.w.Helper()
	return p.joins(name, c, lease.Held)
}

// queues joins and must wait.
func (p *process) queues(name string, c lease.Claim) lease.Standing {
	p.w.Helper()
	return p.joins(name, c, lease.Waiting)
}

func (p *process) seals(name string, c lease.Claim, s lease.Seal) lease.Standing {
	p.w.Helper()
	ctx, cancel := p.call()
	defer cancel()
	st, err := p.Leave(ctx, name, c.ID, 0, s)
	if err != nil {
		p.w.Fatalf("leave %q: %v", name, err)
	}
	return st
}

func (p *process) leaves(name string, c lease.Claim, want lease.State) lease.Standing {
	p.w.Helper()
	st := p.seals(name, c, lease.Seal{})
	if st.State != want {
		p.w.Fatalf("leave %q: it was %v, want %v; %s", name, st.State, want, p.picture(name))
	}
	return st
}

// renew asks for ttl and returns the answer.
func (p *process) renew(name string, c lease.Claim, ticket uint64, ttl time.Duration) lease.Standing {
	p.w.Helper()
	return p.raise(name, c, ticket, ttl, 0)
}

func (p *process) raise(name string, c lease.Claim, ticket uint64, ttl time.Duration, fence uint64) lease.Standing {
	p.w.Helper()
	out := p.renewAll(ref(name, c, ticket, ttl, fence))
	if out[0].Err != nil {
		p.w.Fatalf("renew %q: %v", name, out[0].Err)
	}
	return out[0].Standing
}

func ref(name string, c lease.Claim, ticket uint64, ttl time.Duration, fence uint64) driver.Ref {
	return driver.Ref{Name: name, Token: lease.Token{ID: c.ID, Ticket: ticket, Owner: c.Owner}, TTL: ttl, Fence: fence}
}

func (p *process) renewAll(refs ...driver.Ref) []driver.Outcome {
	p.w.Helper()
	ctx, cancel := p.call()
	defer cancel()
	out := p.Renew(ctx, refs)
	if len(out) != len(refs) {
		p.w.Fatalf("%d answers to a renewal of %d", len(out), len(refs))
	}
	return out
}

// awaits waits until the claim stands as wanted; what it stood at before is st.
func (p *process) awaits(name string, c lease.Claim, st lease.Standing, want func(lease.Standing) bool, what string) lease.Standing {
	p.w.Helper()
	limit := patience
	if !p.w.features.FIFO {
		limit *= 4 // chance says who is next, and may forget one for a while
	}
	ctx, cancel := context.WithTimeout(p.w.Context(), limit)
	defer cancel()
	for {
		next, err := p.Wait(ctx, name, c.ID, st.Rev)
		if err != nil {
			p.w.Fatalf("wait %q for %s: %v; it was %v; %s", name, what, err, st.State, p.picture(name))
		}
		st = next
		if want(st) {
			return st
		}
		// A claim that is gone cannot come back, and a store may answer that at once each time.
		if st.State != lease.Waiting {
			p.w.Fatalf("wait %q for %s: it is %v; %s", name, what, st.State, p.picture(name))
		}
	}
}

// granted waits for the lock and makes the grant as long as the TTL, as a holder does.
func (p *process) granted(name string, c lease.Claim, st lease.Standing) lease.Standing {
	p.w.Helper()
	got := p.awaits(name, c, st, func(st lease.Standing) bool { return st.State == lease.Held }, "the lock")
	p.w.sameTicket(st, got)
	if got.Lease <= 0 || got.Lease > c.TTL {
		p.w.Errorf("a grant for %v of a TTL of %v", got.Lease, c.TTL)
	}
	if sure := p.renew(name, c, got.Ticket, c.TTL); sure.State != lease.Held {
		p.w.Fatalf("the grant of %q is %v when it is renewed; %s", name, sure.State, p.picture(name))
	}
	return got
}

// sameTicket: the place in line is the fence. Where there is no line, a claim has no ticket
// while it waits, and is granted with one.
func (w *world) sameTicket(queued, granted lease.Standing) {
	w.Helper()
	if w.features.FIFO {
		if granted.Ticket != queued.Ticket {
			w.Errorf("granted with ticket %d, queued with %d", granted.Ticket, queued.Ticket)
		}
		return
	}
	if queued.State == lease.Waiting && queued.Ticket != 0 || granted.Ticket == 0 {
		w.Errorf("granted with ticket %d, it waited with %d in no queue", granted.Ticket, queued.Ticket)
	}
}

func (p *process) inspect(name string) lease.Queue {
	p.w.Helper()
	ctx, cancel := p.call()
	defer cancel()
	q, err := p.Inspect(ctx, name)
	if err != nil {
		p.w.Fatalf("inspect %q: %v", name, err)
	}
	return q
}

// finds checks who holds and, where there is a queue, who waits in it.
func (p *process) finds(name string, holders, waiters []lease.Claim) {
	p.w.Helper()
	if !p.w.features.FIFO {
		waiters = nil
	}
	q := p.inspect(name)
	if got, want := sketch(q.Holders(), q.Waiters()), sketchClaims(holders, waiters); got != want {
		p.w.Fatalf("%q has %s, want %s", name, got, want)
	}
}

func claims(cs ...lease.Claim) []lease.Claim { return cs }

func sketchClaims(holders, waiters []lease.Claim) string {
	entries := func(cs []lease.Claim) (es []lease.Entry) {
		for _, c := range cs {
			es = append(es, lease.Entry{Claim: c})
		}
		return es
	}
	return sketch(entries(holders), entries(waiters))
}

func sketch(holders, waiters []lease.Entry) string {
	ids := func(es []lease.Entry) []string {
		out := []string{}
		for _, e := range es {
			out = append(out, e.ID[:min(len(e.ID), 6)])
		}
		return out
	}
	return fmt.Sprintf("holders %v, waiters %v", ids(holders), ids(waiters))
}

// picture is for messages: it must not fail in its turn.
func (p *process) picture(name string) string {
	ctx, cancel := p.call()
	defer cancel()
	q, err := p.Inspect(ctx, name)
	if err != nil {
		return fmt.Sprintf("inspect: %v", err)
	}
	text := sketch(q.Holders(), q.Waiters())
	if s := q.Seal(); s.Closed() {
		text += fmt.Sprintf(", sealed for %v", s.For)
	}
	return text
}

// refused checks that err says the store never does that.
func (w *world) refused(err error, what string) {
	w.Helper()
	var fault *driver.Fault
	if !errors.As(err, &fault) || fault.Kind != driver.Refused {
		w.Errorf("%s: error %v, want a *driver.Fault that says Refused", what, err)
	}
}
