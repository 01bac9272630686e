package memstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/lease"
)

func claim(ttl time.Duration) lease.Claim { return lease.Claim{ID: lease.NewID(), TTL: ttl} }

func join(t *testing.T, s *Store, name string, c lease.Claim) lease.Standing {
	t.Helper()
	st, err := s.Join(t.Context(), name, c)
	if err != nil {
		t.Fatalf("join: %v", err)
	}
	return st
}

func leave(t *testing.T, s *Store, name string, c lease.Claim) {
	t.Helper()
	if _, err := s.Leave(t.Context(), name, c.ID, 0, lease.Seal{}); err != nil {
		t.Fatalf("leave: %v", err)
	}
}

func (s *Store) kept() int {
	s.mu.Lock()
	defer s.mu.Unlock()

	return len(s.lines)
}

func TestALeaseEndsToTheNanosecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Store
		join(t, &s, "x", claim(time.Minute))
		began := time.Now()
		next := claim(time.Hour)
		st := join(t, &s, "x", next)
		st, err := s.Wait(t.Context(), "x", next.ID, st.Rev)
		if err != nil || st.State != lease.Held {
			t.Fatalf("%v, error %v", st.State, err)
		}
		if took := time.Since(began); took != time.Minute {
			t.Errorf("a lease of a minute ended after %v", took)
		}
		if st.Lease != time.Hour {
			t.Errorf("granted for %v of an hour, though it has waited: its lease counts from this answer", st.Lease)
		}
	})
}

// Renewals put the timer off; a shorter lease that comes later puts it forward.
func TestTheTimerFollowsTheNextEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Store
		mine := claim(time.Minute)
		held := join(t, &s, "x", mine)
		began := time.Now()
		next := claim(time.Hour)
		st := join(t, &s, "x", next)
		time.Sleep(30 * time.Second)
		ref := driver.Ref{Name: "x", Token: lease.Token{ID: mine.ID, Ticket: held.Ticket}, TTL: time.Minute}
		s.Renew(t.Context(), []driver.Ref{ref})
		short := claim(time.Second)
		lost := join(t, &s, "x", short)
		if lost, err := s.Wait(t.Context(), "x", short.ID, lost.Rev); err != nil || lost.State != lease.Gone {
			t.Errorf("the short claim is %v, error %v, want it gone", lost.State, err)
		}
		if took := time.Since(began); took != 31*time.Second {
			t.Errorf("the short claim fell out after %v, want 31s", took)
		}
		if st, err := s.Wait(t.Context(), "x", next.ID, st.Rev); err != nil || st.State != lease.Held {
			t.Errorf("%v, error %v", st.State, err)
		}
		if took := time.Since(began); took != 90*time.Second {
			t.Errorf("granted after %v, want 90s", took)
		}
	})
}

func TestNamesAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Store
		for i := range 100 {
			name := fmt.Sprint("left/", i)
			c := claim(time.Minute)
			join(t, &s, name, c)
			leave(t, &s, name, c)
			join(t, &s, fmt.Sprint("lost/", i), claim(time.Minute))
			leave(t, &s, fmt.Sprint("early/", i), claim(time.Minute))
			if _, err := s.Inspect(t.Context(), fmt.Sprint("looked at/", i)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Millisecond)
		if n := s.kept(); n != 200 {
			t.Errorf("%d names are kept, want the 100 that are held and the 100 that a late join may come for", n)
		}
		time.Sleep(time.Minute + time.Millisecond)
		if n := s.kept(); n != 0 {
			t.Errorf("%d names are kept when nothing about them matters any more", n)
		}
	})
}

func TestForgettingANameDrawsNoTicketTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Store
		var last uint64
		for i := range 2000 {
			c := claim(time.Minute)
			c.Room = i % (lease.MaxRoom + 1)
			if i%5 == 0 && last != 0 {
				c.Fence = last + uint64(i%200) - 100 // about what was given last, forgotten or not
			}
			st := join(t, &s, "x", c)
			if low := st.Ticket - uint64(st.Room); low <= last {
				t.Fatalf("tickets %d to %d after %d, in round %d", low, st.Ticket, last, i)
			}
			last = st.Ticket
			leave(t, &s, "x", c)
			time.Sleep(time.Duration(i%97) * time.Microsecond)
		}
		c := claim(time.Minute)
		c.Fence = lease.MaxTicket - 10
		join(t, &s, "x", c)
		leave(t, &s, "x", c)
		time.Sleep(time.Hour)
		if st := join(t, &s, "x", claim(time.Minute)); st.Ticket <= c.Fence {
			t.Errorf("ticket %d after a proposed %d", st.Ticket, c.Fence)
		}
		if st := join(t, &s, "y", claim(time.Minute)); st.Ticket >= c.Fence {
			t.Errorf("ticket %d of another name: a proposal has driven it ahead", st.Ticket)
		}
	})
}

func TestAReleaseWakesOneOfMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Store
		mine := claim(time.Hour)
		join(t, &s, "x", mine)
		var woken sync.Map
		var work sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		for range 100 {
			c := claim(time.Hour)
			st := join(t, &s, "x", c)
			work.Go(func() {
				if st, err := s.Wait(ctx, "x", c.ID, st.Rev); err == nil {
					woken.Store(c.ID, st.State)
				}
			})
		}
		synctest.Wait()
		leave(t, &s, "x", mine)
		synctest.Wait()
		n := 0
		woken.Range(func(_, state any) bool {
			if n++; state != lease.Held {
				t.Errorf("woken as %v", state)
			}
			return true
		})
		if n != 1 {
			t.Errorf("a release has woken %d", n)
		}
		cancel()
		work.Wait()
		time.Sleep(2 * time.Hour)
		if n := s.kept(); n != 0 {
			t.Errorf("%d names are kept after the last wait", n)
		}
	})
}

func TestCallersWhoWaitForOneClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Store
		mine, next := claim(time.Hour), claim(time.Hour)
		join(t, &s, "x", mine)
		st := join(t, &s, "x", next)
		gaveUp, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var work sync.WaitGroup
		for i := range 3 {
			work.Go(func() {
				ctx := t.Context()
				if i == 0 {
					ctx = gaveUp
				}
				st, err := s.Wait(ctx, "x", next.ID, st.Rev)
				if i == 0 && !errors.Is(err, context.DeadlineExceeded) || i > 0 && st.State != lease.Held {
					t.Errorf("caller %d: %v, error %v", i, st.State, err)
				}
			})
		}
		time.Sleep(time.Minute)
		leave(t, &s, "x", mine)
		work.Wait()
	})
}
