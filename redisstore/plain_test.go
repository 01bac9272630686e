//go:build unix

package redisstore

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/drivertest"
	"github.com/redlatch/redlatch/internal/servertest"
)

// plainRights are those that the documentation of Plain names; they have no script, and
// nothing of pub/sub.
func plainRights(t *testing.T) []string { return documented(t, "plain.go", "plain") }

// newPlain is a Plain of a user who has the documented rights and those besides.
func newPlain(t *testing.T, server *servertest.RedisServer, addr string, more ...string) *Plain {
	t.Helper()
	mustDo(t, server, append(append([]string{"ACL", "SETUSER", "plain", "reset", "on", ">secret"}, plainRights(t)...), more...)...)
	return plainWith(t, &redis.Options{Addr: addr, Username: "plain", Password: "secret"})
}

func plainWith(t *testing.T, options *redis.Options) *Plain {
	t.Helper()
	client := redis.NewClient(options)
	p, err := NewPlain(client, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Close()
		client.Close()
	})
	return p
}

func TestPlainConformance(t *testing.T) {
	server := serve(t)
	drivertest.Run(t, "redisstore/plain", func(t *testing.T) func() driver.Store {
		newPlain(t, server, server.Addr())
		return func() driver.Store {
			return plainWith(t, &redis.Options{Addr: server.Addr(), Username: "plain", Password: "secret"})
		}
	})
}
