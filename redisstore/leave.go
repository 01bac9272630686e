package redisstore

import (
	"context"
	"strconv"
	"time"

	"github.com/redlatch/redlatch/internal/elapsed"
	"github.com/redlatch/redlatch/internal/lines"
	"github.com/redlatch/redlatch/lease"
)

// Leave implements [driver.Store].
//
// It leaves a stone where the claim was not found: its join may be on its way still,
// and must find that it comes too late. It also does so for a claim that was found, if
// this Store did not see all its joins answered at once. go-redis sends a call again
// when the network fails; the first copy can be stuck in a proxy or a socket, and would
// take the lock for nobody after its claim has long left.
func (s *Store) Leave(ctx context.Context, name, id string, ticket uint64, seal lease.Seal) (lease.Standing, error) {
	st, waited, err := s.leaveAs(ctx, name, id, ticket, seal)
	if err == nil {
		s.leftHere(name, waited, &st)
		s.noteSeal(ctx, name, st, leaving{id: id, seal: seal})
	}
	return st, err
}

// leaveAs takes the claim out, or only the hold with that ticket. The claim may have come
// back with another one: what this Store knows of it goes only with the right one.
func (s *Store) leaveAs(ctx context.Context, name, id string, ticket uint64, seal lease.Seal) (st lease.Standing, waited bool, err error) {
	if ticket == 0 {
		remember, waited := s.forget(name, id)
		st, err = s.leave(ctx, name, id, "", remember, seal)
		return st, waited, err
	}
	st, err = s.leave(ctx, name, id, strconv.FormatUint(ticket, 10), "no", seal)
	s.mu.Lock()
	s.book.ForgetHold(name, id, ticket, st.State == lease.Held, elapsed.Now())
	s.mu.Unlock()
	return st, false, err
}

// noteSeal lets a name be listed that a leave has closed, and that nobody may have in his
// record any more. It is for people: if it fails, the name is closed all the same.
func (s *Store) noteSeal(ctx context.Context, name string, st lease.Standing, l leaving) {
	if st.State != lease.Held || !l.seal.Closed() {
		return
	}
	life := l.closes(st.Lease)
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, _ = bound(ctx, func() (struct{}, error) {
		return struct{}{}, s.moves.noteSeal(ctx, s.keys.seals(), name, life)
	})
}

// forget strikes the claim out, and says whether it stood in its line and what its leave is
// to write.
func (s *Store) forget(name, id string) (remember string, waited bool) {
	s.mu.Lock()
	defer s.mu.Unlock()

	k, waited := s.book.Forget(name, id, elapsed.Now())
	return lines.Remember(k), waited
}

// giveBack leaves a lock that was handed to a claim which nobody waits for.
func (s *Store) giveBack(ctx context.Context, name, id, ticket string) {
	// If this fails the grant runs out by itself.
	_, _ = s.leave(ctx, name, id, ticket, "no", lease.Seal{})
}

func (s *Store) leave(ctx context.Context, name, id, ticket, remember string, seal lease.Seal) (lease.Standing, error) {
	keys := s.keys.keys(name, id)
	l := leaving{id: id, only: ticket, remember: remember, seal: seal, foreign: s.opts.Foreign, news: s.keys.news()}
	moves := s.moves.over(s.lifeline.releases())
	var answer lease.Standing
	for call := 0; ; call++ {
		asked := elapsed.Now()
		r, err := bound(ctx, func() (reply, error) { return moves.leave(ctx, keys, l) })
		if err != nil && call > 0 {
			return answer, nil // it has left; only the dead behind it are still there
		}
		if err != nil {
			return lease.Standing{}, fault(s.explain(name, err))
		}
		if call == 0 {
			if answer, err = r.standing(id, asked); err != nil {
				return lease.Standing{}, fault(err)
			}
			answer.Once = elapsed.Now().Sub(asked) < s.once
		}
		if !r.push {
			s.mu.Lock()
			s.book.LookIn(name, s.book.PollTime(), elapsed.Now())
			s.mu.Unlock()
		}
		if !r.more {
			return answer, nil
		}
	}
}
