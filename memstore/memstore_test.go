package memstore_test

import (
	"testing"

	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/drivertest"
	"github.com/redlatch/redlatch/memstore"
)

func TestConformance(t *testing.T) {
	drivertest.Run(t, "memstore", func(*testing.T) func() driver.Store {
		store := memstore.New()
		return func() driver.Store { return store }
	})
}
