package redisstore

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// transactionBatch is how many renewals go in one transaction. It fails as a whole when
// one lock of it is changed meanwhile, so fewer than in a pipeline of scripts.
const transactionBatch = 100

// renew pushes the ends of leases, and never brings back one that is gone.
func (t transactions) renew(ctx context.Context, all []renewal) ([]reply, []error) {
	replies, errs := make([]reply, len(all)), make([]error, len(all))
	for from := 0; from < len(all); from += transactionBatch {
		to := min(from+transactionBatch, len(all))
		t.renewSome(ctx, all[from:to], replies[from:to], errs[from:to])
	}
	return replies, errs
}

// renewSome halves the batch where the server refuses it, or somebody has changed one of
// its locks, until whatever it was concerns one lock only: its trouble is not the others'.
func (t transactions) renewSome(ctx context.Context, some []renewal, replies []reply, errs []error) {
	err := t.renewOnce(ctx, some, replies, errs)
	if len(some) == 1 && errors.Is(err, redis.TxFailedErr) {
		err = again(func() error { return t.renewOnce(ctx, some, replies, errs) })
	}
	switch half := len(some) / 2; {
	case err == nil:
	case half > 0 && serverCode(err) != "" && !refusedCommand(err, transactional...):
		t.renewSome(ctx, some[:half], replies[:half], errs[:half])
		t.renewSome(ctx, some[half:], replies[half:], errs[half:])
	default:
		for i := range some {
			errs[i] = err
		}
	}
}

// renewLook is what is looked at for one renewal.
type renewLook struct {
	lock     stringLook
	last     *redis.StringCmd // only if the fence may have to be raised
	lastLeft *redis.DurationCmd
}

// ends are until when keys are to live, and the highest ticket of each name. One batch may
// have several renewals of one lock: none of them shortens what another has bought.
type ends struct {
	lasts map[string]time.Duration
	last  map[string]uint64
}

func (e ends) push(key string, lasts time.Duration) time.Duration {
	e.lasts[key] = max(e.lasts[key], lasts)
	return e.lasts[key]
}

func (t transactions) renewOnce(ctx context.Context, some []renewal, replies []reply, errs []error) error {
	looks := make([]renewLook, len(some))
	var wrote []*redis.BoolCmd
	var watch []string
	for _, r := range some {
		watch = append(watch, r.keys[lockKey], r.keys[lastKey])
	}
	err := t.run(ctx, optimist{
		watch: watch,
		look: func(pipe redis.Pipeliner) {
			for i, r := range some {
				looks[i] = renewLook{lock: lookAt(ctx, pipe, r.keys[lockKey]), lastLeft: pipe.PTTL(ctx, r.keys[lastKey])}
				if r.fence > 0 {
					looks[i].last = pipe.Get(ctx, r.keys[lastKey])
				}
			}
		},
		decide: func() (func(redis.Pipeliner), error) {
			e := ends{make(map[string]time.Duration), make(map[string]uint64)}
			for i, r := range some {
				replies[i], errs[i] = looks[i].renewed(r, e)
			}
			if len(e.lasts) == 0 {
				return nil, nil
			}
			return func(pipe redis.Pipeliner) { wrote = e.write(ctx, pipe, some, replies) }, nil
		},
	})
	for _, cmd := range wrote {
		if err == nil && !cmd.Val() {
			err = redis.TxFailedErr // see joinOnce
		}
	}
	if err != nil {
		return err
	}
	return t.explainGone(ctx, some, replies)
}

func (l renewLook) renewed(r renewal, e ends) (reply, error) {
	value, left, err := l.lock.read()
	if err := firstError(err, l.lastLeft.Err()); err != nil {
		return reply{}, err
	}
	// The whole token: a hold that was lost must not live on the next ticket of its ID.
	if value != r.token.String() {
		return reply{state: "gone", taken: l.lock.there(), value: value, left: left, push: true}, nil
	}
	if l.last != nil {
		last := uint64(0)
		if text, err := l.last.Result(); err == nil {
			last = counter(text)
		} else if absent(err) != nil {
			return reply{}, err
		}
		if r.fence > last {
			e.last[r.keys[lastKey]] = max(e.last[r.keys[lastKey]], r.fence)
		}
	}
	lasts := e.push(r.keys[lockKey], max(left, r.ttl))
	e.push(r.keys[lastKey], max(l.lastLeft.Val(), lasts+after))
	return reply{state: "held", ticket: r.token.Ticket, lease: max(left, r.ttl), push: true}, nil
}

func (e ends) write(ctx context.Context, pipe redis.Cmdable, some []renewal, replies []reply) (locks []*redis.BoolCmd) {
	for i, r := range some {
		lock, last := r.keys[lockKey], r.keys[lastKey]
		if replies[i].state != "held" || e.lasts[lock] == 0 {
			continue
		}
		locks = append(locks, pipe.PExpire(ctx, lock, e.lasts[lock]))
		if fence := e.last[last]; fence > 0 {
			pipe.Set(ctx, last, fence, e.lasts[last])
		} else {
			pipe.PExpire(ctx, last, e.lasts[last])
		}
		delete(e.lasts, lock) // once for each name
	}
	return locks
}

// explainGone looks for seals on the names of those that are gone: whoever was broken
// learns by whom. They are looked at behind the transaction, for they are few.
func (t transactions) explainGone(ctx context.Context, some []renewal, replies []reply) error {
	seals := make(map[int]stringLook)
	pipe := t.client.Pipeline()
	for i, r := range some {
		if replies[i].state == "gone" {
			seals[i] = lookAt(ctx, pipe, r.keys[sealedKey])
		}
	}
	if len(seals) == 0 {
		return nil
	}
	_, _ = pipe.Exec(ctx)
	for i, l := range seals {
		// A seal that cannot be read explains nothing; that the lock is gone is sure.
		replies[i].sealText, replies[i].sealLeft, _ = l.read()
	}
	return nil
}
