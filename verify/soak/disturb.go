//go:build unix

package soak

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/servertest"
	"github.com/redlatch/redlatch/verify/history"
)

// director is the name of the run's own connections to the server: they are not killed.
const director = "director"

// disturb breaks something, time and again, until ctx ends.
func (r *run) disturb(ctx context.Context, random *rand.Rand) error {
	conn, err := r.dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	upTo := func(least, most float64) time.Duration {
		return time.Duration((least + random.Float64()*(most-least)) * float64(r.cfg.TTL))
	}
	for pause(ctx, upTo(0.1, 0.9)) {
		s := r.slots[random.IntN(len(r.slots))]
		var err error
		switch random.IntN(10) {
		case 0, 1:
			err = s.kill(ctx, upTo(0, 1))
		case 2, 3, 4, 5:
			// At least half of the processes run, so that there are holders to overlap with.
			if r.stopped() < len(r.slots)/2 {
				err = s.stop(ctx, upTo(1.1, 3))
			}
		case 6, 7:
			err = r.killConnections(conn, "one connection", random, func(fields string) bool { return true })
		case 8:
			err = r.killConnections(conn, "all subscriptions", nil, func(fields string) bool { return strings.Contains(fields, " sub=2 ") })
		case 9:
			err = r.killConnections(conn, "all connections", nil, func(fields string) bool { return true })
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *run) dial() (*servertest.Conn, error) {
	conn, err := servertest.Dial(r.server.Socket())
	if err != nil {
		return nil, err
	}
	if _, err := conn.Do("CLIENT", "SETNAME", director); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// killConnections cuts the clients' connections that match, or one of them at random.
func (r *run) killConnections(conn *servertest.Conn, what string, one *rand.Rand, match func(fields string) bool) error {
	list, err := conn.Do("CLIENT", "LIST")
	if err != nil {
		return err
	}
	var ids []string
	text, _ := list.(string)
	for line := range strings.Lines(text) {
		id, fields, _ := strings.Cut(strings.TrimPrefix(line, "id="), " ")
		if !strings.Contains(fields, " name="+director+" ") && match(fields) {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	if one != nil {
		ids = []string{ids[one.IntN(len(ids))]}
	}
	now := history.Now()
	for _, id := range ids {
		// An error that the server answers means that this one is gone already.
		if _, err := conn.Do("CLIENT", "KILL", "ID", id); err != nil && !isReply(err) {
			return err
		}
	}
	r.log.Add(history.Record{Kind: history.Cut, At: now, Note: what})
	r.count("cuts of " + what)
	return nil
}

func isReply(err error) bool {
	_, ok := errors.AsType[servertest.ReplyError](err)
	return ok
}

func (r *run) count(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()

	r.done[what]++
}

func (r *run) stopped() int {
	n := 0
	for _, s := range r.slots {
		if s.isStopped() {
			n++
		}
	}
	return n
}
