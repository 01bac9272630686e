package filestore

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/lease"
)

func newStore(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := New(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func claim(ttl time.Duration) lease.Claim { return lease.Claim{ID: lease.NewID(), TTL: ttl} }

// patient is the time for what has to happen soon; only a hang uses all of it.
func patient(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func join(t *testing.T, s *Store, name string, c lease.Claim) lease.Standing {
	t.Helper()
	st, err := s.Join(patient(t), name, c)
	if err != nil {
		t.Fatalf("join %q: %v", name, err)
	}
	return st
}

func leave(t *testing.T, s *Store, name, id string, seal lease.Seal) lease.Standing {
	t.Helper()
	st, err := s.Leave(patient(t), name, id, seal)
	if err != nil {
		t.Fatalf("leave %q: %v", name, err)
	}
	return st
}

func wait(t *testing.T, s *Store, name string, id string, st lease.Standing) lease.Standing {
	t.Helper()
	st, err := s.Wait(patient(t), name, id, st.Rev)
	if err != nil {
		t.Fatalf("wait %q: %v", name, err)
	}
	return st
}

func TestTwoStoresOfOneProcessExcludeEachOther(t *testing.T) {
	dir := t.TempDir()
	a, b := newStore(t, dir), newStore(t, dir)
	first, second := claim(time.Minute), claim(time.Minute)
	held := join(t, a, "n", first)
	if held.State != lease.Held {
		t.Fatalf("first: %v", held.State)
	}
	queued := join(t, b, "n", second)
	if queued.State != lease.Waiting || queued.Holder == nil || queued.Holder.ID != first.ID {
		t.Fatalf("second: %+v", queued)
	}
	leave(t, a, "n", first.ID, lease.Seal{})
	got := wait(t, b, "n", second.ID, queued)
	if got.State != lease.Held || got.Ticket <= held.Ticket {
		t.Fatalf("second after the release: %+v, first had ticket %d", got, held.Ticket)
	}
}

func TestClaimsOfADeadStoreFallOutAtOnce(t *testing.T) {
	dir := t.TempDir()
	a, b := newStore(t, dir), newStore(t, dir)
	dead, live := claim(time.Hour), claim(time.Hour)
	join(t, a, "n", dead)
	queued := join(t, b, "n", live)
	for _, f := range a.self.open {
		f.Close() // what the kernel does when a process ends
	}
	if got := wait(t, b, "n", live.ID, queued); got.State != lease.Held {
		t.Fatalf("got %+v", got)
	}
}

func TestClosedStoreKeepsItsClaims(t *testing.T) {
	dir := t.TempDir()
	a, b := newStore(t, dir), newStore(t, dir)
	join(t, a, "n", claim(300*time.Millisecond))
	a.Close()
	mine := claim(time.Minute)
	queued := join(t, b, "n", mine)
	if queued.State != lease.Waiting {
		t.Fatalf("a holder's Store was closed and another one is %v", queued.State)
	}
	if got := wait(t, b, "n", mine.ID, queued); got.State != lease.Held {
		t.Fatalf("after the lease: %+v", got)
	}
	if _, err := a.Join(t.Context(), "n", claim(time.Minute)); !errors.Is(err, errClosed) {
		t.Errorf("join on a closed Store: %v", err)
	}
}

func TestCloseWithNothingHeldLeavesNoFileOfItsOwn(t *testing.T) {
	dir := t.TempDir()
	s := newStore(t, dir)
	c := claim(time.Minute)
	join(t, s, "n", c)
	leave(t, s, "n", c.ID, lease.Seal{})
	s.Close()
	for _, sub := range []string{aliveDir, wakeDir} {
		if files, err := os.ReadDir(filepath.Join(dir, sub)); err != nil || len(files) > 0 {
			t.Errorf("%s: %v, %v", sub, files, err)
		}
	}
}

func TestDirectoryAndFilesAreTheUsersAlone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	s := newStore(t, dir)
	join(t, s, "n", claim(time.Minute))
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestDamagedFileKeepsTheLockClosed(t *testing.T) {
	dir := t.TempDir()
	s := newStore(t, dir)
	tests := []struct {
		what, text string
		is         error
	}{
		{"empty", "", errNotOurs},
		{"cut short", "redlatch-queue 1 5\n{\"name\":", errBroken},
		{"something else", "hello\n", errNotOurs},
		{"a newer form", "redlatch-queue 2 5 6\nwhatever\n", lease.ErrNewer},
		{"another name's", "redlatch-queue 1 5\n{\"name\":\"other\"}\n", nil},
	}
	for _, test := range tests {
		t.Run(test.what, func(t *testing.T) {
			path := filepath.Join(dir, namesDir, fileName("n"))
			if err := os.WriteFile(path, []byte(test.text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := s.Join(t.Context(), "n", claim(time.Minute))
			var fault *driver.Fault
			if !errors.As(err, &fault) || fault.Kind != driver.Misplaced || !strings.Contains(err.Error(), path) {
				t.Fatalf("got %v", err)
			}
			if test.is != nil && !errors.Is(err, test.is) {
				t.Errorf("got %v, want %v", err, test.is)
			}
			if text, _ := os.ReadFile(path); string(text) != test.text {
				t.Errorf("the file was changed to %q", text)
			}
		})
	}
}

func TestRemovedDirectoryIsAnError(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	s := newStore(t, dir)
	for os.RemoveAll(dir) != nil { // housekeeping may just be making a file
		if t.Context().Err() != nil {
			t.Fatal("cannot remove the directory")
		}
	}
	newStore(t, dir) // another process makes it again
	_, err := s.Join(t.Context(), "n", claim(time.Minute))
	var fault *driver.Fault
	if !errors.As(err, &fault) || fault.Kind != driver.Unavailable || !strings.Contains(err.Error(), dir) {
		t.Fatalf("got %v", err)
	}
}

func TestSymbolicLinksAreNotFollowed(t *testing.T) {
	dir := t.TempDir()
	s := newStore(t, dir)
	target := filepath.Join(dir, namesDir, "target")
	if err := os.WriteFile(target, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	sh := s.shardOf("n").file
	for _, test := range []struct {
		link, to string
		refused  bool // else it is removed
	}{
		{filepath.Join(namesDir, "n"), "target", true},
		{sh, filepath.Join(namesDir, "target"), true},
		{filepath.Join(namesDir, string(mark)+sh), "target", false},
	} {
		link := filepath.Join(dir, test.link)
		os.Remove(link)
		if err := os.Symlink(test.to, link); err != nil {
			t.Fatal(err)
		}
		if st, err := s.Join(t.Context(), "n", claim(time.Minute)); (err != nil) != test.refused {
			t.Errorf("%s: %v, %v", test.link, st.State, err)
		}
		os.Remove(link)
	}
	if text, _ := os.ReadFile(target); string(text) != "precious" {
		t.Errorf("the target was changed to %q", text)
	}
}

func TestCallsEndWithTheirContextWhileTheLockFileIsTaken(t *testing.T) {
	dir := t.TempDir()
	s, other := newStore(t, dir), newStore(t, dir)
	sh := other.shardOf("n")
	if err := other.enter(t.Context(), sh); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	_, err := s.Join(ctx, "n", claim(time.Minute))
	var fault *driver.Fault
	if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &fault) || fault.Kind != driver.Unavailable ||
		!strings.Contains(err.Error(), filepath.Join(dir, sh.file)) {
		t.Fatalf("got %v", err)
	}
	sh.exit()
	join(t, s, "n", claim(time.Minute))
}

// A lock file that was deleted is locked by nobody else: its lock is worth nothing.
func TestDeletedLockFileIsNoticed(t *testing.T) {
	dir := t.TempDir()
	s := newStore(t, dir)
	sh := s.shardOf("n")
	join(t, s, "n", claim(time.Minute))
	if err := os.Remove(filepath.Join(dir, sh.file)); err != nil {
		t.Fatal(err)
	}
	if err := s.enter(patient(t), sh); err != nil {
		t.Fatal(err)
	}
	defer sh.exit()
	if now, err := os.Lstat(filepath.Join(dir, sh.file)); err != nil || !os.SameFile(now, sh.info) {
		t.Errorf("locked a file that nobody finds: %v", err)
	}
}
