package filestore

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/lease"
)

func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	mount(t, dir, 0, "size=256k,mode=700")
	s := newStore(t, dir)
	mine, queued := claim(time.Hour), claim(time.Hour)
	held := join(t, s, "n", mine)
	empty := fill(t, dir)
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
	empty()
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
	mountKind(t, "tmpfs", dir, flags, options)
}

func mountKind(t *testing.T, kind, dir string, flags uintptr, options string) {
	t.Helper()
	err := syscall.Mount(kind, dir, kind, flags, options)
	if errors.Is(err, syscall.EPERM) && os.Getenv("CI") == "" {
		t.Skipf("mounting a file system needs a right that is missing here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
}

// fill leaves no room for anything on the disk that dir is on, until empty is called.
func fill(t *testing.T, dir string) (empty func()) {
	t.Helper()
	path := filepath.Join(dir, "ballast")
	f, err := os.Create(path)
	for err == nil {
		_, err = f.Write(make([]byte, 512))
	}
	f.Close()
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	return func() { os.Remove(path) }
}

// Who holds a lock, also beside others, goes on, releases it and lets the next one in,
// from another process too; and there is room for the next full disk afterwards.
func TestFL07FullDiskLetsHoldersRenewAndRelease(t *testing.T) {
	dir := t.TempDir()
	mount(t, dir, 0, "size=512k,mode=700")
	a, b := newStore(t, dir), newStore(t, dir)
	settled(t, a)
	for round := range 2 {
		var holders, waiters []lease.Claim
		var standing []lease.Standing
		names := []string{"one", "two", "three", "four", "five"}
		for _, name := range names {
			h, w := claim(time.Hour), claim(time.Hour)
			h.Owner.Name, w.Owner.Name = strings.Repeat("h", 60), strings.Repeat("w", 60)
			standing = append(standing, join(t, a, name, h))
			join(t, b, name, w)
			holders, waiters = append(holders, h), append(waiters, w)
		}
		empty := fill(t, dir)

		var fault *driver.Fault
		_, err := b.Join(patient(t), "new", claim(time.Minute))
		if !errors.As(err, &fault) || fault.Kind != driver.Unavailable || !errors.Is(err, syscall.ENOSPC) ||
			!strings.Contains(err.Error(), filepath.Join(dir, namesDir, "new")) || !strings.Contains(err.Error(), "make room") {
			t.Errorf("round %d: join: %v", round, err)
		}
		other, err := New(dir, Options{}) // a process that comes to release by token
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		over := make(chan struct{})
		var coming sync.WaitGroup
		coming.Go(func() { // others come, and set aside what is left
			for {
				select {
				case <-over:
					return
				case <-time.After(time.Microsecond):
					b.setAside()
				}
			}
		})
		for i, name := range names {
			ref := driver.Ref{Name: name, Token: lease.Token{ID: holders[i].ID, Ticket: standing[i].Ticket}, TTL: 2 * time.Hour}
			if out := a.Renew(patient(t), []driver.Ref{ref}); out[0].Err != nil || out[0].State != lease.Held {
				t.Errorf("round %d: renewal of %s: %+v", round, name, out[0])
			}
		}
		for i, name := range names {
			if st := leave(t, other, name, holders[i].ID, lease.Seal{}); st.State != lease.Held {
				t.Errorf("round %d: release of %s: %+v", round, name, st)
			}
			if q, err := b.Inspect(patient(t), name); err != nil || len(q.Holders()) != 1 || q.Holders()[0].ID != waiters[i].ID {
				t.Errorf("round %d: %s after the release: %+v, %v", round, name, q.Claims, err)
			}
		}
		close(over)
		coming.Wait()
		other.Close()
		empty()
		for i, name := range names {
			leave(t, b, name, waiters[i].ID, lease.Seal{})
		}
		a.setAside() // as its housekeeping does every minute
	}
	if files, err := os.ReadDir(filepath.Join(dir, namesDir)); err != nil || len(files) > 0 {
		t.Errorf("left in the directory: %v, %v", files, err)
	}
}

// No inode is the same as no room.
func TestFL07NoFilesLeft(t *testing.T) {
	dir := t.TempDir()
	mount(t, dir, 0, "size=1m,nr_inodes=90,mode=700")
	a, b := newStore(t, dir), newStore(t, dir)
	h, w := claim(time.Hour), claim(time.Hour)
	join(t, a, "n", h)
	join(t, b, "n", w)
	settled(t, a)
	var err error
	for i := 0; err == nil; i++ {
		err = os.WriteFile(filepath.Join(dir, "ballast"+strconv.Itoa(i)), nil, 0o600)
	}
	if st, err := b.Join(patient(t), "n", claim(time.Minute)); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("join: %+v, %v", st, err)
	}
	if st := leave(t, a, "n", h.ID, lease.Seal{}); st.State != lease.Held {
		t.Errorf("release: %+v", st)
	}
	if q, err := b.Inspect(patient(t), "n"); err != nil || len(q.Holders()) != 1 || q.Holders()[0].ID != w.ID {
		t.Errorf("after the release: %+v, %v", q.Claims, err)
	}
}
