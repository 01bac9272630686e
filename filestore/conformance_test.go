//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filestore_test

import (
	"testing"

	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/drivertest"
	"github.com/redlatch/redlatch/filestore"
)

func TestConformance(t *testing.T) {
	drivertest.Run(t, "filestore", func(t *testing.T) func() driver.Store {
		dir := t.TempDir()
		return func() driver.Store {
			s, err := filestore.New(dir, filestore.Options{})
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
	})
}
