package redisstore

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/lease"
)

// transactions are the moves without scripts: WATCH the keys, look at them, and write in
// MULTI and EXEC, which the server carries out only if nobody has changed any of the keys
// meanwhile. Two round trips, and one more where nothing is written.
//
// All of it goes over one connection, and nothing of it is sent twice: go-redis gives a
// transaction up with its connection. Were it to send MULTI and EXEC again on another one,
// they would be carried out without the WATCH.
//
// They know the queue of the scripts only so far that they show it and tell its waiters
// what happens. Nobody is queued, and nobody in the queue is waited for. Who passes it
// empties it: the tickets in it were drawn before, and are below the fence of whoever has
// the lock now.
//
//	script  join -> waiting with ticket 10
//	plain   release; another one joins -> held with ticket 11
//	plain   release
//	script  looks -> held with ticket 10: a resource that has seen 11 refuses it
//
// So it looks, finds that its place is gone, and queues again with a new ticket.
type transactions struct {
	client redis.UniversalClient
}

func (transactions) over(client redis.UniversalClient) moves { return transactions{client} }

// transactional are the commands without which there is no transaction at all.
var transactional = []string{"multi", "exec", "watch", "unwatch"}

// tries bounds how often a transaction is made anew because somebody else's came first.
// That one has taken the lock or left it: progress has been made each time, and whoever
// has not got the lock after ten of them is told that it is taken.
const tries = 10

// after is how long what belongs to a name lives after its lock; HOUR in prelude.lua.
const after = time.Hour

// maxAhead is AHEAD in join.lua: tickets further than this before the clock leave no room.
const maxAhead = 100 * time.Millisecond

// The places of the keys in keyspace.keys.
const (
	lockKey = iota
	queueKey
	aboutKey
	lastKey
	sealedKey
	stoneKey
)

// optimist is a transaction: look puts the questions into a pipeline, and decide says from
// the answers what is to be written: nil is nothing.
type optimist struct {
	watch  []string
	look   func(pipe redis.Pipeliner)
	decide func() (write func(pipe redis.Pipeliner), err error)
}

// run carries a transaction out. The error is redis.TxFailedErr if a key was changed.
//
// The look begins with an empty MULTI and EXEC, to be sure of the right to them. They are
// sent together with what they enclose: where MULTI alone is refused, the rest would be
// carried out as it stands, and a DEL would delete whatever is there by then.
func (t transactions) run(ctx context.Context, o optimist) error {
	return t.client.Watch(ctx, func(tx *redis.Tx) error {
		pipe := tx.Pipeline()
		multi, exec := pipe.Do(ctx, "multi"), pipe.Do(ctx, "exec")
		watch := pipe.Do(ctx, append([]any{"watch"}, anys(o.watch)...)...)
		o.look(pipe)
		// Each has its own error, but if the connection could not be set up only the pipeline
		// has: then nothing was looked at, and nothing must be read from that.
		if _, failed := pipe.Exec(ctx); failed != nil && multi.Err() == nil && multi.Val() == nil {
			return failed
		}
		if multi.Err() == nil && exec.Err() != nil && !redis.IsExecAbortError(exec.Err()) {
			// It is still open, and must not meet the next one who is given this connection.
			_ = tx.Do(context.WithoutCancel(ctx), "quit").Err()
		}
		if err := firstError(multi.Err(), exec.Err(), watch.Err()); err != nil {
			return err
		}
		write, err := o.decide()
		if err == nil && write != nil {
			err = ctx.Err() // whoever asked has gone: better nothing than something that nobody knows of
		}
		if err != nil || write == nil {
			_ = tx.Unwatch(context.WithoutCancel(ctx)).Err() // go-redis does not know of this WATCH
			return err
		}
		changes := tx.TxPipeline()
		write(changes)
		cmds, err := changes.Exec(ctx)
		return cause(cmds, err)
	})
}

