package redisstore

import (
	"testing"

	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/drivertest"
)

func TestConformance(t *testing.T) {
	server := serve(t)
	drivertest.Run(t, "redisstore", func(t *testing.T) func() driver.Store {
		return func() driver.Store { return newStore(t, server.Addr(), Options{}) }
	})
}
