//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filestore

import (
	"testing"
	"time"

	"github.com/redlatch/redlatch/lease"
)

// A lock and its release, by one process alone.
func BenchmarkLockUnlock(b *testing.B) {
	s, err := New(b.TempDir(), Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	for b.Loop() {
		c := claim(time.Minute)
		if st, err := s.Join(b.Context(), "n", c); err != nil || st.State != lease.Held {
			b.Fatal(st.State, err)
		}
		if _, err := s.Leave(b.Context(), "n", c.ID, 0, lease.Seal{}); err != nil {
			b.Fatal(err)
		}
	}
}

// What a process pays that opens the store for one lock, as the command does.
func BenchmarkOpenClose(b *testing.B) {
	dir := b.TempDir()
	for b.Loop() {
		s, err := New(dir, Options{})
		if err != nil {
			b.Fatal(err)
		}
		s.Close()
	}
}