// cause is why a transaction was not carried out: a command that was refused when it was
// queued, rather than EXEC's "because of previous errors".
func cause(cmds []redis.Cmder, err error) error {
	if serverCode(err) != "EXECABORT" {
		return err
	}
	for _, cmd := range cmds {
		if cmd.Err() != nil && serverCode(cmd.Err()) != "EXECABORT" {
			return cmd.Err()
		}
	}
	return err
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func anys(texts []string) []any {
	all := make([]any, len(texts))
	for i, text := range texts {
		all[i] = text
	}
	return all
}

// stringLook is a key that is looked at, and how long it will live.
type stringLook struct {
	value *redis.StringCmd
	left  *redis.DurationCmd
}

func lookAt(ctx context.Context, pipe redis.Cmdable, key string) stringLook {
	return stringLook{pipe.Get(ctx, key), pipe.PTTL(ctx, key)}
}

// read returns the value, and how long it lives: negative if it has no end, or is not
// there at all.
func (l stringLook) read() (value string, left time.Duration, err error) {
	if err := firstError(absent(l.value.Err()), l.left.Err()); err != nil {
		return "", 0, err
	}
	return l.value.Val(), l.left.Val(), nil
}

// there reports whether the key is. Its value may be empty: another library's.
func (l stringLook) there() bool { return l.value.Err() == nil }

// absent is no error.
func absent(err error) error {
	if errors.Is(err, redis.Nil) {
		return nil
	}
	return err
}

// nameLook is a look at all that decides about a name.
type nameLook struct {
	lock, last, sealed stringLook
	stone              *redis.IntCmd
	clock              *redis.TimeCmd
}

func lookAtName(ctx context.Context, pipe redis.Cmdable, keys []string) *nameLook {
	return &nameLook{
		lock: lookAt(ctx, pipe, keys[lockKey]), last: lookAt(ctx, pipe, keys[lastKey]), sealed: lookAt(ctx, pipe, keys[sealedKey]),
		stone: pipe.Exists(ctx, keys[stoneKey]), clock: pipe.Time(ctx),
	}
}

// seen is what a look found.
type seen struct {
	reply // value, left, seal and time, as every move answers them

	last     uint64
	lastLeft time.Duration
	stone    bool
}

func (l *nameLook) read() (seen, error) {
	s := seen{reply: reply{push: true, now: l.clock.Val(), state: "gone", taken: l.lock.there()}, stone: l.stone.Val() > 0}
	var err, err2, err3 error
	var last string
	s.value, s.left, err = l.lock.read()
	last, s.lastLeft, err2 = l.last.read()
	s.sealText, s.sealLeft, err3 = l.sealed.read()
	if err := firstError(err, err2, err3, l.stone.Err(), l.clock.Err()); err != nil {
		return seen{}, err
	}
	s.last = counter(last)
	return s, nil
}

// counter is that of prelude.lua, which says why.
func counter(text string) uint64 {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n >= lease.MaxTicket-lease.MaxRoom-1 {
		return 0
	}
	return n
}

// holds reports whether the claim has the lock. IDs have one length, so none is the
// beginning of another.
func (s seen) holds(id string) bool {
	return len(s.value) > len(id) && s.value[:len(id)] == id && s.value[len(id)] == '.'
}

// watchedKeys are those of a name that a transaction about one claim reads and writes.
func watchedKeys(keys []string) []string {
	return []string{keys[lockKey], keys[lastKey], keys[sealedKey], keys[stoneKey]}
}

// again calls f until it is not in anybody's way any more, a limited number of times.
func again(f func() error) (err error) {
	for range tries {
		if err = f(); !errors.Is(err, redis.TxFailedErr) {
			return err
		}
	}
	return err
}

// join answers busy where the lock cannot be had: who may wait is not decided here.
func (t transactions) join(ctx context.Context, keys []string, j joining) (r reply, err error) {
	err = again(func() error {
		r, err = t.joinOnce(ctx, keys, j)
		return err
	})
	if errors.Is(err, redis.TxFailedErr) {
		err = nil // others were quicker each time; the last look is what is known
	}
	return r, err
}

// joinOnce answers also where its transaction fails: as it was before.
func (t transactions) joinOnce(ctx context.Context, keys []string, j joining) (r reply, err error) {
	var l *nameLook
	var s seen
	var wrote *redis.BoolCmd
	var passed *redis.StringSliceCmd
	took := false
	info := redis.NewStringResult("", nil)
	err = t.run(ctx, optimist{
		watch: watchedKeys(keys),
		look: func(pipe redis.Pipeliner) {
			l = lookAtName(ctx, pipe, keys)
			passed = pipe.ZRange(ctx, keys[queueKey], 0, toldMost) // for tell, which may be denied it
			if j.Vote {
				info = pipe.Info(ctx, "server")
			}
		},
		decide: func() (write func(redis.Pipeliner), err error) {
			if s, err = l.read(); err != nil || info.Err() != nil {
				return nil, firstError(err, info.Err())
			}
			r, took = s.joined(j), false
			switch {
			case r.state != "held":
				return nil, nil
			case s.holds(j.ID):
				return func(pipe redis.Pipeliner) { wrote = s.keep(ctx, pipe, keys, r.lease) }, nil
			}
			took = true
			return func(pipe redis.Pipeliner) {
				wrote = pipe.SetNX(ctx, keys[lockKey], r.value, j.TTL)
				pipe.Set(ctx, keys[lastKey], r.ticket, j.TTL+after)
				pipe.Del(ctx, keys[queueKey])
			}, nil
		},
	})
	if err == nil && wrote != nil && !wrote.Val() {
		err = redis.TxFailedErr // up to Redis 6.0 a key that ends by itself does not count as changed
	}
	if errors.Is(err, redis.TxFailedErr) {
		r = s.outrun(j.ID)
	}
	if err == nil && took {
		t.tell(ctx, keys, passed.Val(), news{all: true})
	}
	r.info = info.Val()
	return r, err
}

// joined is what becomes of a join if nobody comes between.
func (s seen) joined(j joining) reply {
	r := s.reply
	switch {
	case s.stone:
		r.state = "left" // this call was overtaken by its own leave
		return r
	case s.holds(j.ID):
		r.state, r.ticket, r.lease = "held", s.ticket(), max(s.left, j.TTL)
		return r
	case s.taken, s.sealText != "":
		r.state = "busy"
		return r
	}
	room := j.Room
	if int64(s.last)-s.now.UnixMicro() > maxAhead.Microseconds() {
		room = 0
	}
	r.ticket = lease.NextTicket(s.last, room, j.Fence, s.now)
	r.state, r.room, r.prev, r.lease, r.left = "held", room, s.last, j.TTL, j.TTL
	r.value = lease.Token{ID: j.ID, Ticket: r.ticket, Owner: j.Owner}.String()
	return r
}

// outrun is what can be said for a join whose transactions all failed: a lock that the
// claim has lasts for what it had, and any other is taken, though perhaps nobody knows by
// whom.
func (s seen) outrun(id string) reply {
	r := s.reply
	if r.state = "busy"; s.holds(id) {
		r.state, r.ticket, r.lease = "held", s.ticket(), max(s.left, 0)
	}
	return r
}

// ticket is that of the claim that has the lock.
func (s seen) ticket() uint64 {
	token, _ := lease.ParseToken(s.value)
	return token.Ticket
}

// keep pushes the ends of the lock and of what belongs to it, and never pulls them back.
// It writes also where that changes nothing, as raise in prelude.lua does.
func (s seen) keep(ctx context.Context, pipe redis.Cmdable, keys []string, lasts time.Duration) *redis.BoolCmd {
	wrote := pipe.PExpire(ctx, keys[lockKey], lasts)
	pipe.PExpire(ctx, keys[lastKey], max(s.lastLeft, lasts+after))
	return wrote
}

// leave is leave.lua but for what concerns a queue.
func (t transactions) leave(ctx context.Context, keys []string, l leaving) (r reply, err error) {
	err = again(func() error {
		r, err = t.leaveOnce(ctx, keys, l)
		return err
	})
	return r, err
}

func (t transactions) leaveOnce(ctx context.Context, keys []string, l leaving) (r reply, err error) {
	var look *nameLook
	var queue *redis.StringSliceCmd
	var opens bool
	var closes time.Duration
	err = t.run(ctx, optimist{
		watch: watchedKeys(keys),
		look: func(pipe redis.Pipeliner) {
			look = lookAtName(ctx, pipe, keys)
			queue = pipe.ZRange(ctx, keys[queueKey], 0, toldMost) // for tell, which may be denied it
		},
		decide: func() (func(redis.Pipeliner), error) {
			s, err := look.read()
			if err != nil {
				return nil, err
			}
			r = s.reply
			held := s.holds(l.id) && (l.only == "" || l.only == strconv.FormatUint(s.ticket(), 10))
			lifts := l.only == "" && !held && l.seal.Victim == "" && s.sealText != "" && s.sealText[:min(len(l.id), len(s.sealText))] == l.id
			opens, closes = held || lifts, 0
			if held {
				closes = l.closes(s.left)
				r.state, r.ticket, r.lease = "held", s.ticket(), max(s.left, 0)
				r.taken, r.value, r.left = false, "", 0
			}
			if opens {
				r.sealText = "" // the answer is how it was before, or that the broken holder has answered
			}
			if !opens && l.only != "" {
				return nil, nil
			}
			return func(pipe redis.Pipeliner) {
				if held {
					pipe.Del(ctx, keys[lockKey])
				}
				if lifts {
					pipe.Del(ctx, keys[sealedKey])
				}
				if closes > 0 {
					pipe.Set(ctx, keys[sealedKey], l.sealText(), closes)
				}
				if l.remember == "always" || l.remember == "absent" && !held {
					pipe.Set(ctx, keys[stoneKey], "1", lease.Tombstone)
				}
			}, nil
		},
	})
	if err == nil && l.broken() && r.state == "held" {
		// A favour too: those who hold by scripts hear it.
		_ = t.client.Publish(ctx, l.news, brokenMessage(l.id, keys[lockKey], l.sealText())).Err()
	}
	if err == nil && opens {
		t.tell(ctx, keys, queue.Val(), news{all: closes > 0, sealed: closes, text: l.sealText()})
	}
	return r, err
}

// closes is for how long the seal of a claim that holds closes the name, if its lease
// lasts that long.
func (l leaving) closes(left time.Duration) time.Duration {
	switch {
	case l.seal.Victim != l.id, !l.seal.Closed():
		return l.seal.For
	case left < 0:
		return after // somebody took the lock's end away: no end to wait for
	}
	return left
}

// toldMost is how many of the first waiters are looked at (as ZRANGE counts, so one more),
// and toldProcesses how many processes are told that the name is open: the first may be
// dead, and each that looks makes the server give the lock to whoever is the first.
const (
	toldMost      = 63
	toldProcesses = 3
)

// news is what those are told who wait in the queue of the scripts: to look, or that the
// name was sealed.
type news struct {
	all    bool // not only the first few processes
	sealed time.Duration
	text   string
}

func (n news) message(id, lock string) string {
	if n.sealed > 0 {
		return "s\n" + strconv.FormatInt(n.sealed.Milliseconds(), 10) + "\n" + lock + "\n" + n.text
	}
	return "p\n" + id + "\n0\n" + lock
}

// brokenMessage is what tell_victim in leave.lua says.
func brokenMessage(id, lock, seal string) string { return "b\n" + id + "\n" + lock + "\n" + seal }

// tell is a favour: without the right to it they notice when they look because the lease
// that they know of is over.
func (t transactions) tell(ctx context.Context, keys []string, ids []string, n news) {
	if len(ids) == 0 {
		return
	}
	pipe := t.client.Pipeline()
	pipe.HDel(ctx, keys[aboutKey], "!grant") // as leave.lua does: the process to which it was handed lives
	about := pipe.HMGet(ctx, keys[aboutKey], ids...)
	_, _ = pipe.Exec(ctx)

	pipe = t.client.Pipeline()
	told := make(map[string]bool)
	for i, entry := range about.Val() {
		entry, _ := entry.(string)
		parts, ok := cutAll(entry, 7) // as function pack in prelude.lua writes it
		if !ok || parts[0] != "c" || told[parts[5]] || !n.all && len(told) == toldProcesses {
			continue
		}
		told[parts[5]] = true
		pipe.Publish(ctx, parts[5], n.message(ids[i], keys[lockKey]))
	}
	if len(told) > 0 {
		_, _ = pipe.Exec(ctx)
	}
}

func (t transactions) inspect(ctx context.Context, keys []string) (lease.Queue, error) {
	pipe := t.client.TxPipeline()
	l := lookAtName(ctx, pipe, keys)
	waiting := pipe.ZRangeWithScores(ctx, keys[queueKey], 0, -1)
	about := pipe.HGetAll(ctx, keys[aboutKey])
	if cmds, err := pipe.Exec(ctx); absent(err) != nil {
		return lease.Queue{}, cause(cmds, err)
	}
	s, err := l.read()
	if err := firstError(err, waiting.Err(), about.Err()); err != nil {
		return lease.Queue{}, err
	}
	return queue(s.reply, s.last, waiting.Val(), about.Val())
}

// record is record.lua. The list is written by its own process only, so nobody comes
// between.
func (t transactions) record(ctx context.Context, index, record string, e entries) (bool, error) {
	var there *redis.IntCmd
	var clock *redis.TimeCmd
	err := t.run(ctx, optimist{
		watch: []string{record},
		look:  func(pipe redis.Pipeliner) { there, clock = pipe.Exists(ctx, record), pipe.Time(ctx) },
		decide: func() (func(redis.Pipeliner), error) {
			now := clock.Val()
			return func(pipe redis.Pipeliner) {
				if len(e.add) > 0 {
					pipe.SAdd(ctx, record, anys(e.add)...)
				}
				if len(e.remove) > 0 {
					pipe.SRem(ctx, record, anys(e.remove)...)
				}
				pipe.PExpire(ctx, record, e.life)
				pipe.ZAdd(ctx, index, redis.Z{Score: float64(now.Add(e.life).UnixMilli()), Member: e.process})
				pipe.ZRemRangeByScore(ctx, index, "-inf", strconv.FormatInt(now.UnixMilli(), 10))
				pipe.PExpire(ctx, index, e.life)
			}, firstError(there.Err(), clock.Err())
		},
	})
	return err == nil && there.Val() > 0, err
}

// noteSeal is seals.lua.
func (t transactions) noteSeal(ctx context.Context, key, name string, life time.Duration) error {
	var left *redis.DurationCmd
	var clock *redis.TimeCmd
	return again(func() error {
		return t.run(ctx, optimist{
			watch: []string{key},
			look:  func(pipe redis.Pipeliner) { left, clock = pipe.PTTL(ctx, key), pipe.Time(ctx) },
			decide: func() (func(redis.Pipeliner), error) {
				now := clock.Val()
				return func(pipe redis.Pipeliner) {
					pipe.ZRemRangeByScore(ctx, key, "-inf", strconv.FormatInt(now.UnixMilli(), 10))
					pipe.ZAdd(ctx, key, redis.Z{Score: float64(now.Add(life).UnixMilli()), Member: name})
					pipe.PExpire(ctx, key, max(left.Val(), life))
				}, firstError(left.Err(), clock.Err())
			},
		})
	})
}
