package drivertest

import (
	"context"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/lease"
	"github.com/redlatch/redlatch/memstore"
)

// recorder stands in for a *testing.T. It is used by one subject, which runs in a
// goroutine of its own.
type recorder struct {
	ctx context.Context

	mu      sync.Mutex
	faults  []string
	cleanup []func()
}

func (r *recorder) Helper()                  {}
func (r *recorder) Context() context.Context { return r.ctx }

func (r *recorder) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()

	r.cleanup = append(r.cleanup, f)
}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()

	r.faults = append(r.faults, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

// verdict runs the suite, or the subjects of one file, and returns what it finds wrong,
// by subject. They run all at once in a bubble, so that their waiting takes no time.
func verdict(t *testing.T, seed uint64, file string, open func() driver.Store) map[string][]string {
	t.Helper()
	found := make(map[string][]string)
	synctest.Test(t, func(t *testing.T) {
		features := open().Features()
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		var mu sync.Mutex
		var work sync.WaitGroup
		for _, s := range subjects(features) {
			if file != "" && s.file != file {
				continue
			}
			work.Go(func() {
				r := &recorder{ctx: ctx}
				all(func() { s.play(newWorld(r, open, features, seed)) })
				for i := len(r.cleanup) - 1; i >= 0; i-- {
					all(r.cleanup[i])
				}
				mu.Lock()
				defer mu.Unlock()
				if len(r.faults) > 0 {
					found[s.file+": "+s.says] = r.faults
				}
			})
		}
		work.Wait()
	})
	return found
}

// toy is a store over lease.Queue that polls. Each of its rules can be broken.
type toy struct {
	driver.Notices

	mu     sync.Mutex
	names  map[string]*lease.Queue
	breaks breaks
	born   time.Time
	nodeID string
}

// breaks is how a toy is wrong. A nil func is right.
type breaks struct {
	name  func(name string) string
	join  func(q *lease.Queue, c lease.Claim, now time.Time) (lease.Standing, error)
	renew func(q *lease.Queue, r driver.Ref, now time.Time) lease.Standing
	leave func(q *lease.Queue, id string, ticket uint64, s lease.Seal, now time.Time) lease.Standing
	look  func(q *lease.Queue, now time.Time) // before each move
	after func(q *lease.Queue, st *lease.Standing)
	wait  func(ctx context.Context, changed bool) bool // reports whether to answer
	list  func(names []string) []string
	out   func(out []driver.Outcome)
	min   time.Duration
	mute  bool // tells nobody of a break
	node  func(n *lease.Node)
}

func newToy(b breaks) *toy {
	return &toy{names: make(map[string]*lease.Queue), breaks: b, nodeID: lease.NewID()}
}

func (s *toy) queue(name string) (*lease.Queue, time.Time) {
	if s.breaks.name != nil {
		name = s.breaks.name(name)
	}
	q := s.names[name]
	if q == nil {
		q = new(lease.Queue)
		s.names[name] = q
	}
	now := time.Now()
	if s.born.IsZero() {
		s.born = now
	}
	if s.breaks.look != nil {
		s.breaks.look(q, now)
	}
	return q, now
}

func (s *toy) date(q *lease.Queue, st lease.Standing, asked time.Time) lease.Standing {
	if s.breaks.after != nil {
		s.breaks.after(q, &st)
	}
	st.Asked = lease.Instant(asked.UnixNano())
	st.Rev = st.Ticket<<4 | uint64(st.State)<<1 | 1
	if st.Seal.Closed() {
		st.Rev |= 1 << 62
	}
	return st
}

func (s *toy) Join(ctx context.Context, name string, c lease.Claim) (lease.Standing, error) {
	asked := time.Now()
	if ctx.Err() != nil {
		return lease.Standing{}, ctx.Err()
	}
	if c.TTL < 10*time.Millisecond-s.breaks.min {
		return lease.Standing{}, &driver.Fault{Kind: driver.Refused, Err: fmt.Errorf("too short")}
	}
	s.mu.Lock()
	defer s.mu.Unlock()

	q, now := s.queue(name)
	join := (*lease.Queue).Join
	if s.breaks.join != nil {
		join = s.breaks.join
	}
	st, err := join(q, c, now)
	if err != nil {
		return st, err
	}
	if c.Vote {
		st.Node = s.self(now)
	}
	return s.date(q, st, asked), nil
}

func (s *toy) Renew(ctx context.Context, refs []driver.Ref) []driver.Outcome {
	asked := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()

	out := make([]driver.Outcome, len(refs))
	for i, r := range refs {
		if out[i].Err = ctx.Err(); out[i].Err != nil {
			continue
		}
		q, now := s.queue(r.Name)
		var st lease.Standing
		if s.breaks.renew != nil {
			st = s.breaks.renew(q, r, now)
		} else {
			st = q.Renew(r.Token.ID, r.Token.Ticket, r.TTL, r.Fence, now)
		}
		out[i].Standing = s.date(q, st, asked)
	}
	if s.breaks.out != nil {
		s.breaks.out(out)
	}
	return out
}

func (s *toy) Leave(ctx context.Context, name, id string, ticket uint64, seal lease.Seal) (lease.Standing, error) {
	asked := time.Now()
	if ctx.Err() != nil {
		return lease.Standing{}, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()

	q, now := s.queue(name)
	leave := (*lease.Queue).Leave
	if s.breaks.leave != nil {
		leave = s.breaks.leave
	}
	st := leave(q, id, ticket, seal, now)
	if st.State == lease.Held && seal.By != "" && !s.breaks.mute {
		s.Tell(driver.Notice{Name: name, ID: id, Seal: seal})
	}
	return s.date(q, st, asked), nil
}

func (s *toy) Wait(ctx context.Context, name, id string, rev uint64) (lease.Standing, error) {
	answer := func(_ context.Context, changed bool) bool { return changed }
	if s.breaks.wait != nil {
		answer = s.breaks.wait
	}
	for ctx.Err() == nil {
		st := s.standing(name, id)
		if answer(ctx, st.Rev != rev) {
			return st, nil
		}
		pause(ctx, time.Millisecond)
	}
	return lease.Standing{}, ctx.Err()
}

func (s *toy) standing(name, id string) lease.Standing {
	asked := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()

	q, now := s.queue(name)
	return s.date(q, q.Standing(id, now), asked)
}

func (s *toy) Inspect(ctx context.Context, name string) (lease.Queue, error) {
	if ctx.Err() != nil {
		return lease.Queue{}, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()

	q, now := s.queue(name)
	q.Advance(now)
	c := lease.Queue{Now: q.Now, Last: q.Last, Claims: append([]lease.Entry(nil), q.Claims...)}
	c.SetSeal(q.Seal())
	return c, nil
}

func (s *toy) Names(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		s.mu.Lock()
		var names []string
		for name, q := range s.names {
			if q.Advance(time.Now()); (len(q.Claims) > 0 || q.Seal().Closed()) && strings.HasPrefix(name, prefix) {
				names = append(names, name)
			}
		}
		s.mu.Unlock()
		if s.breaks.list != nil {
			names = s.breaks.list(names)
		}
		if ctx.Err() != nil {
			yield("", ctx.Err())
			return
		}
		for _, name := range names {
			if !yield(name, nil) {
				return
			}
		}
	}
}

func (s *toy) Node(context.Context) (lease.Node, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	_, now := s.queue("node")
	return s.self(now), nil
}

func (s *toy) self(now time.Time) lease.Node {
	n := lease.Node{ID: s.nodeID, Uptime: now.Sub(s.born), Clock: now}
	if s.breaks.node != nil {
		s.breaks.node(&n)
	}
	return n
}

// Features says Push also for the toy's waiters: it polls as fast as others push.
func (s *toy) Features() driver.Features { return memstore.New().Features() }

func (s *toy) Close() error { return nil }

func TestARightStorePasses(t *testing.T) {
	const seed = 7
	mem := new(memstore.Store)
	for name, open := range map[string]func() driver.Store{
		"memstore": func() driver.Store { return mem },
		"the toy":  opener(newToy(breaks{})),
	} {
		for subject, faults := range verdict(t, seed, "", open) {
			t.Errorf("%s (seed %d), %s:\n%s", name, seed, subject, strings.Join(faults, "\n"))
		}
	}
}

func opener(s driver.Store) func() driver.Store { return func() driver.Store { return s } }

// Each of these stores breaks one rule, as some lock library does, and must not pass.
// by is the file whose subjects must notice, whoever else would.
func TestABrokenStoreIsFound(t *testing.T) {
	unnoticed := make(map[turn]bool) // tickets that were last answered as waiting
	tests := []struct {
		store string
		by    string
		b     breaks
	}{
		{"grants whoever asks last", "queue", breaks{after: func(q *lease.Queue, _ *lease.Standing) {
			for i := 1; i+1 < len(q.Claims); i++ { // the waiters, backwards
				if q.Claims[i].Ticket < q.Claims[i+1].Ticket && !q.Claims[i].Held() {
					q.Claims[i], q.Claims[i+1] = q.Claims[i+1], q.Claims[i]
				}
			}
		}}},
		{"lets those who do not wait steal", "queue", breaks{join: func(q *lease.Queue, c lease.Claim, now time.Time) (lease.Standing, error) {
			st, err := q.Join(c, now)
			if st.State == lease.Busy && c.NoWait && st.Holder != nil {
				q.Leave(st.Holder.ID, 0, lease.Seal{}, now)
				q.Claims = nil
				return q.Join(c, now)
			}
			return st, err
		}}},
		{"lets readers pass a writer that waits", "share", breaks{join: func(q *lease.Queue, c lease.Claim, now time.Time) (lease.Standing, error) {
			st, err := q.Join(c, now)
			if hs := q.Holders(); c.Mode == lease.Shared && st.State == lease.Waiting && len(hs) > 0 && hs[0].Mode == lease.Shared {
				last := len(q.Claims) - 1
				e := q.Claims[last]
				copy(q.Claims[len(hs)+1:], q.Claims[len(hs):last])
				q.Claims[len(hs)] = e
				return q.Standing(c.ID, now), nil
			}
			return st, err
		}}},
		{"queues those who do not wait", "queue", breaks{join: func(q *lease.Queue, c lease.Claim, now time.Time) (lease.Standing, error) {
			c.NoWait = false
			return q.Join(c, now)
		}}},
		{"takes each join for a new claim", "queue", breaks{join: func(q *lease.Queue, c lease.Claim, now time.Time) (lease.Standing, error) {
			q.Advance(now)
			for i, e := range q.Claims {
				if e.ID == c.ID {
					q.Claims = append(q.Claims[:i:i], q.Claims[i+1:]...)
					break
				}
			}
			return q.Join(c, now)
		}}},
		{"counts no waiters", "queue", breaks{join: func(q *lease.Queue, c lease.Claim, now time.Time) (lease.Standing, error) {
			c.MaxWaiters = 0
			return q.Join(c, now)
		}}},
		{"cuts names at a brace", "queue", breaks{name: func(name string) string { return strings.NewReplacer("{", "", "}", "").Replace(name) }}},
		{"does not tell capital letters from small ones", "queue", breaks{name: strings.ToLower}},
		{"names nobody", "queue", breaks{after: func(_ *lease.Queue, st *lease.Standing) { st.Holder = nil }}},
		{"sleeps through a change", "wait", breaks{wait: func(ctx context.Context, changed bool) bool {
			if !changed {
				pause(ctx, time.Minute)
			}
			return changed
		}}},
		{"answers all the time", "wait", breaks{wait: func(ctx context.Context, _ bool) bool {
			pause(ctx, time.Millisecond) // or time in the bubble stands still
			return true
		}}},
		{"does not look at its ctx", "wait", breaks{wait: func(ctx context.Context, changed bool) bool {
			if !changed {
				pause(context.Background(), time.Hour)
			}
			return changed
		}}},
		{"ends a lease early", "expiry", breaks{look: func(q *lease.Queue, now time.Time) {
			q.Claims = slices.DeleteFunc(q.Claims, func(e lease.Entry) bool { return e.Expires.Sub(now) < short/10 })
		}}},
		{"never ends a lease", "expiry", breaks{look: func(q *lease.Queue, _ time.Time) {
			for i := range q.Claims {
				q.Claims[i].Expires = q.Claims[i].Expires.Add(time.Hour)
			}
		}}},
		{"revives what is gone", "expiry", breaks{renew: func(q *lease.Queue, r driver.Ref, now time.Time) lease.Standing {
			st := q.Renew(r.Token.ID, r.Token.Ticket, r.TTL, r.Fence, now)
			if st.State == lease.Gone && len(q.Claims) == 0 {
				st, _ = q.Join(lease.Claim{ID: r.Token.ID, TTL: r.TTL}, now)
			}
			return st
		}}},
		{"renews without comparing tickets", "expiry", breaks{renew: func(q *lease.Queue, r driver.Ref, now time.Time) lease.Standing {
			return q.Renew(r.Token.ID, 0, r.TTL, r.Fence, now)
		}}},
		{"renews whoever holds", "expiry", breaks{renew: func(q *lease.Queue, r driver.Ref, now time.Time) lease.Standing {
			if q.Advance(now); len(q.Claims) > 0 {
				return q.Renew(q.Claims[0].ID, 0, r.TTL, r.Fence, now)
			}
			return lease.Standing{}
		}}},
		{"does not renew", "expiry", breaks{renew: func(q *lease.Queue, r driver.Ref, now time.Time) lease.Standing {
			return q.Renew(r.Token.ID, r.Token.Ticket, 0, r.Fence, now)
		}}},
		{"shortens by a renewal", "expiry", breaks{renew: func(q *lease.Queue, r driver.Ref, now time.Time) lease.Standing {
			q.Renew(r.Token.ID, r.Token.Ticket, 0, r.Fence, now)
			for i, e := range q.Claims {
				if e.ID == r.Token.ID && e.Ticket == r.Token.Ticket {
					q.Claims[i].Expires = now.Add(r.TTL)
				}
			}
			return q.Renew(r.Token.ID, r.Token.Ticket, r.TTL, r.Fence, now)
		}}},
		{"shortens by a second join", "expiry", breaks{join: func(q *lease.Queue, c lease.Claim, now time.Time) (lease.Standing, error) {
			q.Advance(now)
			for i, e := range q.Claims {
				if e.ID == c.ID {
					q.Claims[i].Expires = now.Add(c.TTL)
				}
			}
			return q.Join(c, now)
		}}},
		{"takes any TTL", "expiry", breaks{min: time.Minute}},
		{"answers renewals out of order", "expiry", breaks{out: func(out []driver.Outcome) {
			for i := 0; i+1 < len(out); i += 2 {
				out[i], out[i+1] = out[i+1], out[i]
			}
		}}},
		{"draws the same ticket again", "fence", breaks{after: func(q *lease.Queue, _ *lease.Standing) {
			if len(q.Claims) == 0 {
				q.Last = 0
			}
		}, join: func(q *lease.Queue, c lease.Claim, now time.Time) (lease.Standing, error) {
			if c.Fence == 0 {
				c.Fence = 1
			}
			return q.Join(c, now)
		}}},
		{"takes no proposed tickets", "fence", breaks{join: func(q *lease.Queue, c lease.Claim, now time.Time) (lease.Standing, error) {
			c.Fence = 0
			return q.Join(c, now)
		}}},
		{"takes any proposed ticket", "fence", breaks{join: func(q *lease.Queue, c lease.Claim, now time.Time) (lease.Standing, error) {
			if c.Fence != 0 {
				q.Last = 0
			}
			return q.Join(c, now)
		}}},
		{"lets anybody raise the last ticket", "fence", breaks{renew: func(q *lease.Queue, r driver.Ref, now time.Time) lease.Standing {
			q.Last = max(q.Last, r.Fence)
			return q.Renew(r.Token.ID, r.Token.Ticket, r.TTL, r.Fence, now)
		}}},
		{"never raises the last ticket", "fence", breaks{renew: func(q *lease.Queue, r driver.Ref, now time.Time) lease.Standing {
			return q.Renew(r.Token.ID, r.Token.Ticket, r.TTL, 0, now)
		}}},
		{"forgets the room", "fence", breaks{join: func(q *lease.Queue, c lease.Claim, now time.Time) (lease.Standing, error) {
			asked := c.Room
			c.Room = 0
			st, err := q.Join(c, now)
			st.Room = asked
			return st, err
		}}},
		{"does not know the ticket before", "fence", breaks{after: func(_ *lease.Queue, st *lease.Standing) { st.Prev = 0 }}},
		{"does not seal", "seal", breaks{leave: func(q *lease.Queue, id string, ticket uint64, _ lease.Seal, now time.Time) lease.Standing {
			return q.Leave(id, ticket, lease.Seal{}, now)
		}}},
		{"seals for anybody", "seal", breaks{leave: func(q *lease.Queue, id string, ticket uint64, s lease.Seal, now time.Time) lease.Standing {
			st := q.Leave(id, ticket, s, now)
			if s.Closed() && !q.Seal().Closed() && s.Victim == "" {
				q.SetSeal(s)
			}
			return st
		}}},
		{"lifts a seal with any leave", "seal", breaks{leave: func(q *lease.Queue, id string, ticket uint64, s lease.Seal, now time.Time) lease.Standing {
			if st := q.Standing(id, now); st.State == lease.Gone && s.Victim == "" {
				q.SetSeal(lease.Seal{})
			}
			return q.Leave(id, ticket, s, now)
		}}},
		{"breaks without a seal", "seal", breaks{leave: func(q *lease.Queue, id string, ticket uint64, s lease.Seal, now time.Time) lease.Standing {
			if s.Victim != "" {
				s = lease.Seal{}
			}
			return q.Leave(id, ticket, s, now)
		}}},
		{"does not tell the victim", "seal", breaks{mute: true}},
		{"closes the name of a break that is not to wait", "seal", breaks{leave: func(q *lease.Queue, id string, ticket uint64, s lease.Seal, now time.Time) lease.Standing {
			if s.Victim != "" {
				s.For = 1
			}
			return q.Leave(id, ticket, s, now)
		}}},
		{"does not hear the victim", "seal", breaks{leave: func(q *lease.Queue, id string, ticket uint64, s lease.Seal, now time.Time) lease.Standing {
			if q.Advance(now); q.Seal().Victim == id && s.Victim == "" {
				return lease.Standing{}
			}
			return q.Leave(id, ticket, s, now)
		}}},
		{"does not say who broke it", "seal", breaks{after: func(_ *lease.Queue, st *lease.Standing) { st.Seal.By, st.Seal.Reason = "", "" }}},
		{"loses a seal's value", "seal", breaks{after: func(_ *lease.Queue, st *lease.Standing) {
			st.Seal.Value = strings.ToValidUTF8(st.Seal.Value, "?")
		}}},
		{"keeps waiters in the dark about a seal", "seal", breaks{after: func(_ *lease.Queue, st *lease.Standing) {
			if st.State == lease.Waiting {
				st.Seal = lease.Seal{}
			}
		}}},
		{"unlocks without comparing", "cancel", breaks{leave: func(q *lease.Queue, id string, ticket uint64, s lease.Seal, now time.Time) lease.Standing {
			st := q.Leave(id, ticket, s, now)
			if hs := q.Holders(); st.State == lease.Gone && len(hs) > 0 {
				q.Leave(hs[0].ID, 0, s, now)
			}
			return st
		}}},
		{"leaves with any ticket", "cancel", breaks{leave: func(q *lease.Queue, id string, _ uint64, s lease.Seal, now time.Time) lease.Standing {
			return q.Leave(id, 0, s, now)
		}}},
		{"remembers a leave that was for one ticket", "cancel", breaks{leave: func(q *lease.Queue, id string, ticket uint64, s lease.Seal, now time.Time) lease.Standing {
			st := q.Leave(id, ticket, s, now)
			if st.State == lease.Gone {
				q.Leave(id, 0, s, now)
			}
			return st
		}}},
		{"forgets who has left", "cancel", breaks{leave: func(q *lease.Queue, id string, ticket uint64, s lease.Seal, now time.Time) lease.Standing {
			st := q.Leave(id, ticket, s, now)
			if st.State != lease.Gone {
				return st
			}
			fresh := lease.Queue{Now: q.Now, Last: q.Last, Claims: q.Claims}
			fresh.SetSeal(q.Seal())
			*q = fresh
			return st
		}}},
		{"keeps a turn that nobody noticed", "cancel", breaks{leave: func(q *lease.Queue, id string, ticket uint64, s lease.Seal, now time.Time) lease.Standing {
			if st := q.Standing(id, now); st.State == lease.Held && unnoticed[turn{q, st.Ticket}] && len(q.Claims) > 1 {
				return st
			}
			return q.Leave(id, ticket, s, now)
		}, after: func(q *lease.Queue, st *lease.Standing) { unnoticed[turn{q, st.Ticket}] = st.State == lease.Waiting }}},
		{"takes a mutex for a semaphore", "queue", breaks{join: func(q *lease.Queue, c lease.Claim, now time.Time) (lease.Standing, error) {
			st, err := q.Join(c, now)
			if err != nil && c.MaxWaiters == 0 {
				return lease.Standing{State: lease.Busy}, nil
			}
			return st, err
		}}},
		{"gives one permit too many", "share", breaks{join: func(q *lease.Queue, c lease.Claim, now time.Time) (lease.Standing, error) {
			if c.Mode == lease.Permit {
				c.Slots++
			}
			return q.Join(c, now)
		}}},
		{"counts each permit as one", "share", breaks{join: func(q *lease.Queue, c lease.Claim, now time.Time) (lease.Standing, error) {
			if c.Mode == lease.Permit {
				c.Need = 1
			}
			return q.Join(c, now)
		}}},
		{"lists all names whatever the prefix", "inspect", breaks{list: func(names []string) []string { return append(names, "other") }}},
		{"lists no sealed names", "seal", breaks{list: func(names []string) []string {
			return slices.DeleteFunc(names, func(name string) bool { return strings.HasSuffix(name, "/left") })
		}}},
		{"lists no names", "inspect", breaks{list: func([]string) []string { return nil }}},
		{"is another node each time", "inspect", breaks{node: func(n *lease.Node) { n.ID = lease.NewID() }}},
	}
	for _, test := range tests {
		t.Run(test.store, func(t *testing.T) {
			const seed = 11
			if found := verdict(t, seed, test.by, opener(newToy(test.b))); len(found) == 0 {
				t.Errorf("no subject in %s.go has noticed (seed %d)", test.by, seed)
			}
		})
	}
}

// turn is a ticket of one name: in a bubble many names draw theirs at one instant.
type turn struct {
	q      *lease.Queue
	ticket uint64
}
