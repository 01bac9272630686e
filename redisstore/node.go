package redisstore

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/lease"
)

// durability remembers of one run of a server whether it keeps what it acknowledges.
type durability struct {
	mu      sync.Mutex
	node    string
	at      time.Time
	durable bool
}

// durableFor is how long it is believed: both settings can be changed while it runs.
const durableFor = 10 * time.Second

// Node implements [driver.Store].
func (s *Store) Node(ctx context.Context) (lease.Node, error) {
	type answer struct{ info, clock string }
	got, err := bound(ctx, func() (answer, error) {
		pipe := s.client.Pipeline()
		info, clock := pipe.Info(ctx, "server"), pipe.Time(ctx)
		if _, err := pipe.Exec(ctx); err != nil {
			return answer{}, err
		}
		return answer{info.Val(), clock.Val().Format(time.RFC3339Nano)}, nil
	})
	if err != nil {
		return lease.Node{}, fault(err)
	}
	node := parseNode(got.info)
	node.Clock, _ = time.Parse(time.RFC3339Nano, got.clock)
	node.Durable = s.isDurable(ctx, node.ID)
	return node, nil
}

func parseNode(info string) lease.Node {
	seconds, _ := strconv.ParseUint(infoField(info, "uptime_in_seconds"), 10, 32)
	return lease.Node{ID: infoField(info, "run_id"), Uptime: time.Duration(seconds) * time.Second}
}

func infoField(info, key string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, key+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// isDurable reports whether that run of the server writes every command to disk before
// it answers. Where that cannot be read, because the user has no right to CONFIG, it
// is not known to, and false. The run_id is asked along: the calls may go over another
// connection, and that to another server.
func (s *Store) isDurable(ctx context.Context, node string) bool {
	d := &s.durability
	d.mu.Lock()
	defer d.mu.Unlock()

	if d.node == node && time.Since(d.at) < durableFor {
		return d.durable
	}
	durable, err := bound(ctx, func() (bool, error) {
		pipe := s.client.Pipeline()
		server, persistence := pipe.Info(ctx, "server"), pipe.Info(ctx, "persistence")
		fsync := pipe.ConfigGet(ctx, "appendfsync")
		_, _ = pipe.Exec(ctx)
		if server.Err() != nil || infoField(server.Val(), "run_id") != node {
			return false, redis.Nil
		}
		return infoField(persistence.Val(), "aof_enabled") == "1" && fsync.Val()["appendfsync"] == "always", nil
	})
	if err == nil {
		d.node, d.at, d.durable = node, time.Now(), durable
	}
	return durable
}
