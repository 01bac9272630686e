package filestore

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"time"
)

// shards is how many names can change at once. One lock file per name would have to be
// deleted with its name, while others may just be opening it; these are never deleted.
const shards = 64

// shard is this Store's handle of one lock file.
type shard struct {
	file string        // in the Store's directory
	turn chan struct{} // capacity 1: the kernel's lock belongs to the Store, not to a goroutine

	// What follows belongs to whoever has the turn.
	open *os.File
	info fs.FileInfo
}

func (s *Store) shardOf(name string) *shard {
	h := fnv.New32a()
	_, _ = io.WriteString(h, name) // a hash takes everything
	return &s.shards[h.Sum32()%shards]
}

// The kernel has no lock that is waited for with a deadline, so a Store that finds the
// file locked tries again. What is done under the lock takes microseconds; the pauses
// grow so that a process that was stopped in the middle costs the others little.
const (
	firstPause = 20 * time.Microsecond
	lastPause  = 500 * time.Microsecond
)

// enter takes the shard's lock. The error is a fault of kind Unavailable when ctx ends
// before: a process that does not run may have the lock.
func (s *Store) enter(ctx context.Context, sh *shard) error {
	if ctx.Err() != nil {
		return s.late(ctx, sh.file)
	}
	select {
	case sh.turn <- struct{}{}:
	case <-ctx.Done():
		return s.late(ctx, sh.file)
	case <-s.ctx.Done():
		return s.usable()
	}
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		ok, err := s.try(sh)
		if ok {
			return nil
		}
		if err == nil && !sleep(ctx, pause/2+rand.N(pause)) {
			err = s.late(ctx, sh.file)
		}
		if err != nil {
			<-sh.turn
			return s.fault("", sh.file, err)
		}
	}
}

// try takes the lock if it is free. The file that is locked must be the one that others
// find: after somebody has deleted it they lock another one.
func (s *Store) try(sh *shard) (bool, error) {
	if sh.open == nil {
		f, err := openPlain(s.top, sh.file, os.O_RDWR|os.O_CREATE)
		if err != nil {
			return false, err
		}
		info, err := f.Stat()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			err = f.Chmod(0o600) // whoever can open it can lock it
		}
		if err != nil {
			_ = f.Close()
			return false, err
		}
		sh.open, sh.info = f, info
	}
	ok, err := tryLock(sh.open)
	if !ok || err != nil {
		return false, err
	}
	found, err := s.top.Lstat(sh.file)
	if err == nil && os.SameFile(found, sh.info) {
		if err := s.inPlace(); err != nil {
			_ = unlock(sh.open)
			return false, err
		}
		if found.Size() == 0 {
			_, _ = sh.open.WriteAt(note(0), 0) // room for the note while there is any: a release must not need it
		}
		return true, nil
	}
	sh.close() // the next try opens what is there now
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return false, err
}

// inPlace reports a directory that is not at its path any more: others use what is there
// now, and a lock here would exclude none of them.
func (s *Store) inPlace() error {
	found, err := os.Stat(s.dir)
	if err == nil && !os.SameFile(found, s.here) {
		err = &os.PathError{Op: "open", Path: s.dir, Err: fs.ErrNotExist}
	}
	if err != nil {
		return s.fault("", "", err)
	}
	return nil
}

// exit gives the lock back.
func (sh *shard) exit() {
	if err := unlock(sh.open); err != nil {
		sh.close() // the lock goes with it
	}
	<-sh.turn
}

func (sh *shard) close() {
	_ = sh.open.Close()
	sh.open = nil
}

// floor is what the tickets of names without a file lie below or at: the last tickets of
// names that were forgotten are noted in the lock file. A damaged note counts for
// nothing, the clock is ahead of it anyhow unless somebody has set it back.
func (sh *shard) floor() uint64 {
	var b [21]byte
	n, _ := sh.open.ReadAt(b[:], 0)
	digits, _, ok := strings.Cut(string(b[:n]), "\n")
	last, err := strconv.ParseUint(digits, 10, 64)
	if !ok || err != nil {
		return 0
	}
	return last
}

// raise notes that a name with that last ticket is forgotten. The note has one length,
// so that it is overwritten in place.
func (sh *shard) raise(last uint64) error {
	if last <= sh.floor() {
		return nil
	}
	_, err := sh.open.WriteAt(note(last), 0)
	return err
}

func note(last uint64) []byte { return fmt.Appendf(nil, "%020d\n", last) }

// sleep reports whether the whole time has passed before ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
