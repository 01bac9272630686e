package redisstore

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// lifeline is what renewals are sent over: connections of their own, made like those of
// the program's client. A program that drains its pool (BLPOP in each connection, a slow
// transaction, a leak) makes its own commands wait; were renewals among them, it would
// lose every lock that it holds. See decisions/0010.
//
// Connections of one's own can fail where the program's work: the server takes no more
// clients, or the program dials through a hook of its client. So the two are taken in
// turns: a renewal that failed altogether is followed by one over the other.
type lifeline struct {
	shared redis.UniversalClient // the program's

	mu      sync.Mutex
	own     *redis.Client // nil: not needed yet, or not to be had
	detour  bool          // the next renewal goes over the program's
	warming bool          // a connection is being made
	closed  bool
}

const (
	// A renewal ends after a second at the latest, and so does what it waits for.
	lifelineTimeout = time.Second

	// To connect and to be greeted takes several round trips, of which a renewal has time for
	// one. So a connection that a renewal could not wait for is made without it.
	warmTimeout = 5 * time.Second

	// Two, so that a batch which hangs does not hold up the next one.
	lifelineConns = 2
)

// renewals is the client for the next renewal.
func (l *lifeline) renewals() redis.UniversalClient {
	l.mu.Lock()
	defer l.mu.Unlock()

	if l.detour || !l.connect() {
		return l.shared
	}
	return l.own
}

// releases is the client for a release: the program's, which costs no further connection,
// unless that would have to wait for one.
func (l *lifeline) releases() redis.UniversalClient {
	if !drained(l.shared) {
		return l.shared
	}
	l.mu.Lock()
	defer l.mu.Unlock()

	if !l.connect() {
		return l.shared
	}
	return l.own
}

// failed says that a renewal over that client brought nothing.
func (l *lifeline) failed(over redis.UniversalClient) {
	l.mu.Lock()
	defer l.mu.Unlock()

	if l.detour = over != l.shared; l.detour {
		l.startWarm()
	}
}

// prepare makes the connection for the first renewal, which is some time ahead.
func (l *lifeline) prepare() {
	l.mu.Lock()
	defer l.mu.Unlock()

	if l.own == nil && l.connect() {
		l.startWarm()
	}
}

func (l *lifeline) startWarm() {
	if !l.warming && !l.closed {
		l.warming = true
		go l.warm(l.own)
	}
}

// warm makes a connection, so that a later renewal finds it ready.
func (l *lifeline) warm(own *redis.Client) {
	ctx, cancel := context.WithTimeout(context.Background(), warmTimeout)
	defer cancel()
	_ = own.Ping(ctx).Err() // the next renewal finds out
	l.mu.Lock()
	defer l.mu.Unlock()

	l.warming = false
}

// connect reports whether there is a client of our own, which it makes if it can. That
// dials nothing yet.
func (l *lifeline) connect() bool {
	program, ok := l.shared.(*redis.Client)
	if l.own != nil || l.closed || !ok || behindSentinel(program) {
		return l.own != nil
	}
	o := *program.Options()
	o.PoolSize, o.MaxActiveConns, o.MaxIdleConns, o.MinIdleConns, o.PipelinePoolSize = lifelineConns, lifelineConns, 0, 0, -1
	o.DialTimeout, o.PoolTimeout = warmTimeout, lifelineTimeout
	o.ContextTimeoutEnabled = true // a call that is given up frees its connection
	o.MaxRetries, o.DialerRetries = -1, 1
	o.Limiter = nil // the program's breaker is about the program's commands
	o.ClientSideCacheConfig, o.ClientSideCache, o.PushNotificationProcessor = nil, nil, nil
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	l.own = redis.NewClient(&o)
	return true
}

func (l *lifeline) close() {
	l.mu.Lock()
	defer l.mu.Unlock()

	l.closed = true
	if l.own != nil {
		_ = l.own.Close()
		l.own = nil
	}
}

// behindSentinel reports a client that Sentinel tells where the master is. It closes its
// connections when that moves; those of another client would stay with the old master,
// which goes on to say yes until it is told that it is none.
func behindSentinel(c *redis.Client) bool { return c.Options().Addr == "FailoverClient" }

// drained reports whether a command would have to wait for somebody else's to end.
func drained(client redis.UniversalClient) bool {
	c, ok := client.(*redis.Client)
	if !ok {
		return false
	}
	stats := c.PoolStats()
	return stats.IdleConns == 0 && int(stats.TotalConns) >= c.Options().PoolSize
}
