package redisstore

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/lease"
)

// moves are what is done on a server, each in one step that nobody comes between:
// [scripts], or [transactions] where those are refused. All else of a Store is the same.
//
// keys are those of keyspace.keys, in its order.
type moves interface {
	// over is the same over another client of the server.
	over(client redis.UniversalClient) moves

	join(ctx context.Context, keys []string, j joining) (reply, error)
	leave(ctx context.Context, keys []string, l leaving) (reply, error)

	// renew has one reply or error for each.
	renew(ctx context.Context, all []renewal) ([]reply, []error)

	inspect(ctx context.Context, keys []string) (lease.Queue, error)

	// record changes the list of what one process holds and waits for, and reports whether
	// that list was there: if not, the process writes all of it.
	record(ctx context.Context, index, record string, r entries) (there bool, err error)

	// noteSeal puts a name on the list of those that are closed, for that long.
	noteSeal(ctx context.Context, key, name string, life time.Duration) error
}

type joining struct {
	lease.Claim

	channel, marker string // of the subscription
}

type leaving struct {
	id       string
	only     string // not "": only the claim that holds with this ticket
	remember string // write the stone: no, absent (if the claim is not here), always
	seal     lease.Seal
	foreign  bool   // leave gaps for clients that know no queue
	news     string // the channel on which holders learn that they were broken
}

// sealText is what is kept of the seal, "" if there is none.
func (l leaving) sealText() string {
	if l.seal.Closed() || l.broken() {
		return sealText(l.seal)
	}
	return ""
}

// broken reports whether somebody else than the claim's own process takes it out.
func (l leaving) broken() bool { return l.seal.By != "" }

type renewal struct {
	keys  []string
	token lease.Token
	ttl   time.Duration
	fence uint64
}

type entries struct {
	process     string
	life        time.Duration
	add, remove []string
}
