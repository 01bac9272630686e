package lines_test

import (
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/lines"
	"github.com/redlatch/redlatch/lease"
)

const second = lease.Instant(time.Second)

func newBook() *lines.Book {
	return &lines.Book{Wake: func(*lines.Claim) {}, Began: func(string) {}, Ended: func(string) {}}
}

// queued joins and is told to wait, by a server that knows the subscription 1.
func queued(b *lines.Book, id string, ticket uint64, asked lease.Instant) *lines.Claim {
	k := b.Enroll("n", lease.Claim{ID: id, TTL: 30 * time.Second})
	b.Learn(k, lines.Answer{
		Standing:   lease.Standing{State: lease.Waiting, Ticket: ticket, Asked: asked, Holder: &lease.Holder{ID: "h"}, Left: 30 * time.Second},
		Subscribed: true, Push: true, Subscription: 1,
	}, asked)
	return k
}

func given(ticket uint64, at lease.Instant) lines.Given {
	return lines.Given{Ticket: ticket, Lease: lines.Grant, Subscription: 1, At: at}
}

// A is handed the lock, asks to be sure, and hears nothing. It is given up when the grant is
// over. The server has dropped B by then, for it is of the same process.
func TestAGrantThatWasNotConfirmedMakesTheOthersLook(t *testing.T) {
	b := newBook()
	a, other := queued(b, "a", 1, second), queued(b, "b", 2, second)
	b.Given("n", "a", given(1, 10*second))
	a.Sent(true, 5*time.Second, 8*time.Millisecond)
	b.Forget("n", "a", 12*second)
	if _, due := b.Check(other); due < 15*second || due > 16*second {
		t.Errorf("the other one looks at %v, want soon after the end of the grant at 15 s", time.Duration(due))
	}
}

func TestAGrantThatWasAnsweredIsNoReasonToLook(t *testing.T) {
	b := newBook()
	_, other := queued(b, "a", 1, second), queued(b, "b", 2, second)
	b.Given("n", "a", given(1, 10*second))
	b.Forget("n", "a", 11*second)
	if _, due := b.Check(other); due < 30*second {
		t.Errorf("the other one looks at %v", time.Duration(due))
	}
}

func TestAGrantDatesFromTheJoin(t *testing.T) {
	b := newBook()
	a := queued(b, "a", 1, second)
	b.Given("n", "a", given(1, 10*second))
	if st, _ := b.Check(a); st.State != lease.Held || st.Asked != second || st.Lease != lines.Grant {
		t.Errorf("%+v", st)
	}
}

func TestAGrantForNobodyGoesBack(t *testing.T) {
	if b := newBook(); !b.Given("n", "a", given(1, second)) {
		t.Error("it is kept")
	}
}
