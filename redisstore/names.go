package redisstore

import (
	"context"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/elapsed"
	"github.com/redlatch/redlatch/lease"
)

// index is the record of what this process holds and waits for: a set on the server
// that only it writes, in one batch within half a second of a change, so that a lock
// costs nothing for it. Its fields are Store.mu's. A hold that is over sooner is never
// seen there.
//
// The set expires by itself when the process does not renew it. Names reads the sets of
// all processes, and never SCAN, whose cost is that of all keys of the server. Who has
// sealed a name has left it: those stand in a list that all processes write.
type index struct {
	s       *Store
	uses    map[string]int      // claims by name
	changed map[string]struct{} // names whose uses began or ended since the last batch
	running bool
	wake    chan struct{} // capacity 1
}

const (
	indexPause   = 400 * time.Millisecond // a batch may take the rest of the half second
	indexLife    = time.Minute
	indexRefresh = 20 * time.Second
	indexBatch   = 1000
)

func (x *index) init(s *Store) {
	x.s = s
	x.uses, x.changed = make(map[string]int), make(map[string]struct{})
	x.wake = make(chan struct{}, 1)
}

func (x *index) add(name string) {
	if x.uses[name]++; x.uses[name] == 1 {
		x.note(name)
	}
}

func (x *index) remove(name string) {
	if x.uses[name]--; x.uses[name] == 0 {
		delete(x.uses, name)
		x.note(name)
	}
}

func (x *index) note(name string) {
	x.changed[name] = struct{}{}
	if !x.running && !x.s.closed {
		x.running = true
		x.s.work.Go(x.run)
	}
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

// run writes until the Store is closed.
func (x *index) run() {
	written := make(map[string]struct{}) // what the record has
	refresh := time.NewTicker(indexRefresh)
	defer refresh.Stop()
	for {
		select {
		case <-x.wake:
			select {
			case <-time.After(indexPause):
			case <-x.s.quit:
			}
			x.write(written, false)
			if len(written) > 0 {
				x.s.inbox.hear()
			}
		case <-refresh.C:
			x.s.prune()
			x.write(written, true)
		case <-x.s.quit:
			x.write(written, false)
			return
		}
	}
}

// write brings the record up to date. A failure costs nobody a lock: the next refresh
// writes all of it.
func (x *index) write(written map[string]struct{}, refresh bool) {
	add, remove := x.diff(written)
	if len(add)+len(remove) == 0 && !(refresh && len(written) > 0) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	there, err := x.send(ctx, add, remove)
	if err == nil && !there && len(written) > len(add) {
		// The record had expired, or another server answers: all of it again.
		_, err = x.send(ctx, keysOf(written), nil)
	}
	if err != nil {
		clear(written)
		x.s.mu.Lock()
		for name := range x.uses {
			x.changed[name] = struct{}{} // with the next refresh
		}
		x.s.mu.Unlock()
	}
}

// diff takes the changes and notes them as written.
func (x *index) diff(written map[string]struct{}) (add, remove []string) {
	x.s.mu.Lock()
	defer x.s.mu.Unlock()

	for name := range x.changed {
		_, was := written[name]
		switch is := x.uses[name] > 0; {
		case is && !was:
			add = append(add, name)
			written[name] = struct{}{}
		case !is && was:
			remove = append(remove, name)
			delete(written, name)
		}
	}
	clear(x.changed)
	return add, remove
}

func (x *index) send(ctx context.Context, add, remove []string) (there bool, err error) {
	there = true
	for first := true; first || len(add)+len(remove) > 0; first = false {
		some, gone := add[:min(len(add), indexBatch)], remove[:min(len(remove), indexBatch)]
		add, remove = add[len(some):], remove[len(gone):]
		e := entries{process: x.s.process, life: indexLife, add: some, remove: gone}
		was, err := bound(ctx, func() (bool, error) {
			return x.s.moves.record(ctx, x.s.keys.index(), x.s.keys.record(x.s.process), e)
		})
		if err != nil {
			return false, err
		}
		there = there && (was || !first)
	}
	return there, nil
}

// prune strikes out held claims whose lease was over long ago and that nobody left.
func (s *Store) prune() {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.book.Prune(elapsed.Now())
}

// Names implements [driver.Store].
func (s *Store) Names(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		names, err := s.recorded(ctx, prefix)
		if err != nil {
			yield("", fault(err))
			return
		}
		for some := range slices.Chunk(names, indexBatch) {
			used, err := s.used(ctx, some)
			if err != nil {
				yield("", fault(err))
				return
			}
			for _, name := range used {
				if !yield(name, nil) {
					return
				}
			}
		}
	}
}

// recorded returns what the records of all processes list, and what was sealed, sorted.
func (s *Store) recorded(ctx context.Context, prefix string) ([]string, error) {
	return bound(ctx, func() ([]string, error) {
		clock, err := s.client.Time(ctx).Result()
		if err != nil {
			return nil, err
		}
		now := &redis.ZRangeBy{Min: "(" + strconv.FormatInt(clock.UnixMilli(), 10), Max: "+inf"}
		processes, err := s.client.ZRangeByScore(ctx, s.keys.index(), now).Result()
		if err != nil {
			return nil, err
		}
		sealed, err := s.client.ZRangeByScore(ctx, s.keys.seals(), now).Result()
		if err != nil {
			return nil, err
		}
		all := make(map[string]struct{})
		for _, name := range sealed {
			if strings.HasPrefix(name, prefix) {
				all[name] = struct{}{}
			}
		}
		for _, process := range processes {
			each := s.client.SScan(ctx, s.keys.record(process), 0, "", indexBatch).Iterator()
			for each.Next(ctx) {
				// Who may write a record can write anything there.
				if strings.HasPrefix(each.Val(), prefix) && lease.CheckName(each.Val()) == nil {
					all[each.Val()] = struct{}{}
				}
			}
			if each.Err() != nil {
				return nil, each.Err()
			}
		}
		names := keysOf(all)
		slices.Sort(names)
		return names, nil
	})
}

// used returns those names that something is kept for now.
func (s *Store) used(ctx context.Context, names []string) ([]string, error) {
	return bound(ctx, func() ([]string, error) {
		pipe := s.client.Pipeline()
		cmds := make([]*redis.IntCmd, len(names))
		for i, name := range names {
			further := s.keys.further(name)
			cmds[i] = pipe.Exists(ctx, s.keys.lock(name), further("q"), further("s"))
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return nil, err
		}
		var used []string
		for i, name := range names {
			if cmds[i].Val() > 0 {
				used = append(used, name)
			}
		}
		return used, nil
	})
}

func keysOf(set map[string]struct{}) []string {
	keys := make([]string, 0, len(set))
	for key := range set {
		keys = append(keys, key)
	}
	return keys
}
