// Package redisstore keeps locks on a Redis server, or one that speaks like it, through
// the go-redis client of the program.
//
// A lock is a plain string key with an expiry, the prefix and the lock's name, so it
// excludes and is excluded by clients of other libraries that do SET NX (redis-py,
// redsync, redislock, node-redlock). Whoever does not get it waits in a queue on the
// server; a release gives the lock to the next one in line in the same step and tells
// it, so an acquisition costs two commands however many wait.
//
// Where the server refuses scripts there is [Plain], which has to be asked for.
//
// This package has exclusive locks on one server, also one that Sentinel chooses: but
// a fail-over loses what was not replicated, and nothing here waits for replicas yet.
//
// The least that an ACL user needs, for the default prefix (that of Plain stands there):
//
//	ACL SETUSER locker reset on >PASSWORD ~lock:* &lock:*
//	    +eval +evalsha +get +mget +set +del +exists +pexpire +pttl +time
//	    +zadd +zrem +zscore +zcard +zrank +zrange +hget +hset +hdel +hkeys +hgetall
//	    +publish +subscribe +unsubscribe +pubsub|numsub +ping +hello +info
//	    +sadd +srem +sscan +zrangebyscore +zremrangebyscore
//
// Without +publish, +subscribe, +pubsub|numsub or the channels, waiters poll. The last
// line is for [Store.Names] only.
package redisstore

import (
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/internal/lines"
	"github.com/redlatch/redlatch/lease"
)

// Options say how a Store differs from the default.
type Options struct {
	// Prefix stands before the lock's name in the key. "" means "lock:"; for no prefix
	// set NoPrefix. Programs that share locks share the prefix.
	Prefix   string
	NoPrefix bool

	// Foreign leaves gaps for clients of other libraries that poll: while waiters of
	// redlatch hand the lock on among them it is never free. With this it is, for
	// 100 ms, after 16 turns or 1 s.
	Foreign bool

	// Poll says that the server has no pub/sub for this client. Waiters then look again
	// every 50 to 150 ms, one for each process and name. Without it they do so where
	// pub/sub turns out not to work.
	Poll bool
}

// MinTTL is the shortest lease: expiry on the server is in milliseconds, and the
// holder takes 1 % and 2 ms off.
const minTTL = 10 * time.Millisecond

// Store is a [driver.Store] on one Redis server.
type Store struct {
	driver.Notices

	client   redis.UniversalClient
	lifeline lifeline
	moves    moves // scripts, or of a Plain transactions
	keys     keyspace
	opts     Options
	process  string // random: names this Store among all that use the server
	once     time.Duration

	inbox inbox
	work  sync.WaitGroup
	quit  chan struct{}

	durability durability

	mu     sync.Mutex
	closed bool
	book   lines.Book
	bells  map[*lines.Claim]chan struct{} // of those who sleep in Wait: closed when they shall look again

	index index
}

var _ driver.Store = (*Store)(nil)

// New returns a Store on the server of that client, which stays the caller's. It does
// not connect.
//
// Renewals do not go over that client but over at most two connections of the Store's
// own, made with the client's options: a program that uses up its pool loses no lock by
// it. They do not pass through the client's hooks. A client of another type than
// *redis.Client, or one that asks Sentinel, is used for renewals too: give it a pool that
// the program does not use up.
//
// A Ring is refused: it moves keys to other servers when one does not answer, and then
// two can hold one lock. A Cluster client is refused for now.
func New(client redis.UniversalClient, o Options) (*Store, error) {
	prefix := o.Prefix
	switch {
	case o.NoPrefix && prefix != "":
		return nil, fmt.Errorf("the prefix %q and NoPrefix exclude each other", prefix)
	case prefix == "" && !o.NoPrefix:
		prefix = "lock:"
	}
	switch c := client.(type) {
	case nil:
		return nil, errors.New("no client")
	case *redis.Ring:
		return nil, errors.New("redis.Ring moves keys to other servers when one is down, so two could hold one lock; " +
			"use one server, Sentinel, or a quorum of independent servers")
	case *redis.ClusterClient:
		return nil, errors.New("redis.ClusterClient is not supported yet; it comes in a later release")
	case *redis.Client:
		if c == nil {
			return nil, errors.New("no client")
		}
	}
	keys, err := newKeyspace(prefix)
	if err != nil {
		return nil, err
	}
	s := &Store{
		client: client, moves: scripts{client}, keys: keys, opts: o, process: rand.Text(), once: sentOnce(client),
		quit: make(chan struct{}), bells: make(map[*lines.Claim]chan struct{}),
	}
	s.book = lines.Book{Wake: s.ring, Began: s.index.add, Ended: s.index.remove}
	s.lifeline.shared = client
	s.inbox.init(s)
	s.index.init(s)
	return s, nil
}

// sentOnce is how quickly an answered call has surely been sent only once: go-redis
// sends again after an error of the network, but not before this pause. 0: never sure.
func sentOnce(client redis.UniversalClient) time.Duration {
	c, ok := client.(*redis.Client)
	if !ok {
		return 0 // a wrapper; who knows what it repeats
	}
	o := c.Options()
	if o.MaxRetries == 0 {
		return time.Hour
	}
	return o.MinRetryBackoff
}

// Features implements [driver.Store]. A claim keeps its place through a lost message or
// a subscription that died, because its grant outlasts the 2 s until that is noticed: with
// a TTL below that the order is best effort. Push is what the Store tries; see
// [Options].Poll.
func (s *Store) Features() driver.Features {
	return driver.Features{
		Fence: true, FIFO: true, Modes: []lease.Mode{lease.Exclusive}, Seal: true, Push: !s.opts.Poll, MinTTL: minTTL,
	}
}

// Close ends the subscription and the record of names. Claims stay as they are, and so
// does the client. Calls that were left behind when their ctx ended (see bound) end by
// themselves at the client's read timeout; Close does not wait for them.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	close(s.quit)
	s.mu.Unlock()

	s.inbox.close()
	s.work.Wait()
	s.lifeline.close()
	return nil
}
