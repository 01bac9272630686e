package redisstore

import (
	"context"
	"slices"

	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/internal/elapsed"
	"github.com/redlatch/redlatch/lease"
)

// renewBatch is how many claims go in one pipeline: a call of some milliseconds, behind
// which other commands of the same connection do not wait for long.
const renewBatch = 500

// Renew implements [driver.Store].
func (s *Store) Renew(ctx context.Context, refs []driver.Ref) []driver.Outcome {
	outcomes := make([]driver.Outcome, 0, len(refs))
	for len(refs) > 0 {
		n := min(len(refs), renewBatch)
		outcomes = append(outcomes, s.renewSome(ctx, refs[:n])...)
		refs = refs[n:]
	}
	return outcomes
}

func (s *Store) renewSome(ctx context.Context, refs []driver.Ref) []driver.Outcome {
	all := make([]renewal, len(refs))
	for i, ref := range refs {
		all[i] = renewal{keys: s.keys.keys(ref.Name, ref.Token.ID), token: ref.Token, ttl: ref.TTL, fence: min(ref.Fence, lease.MaxTicket)}
	}
	type answers struct {
		replies []reply
		errs    []error
	}
	over := s.lifeline.renewals()
	asked := elapsed.Now()
	got, err := bound(ctx, func() (answers, error) {
		replies, errs := s.moves.over(over).renew(ctx, all)
		return answers{replies, errs}, nil
	})
	if err != nil || !slices.Contains(got.errs, nil) {
		s.lifeline.failed(over)
	}
	outcomes := make([]driver.Outcome, len(refs))
	for i, ref := range refs {
		switch {
		case err != nil:
			outcomes[i].Err = fault(err)
		case got.errs[i] != nil:
			outcomes[i].Err = fault(s.explain(ref.Name, got.errs[i]))
		default:
			outcomes[i] = s.renewed(ref, got.replies[i], asked)
		}
	}
	return outcomes
}

func (s *Store) renewed(ref driver.Ref, r reply, asked lease.Instant) driver.Outcome {
	st, err := r.standing(ref.Token.ID, asked)
	if err != nil {
		return driver.Outcome{Err: fault(err)}
	}
	s.mu.Lock()
	defer s.mu.Unlock()

	s.book.Renewed(ref.Name, ref.Token, st, asked, elapsed.Now())
	return driver.Outcome{Standing: st}
}
