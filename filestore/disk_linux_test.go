package filestore

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/lease"
)

func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	mount(t, dir, 0, "size=256k")
	s := newStore(t, dir)
	mine, queued := claim(time.Hour), claim(time.Hour)
	held := join(t, s, "n", mine)
	ballast := filepath.Join(dir, "ballast")
	f, err := os.Create(ballast)
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = f.Write(make([]byte, 512))
	}
	f.Close()

	var fault *driver.Fault
	if _, err := s.Join(t.Context(), "n", queued); !errors.As(err, &fault) || fault.Kind != driver.Unavailable || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("join on a full disk: %v", err)
	}
	q, err := s.Inspect(t.Context(), "n")
	if err != nil || len(q.Claims) != 1 || q.Claims[0].ID != mine.ID {
		t.Errorf("after it: %+v, %v", q.Claims, err)
	}
	if st := leave(t, s, "n", mine.ID, lease.Seal{}); st.State != lease.Held {
		t.Errorf("release on a full disk: %+v", st)
	}
	os.Remove(ballast)
	if st := join(t, s, "n", queued); st.State != lease.Held || st.Ticket <= held.Ticket {
		t.Errorf("afterwards: %+v, fence before %d", st, held.Ticket)
	}
}

func TestReadOnlyDisk(t *testing.T) {
	dir := t.TempDir()
	mount(t, dir, syscall.MS_RDONLY, "")
	_, err := New(filepath.Join(dir, "locks"), Options{})
	var fault *driver.Fault
	if !errors.As(err, &fault) || fault.Kind != driver.Denied || !errors.Is(err, syscall.EROFS) {
		t.Errorf("got %v", err)
	}
}

// mount puts a small file system of its own at dir. That takes a right which a developer
// may not have on a shared machine; CI has it, and there nothing is skipped.
func mount(t *testing.T, dir string, flags uintptr, options string) {
	t.Helper()
	err := syscall.Mount("tmpfs", dir, "tmpfs", flags, options)
	if errors.Is(err, syscall.EPERM) && os.Getenv("CI") == "" {
		t.Skipf("mounting a file system needs a right that is missing here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
}
