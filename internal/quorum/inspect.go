package quorum

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/redlatch/redlatch/internal/vote"
	"github.com/redlatch/redlatch/lease"
)

// Inspect implements [driver.Store]. Who has the name at a majority of the servers holds
// it, until so many of its leases are over that this is no majority any more. Who has it at
// fewer is about to get it, to give it back, or has lost it, and is not shown; see Views.
func (s *Store) Inspect(ctx context.Context, name string) (lease.Queue, error) {
	views, errs := s.views(ctx, name)
	var heard []lease.Queue
	for i, v := range views {
		if errs[i] == nil {
			heard = append(heard, v.Queue)
		}
	}
	if len(heard) < vote.Majority(len(s.members)) {
		return lease.Queue{}, s.noQuorum(errs)
	}
	return merge(heard, vote.Majority(len(s.members))), nil
}

// View is one server's picture of a name.
type View struct {
	Node  string
	Queue lease.Queue
	Err   error
}

// Views returns what each server knows of the name, for people: where they differ, some have
// missed something.
func (s *Store) Views(ctx context.Context, name string) []View {
	views, _ := s.views(ctx, name)
	return views
}

func (s *Store) views(ctx context.Context, name string) ([]View, []error) {
	views := make([]View, len(s.members))
	errs := s.each(ctx, func(ctx context.Context, i int, m *member) error {
		return m.call(ctx, func(ctx context.Context) (err error) {
			views[i].Queue, err = m.Store.Inspect(ctx, name)
			return err
		})
	})
	for i, m := range s.members {
		views[i].Node, views[i].Err = m.Name, errs[i]
	}
	return views, errs
}

// sight is a holder as one server sees it, by the clock in the middle of them all.
type sight struct {
	lease.Entry
	last uint64 // the name's last ticket there
}

// merge makes one picture of several.
func merge(queues []lease.Queue, majority int) lease.Queue {
	var clocks []time.Time
	var lasts []uint64
	for _, q := range queues {
		clocks, lasts = append(clocks, q.Now), append(lasts, q.Last)
	}
	slices.SortFunc(clocks, time.Time.Compare)
	all := lease.Queue{Now: clocks[len(clocks)/2], Last: atMajority(lasts, majority)}
	sights := make(map[string][]sight)
	var seals []lease.Seal
	for _, q := range queues {
		if s := q.Seal(); s.Closed() {
			seals = append(seals, s)
		}
		for _, e := range q.Holders() {
			skew := all.Now.Sub(q.Now)
			e.Joined, e.Granted = e.Joined.Add(skew), e.Granted.Add(skew)
			if !e.Expires.IsZero() {
				e.Expires = e.Expires.Add(skew)
			}
			key := e.ID + "\n" + e.Foreign
			sights[key] = append(sights[key], sight{e, q.Last})
		}
	}
	for _, seen := range sights {
		if len(seen) >= majority {
			all.Claims = append(all.Claims, holder(seen, majority))
		}
	}
	// A minority that is closed keeps nobody out.
	if len(queues)-len(seals) < majority {
		all.SetSeal(prevailing(seals))
	}
	return all
}

// prevailing is the seal that most of them are, for as long as the last of those lasts.
func prevailing(seals []lease.Seal) lease.Seal {
	times := make(map[lease.Seal]int)
	ends := make(map[lease.Seal]time.Duration)
	var most lease.Seal
	for _, s := range seals {
		end := s.For
		s.For = 0
		ends[s] = max(ends[s], end)
		if times[s]++; times[s] > times[most] {
			most = s
		}
	}
	most.For = ends[most]
	return most
}

// holder is the holder that a majority sees.
func holder(seen []sight, majority int) lease.Entry {
	slices.SortFunc(seen, func(a, b sight) int { // the last one to end first
		switch {
		case a.Expires.IsZero() && b.Expires.IsZero():
			return 0
		case a.Expires.IsZero():
			return -1
		case b.Expires.IsZero():
			return 1
		}
		return b.Expires.Compare(a.Expires)
	})
	e := seen[majority-1].Entry
	if e.ID == "" {
		return e
	}
	tickets, lasts := make([]uint64, 0, len(seen)), make([]uint64, 0, len(seen))
	for _, s := range seen {
		tickets, lasts = append(tickets, s.Ticket), append(lasts, s.last)
	}
	// The fence is the ticket that a majority gave; else what a majority was raised to.
	ticket, n := commonest(tickets)
	if n < majority {
		ticket = atMajority(lasts, majority)
	}
	e.Ticket = ticket
	return e
}

// commonest returns the most frequent of the numbers, and how often it is there.
func commonest(numbers []uint64) (number uint64, n int) {
	times := make(map[uint64]int)
	for _, v := range numbers {
		if times[v]++; times[v] > n || times[v] == n && v > number {
			number, n = v, times[v]
		}
	}
	return number, n
}

// atMajority is the highest number that a majority has reached.
func atMajority(numbers []uint64, majority int) uint64 {
	slices.Sort(numbers)
	return numbers[len(numbers)-majority]
}

// Names implements [driver.Store]: what any server lists. It ends with an error if one did
// not answer, for there may be more.
func (s *Store) Names(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		names := make([][]string, len(s.members))
		errs := s.each(ctx, func(ctx context.Context, i int, m *member) error {
			return m.call(ctx, func(ctx context.Context) error {
				for name, err := range m.Store.Names(ctx, prefix) {
					if err != nil {
						return err
					}
					names[i] = append(names[i], name)
				}
				return nil
			})
		})
		all := slices.Concat(names...)
		slices.Sort(all)
		for _, name := range slices.Compact(all) {
			if !yield(name, nil) {
				return
			}
		}
		if slices.ContainsFunc(errs, func(err error) bool { return err != nil }) {
			yield("", s.noQuorum(errs))
		}
	}
}
