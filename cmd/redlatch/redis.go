package main

import (
	"context"
	"crypto/tls"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/redlatch/redlatch/cmd/redlatch/internal/storeurl"
	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/redisstore"
)

// redisClient is a client that does once what it is told: how long to go on is for
// the lock to decide, and a call that is made again after its time can take a lock
// that nobody waits for any more.
func redisClient(u storeurl.URL, password string, config *tls.Config) *redis.Client {
	redis.SetLogger(silent{})
	network := "tcp"
	if u.Socket {
		network = "unix"
	}
	return redis.NewClient(&redis.Options{
		Network:               network,
		Addr:                  u.Addr,
		Username:              u.User,
		Password:              password,
		DB:                    u.DB,
		DialTimeout:           u.DialTimeout,
		TLSConfig:             config,
		MaxRetries:            -1,
		DialerRetries:         1,
		ContextTimeoutEnabled: true,
		DisableIdentity:       true, // one round trip less, and one right
		MaintNotificationsConfig: &maintnotifications.Config{
			Mode: maintnotifications.ModeDisabled, // likewise
		},
	})
}

// keyed is a store that says under which keys it keeps a name.
type keyed interface {
	driver.Store
	Keys(name string) []redisstore.Key
}

func redisStore(client *redis.Client, u storeurl.URL) (keyed, error) {
	o := redisstore.Options{Prefix: u.Prefix, NoPrefix: u.HasPrefix && u.Prefix == ""}
	if u.Plain {
		return redisstore.NewPlain(client, o)
	}
	return redisstore.New(client, o)
}

// silent keeps the client from writing to stderr on its own: what matters comes back
// as an error.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}
