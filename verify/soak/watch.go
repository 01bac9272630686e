//go:build unix

package soak

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/lease"
	"github.com/redlatch/redlatch/verify/history"
)

// watch writes down to whom the server gives the names, as their keys show. It looks so
// often that what it misses is shorter than what the judgement allows for.
func (r *run) watch(ctx context.Context) error {
	conn, err := r.dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	ask := []string{"MGET"}
	for _, name := range r.names {
		ask = append(ask, keyOf(name))
	}
	last := make([]string, len(r.names))
	for pause(ctx, 10*time.Millisecond) {
		reply, err := conn.Do(ask...)
		if err != nil {
			return err
		}
		now := history.Now()
		values, _ := reply.([]any)
		for i, v := range values {
			value, _ := v.(string)
			if value == last[i] {
				continue
			}
			last[i] = value
			r.log.Add(history.Record{
				Kind: history.Seen, Name: r.names[i], Process: processOf(value), At: now, Note: value,
			})
		}
	}
	return nil
}

// processOf is who a lock's value says has it: workers are the owners of their locks.
func processOf(value string) string {
	token, err := lease.ParseToken(value)
	if err != nil {
		return ""
	}
	return token.Owner.Name
}
