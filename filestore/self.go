package filestore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/redlatch/redlatch/lease"
)

// self is this Store in the eyes of the others: a file that is locked while it lives.
// The lock belongs to this opening of the file, so two Stores of one process are two, and
// closing some other file does not end it. Go opens files so that children do not inherit
// them: what a holder starts does not keep its locks.
type self struct {
	id   string
	open []*os.File // more than one when the file had to be made again
}

// birth makes the file. It is locked before it gets its name: whoever sees it by that
// name and unlocked may conclude that the Store is dead.
func (s *Store) birth() error {
	temp := string(mark) + s.self.id
	var f *os.File
	err := s.spend(func() (err error) {
		f, err = s.alive.OpenFile(temp, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		return err
	})
	if err != nil {
		return s.fault(aliveDir, temp, err)
	}
	fmt.Fprintf(f, "pid %d\n", os.Getpid()) // for people; a release does without on a full disk
	ok, err := tryLock(f)
	if err == nil && !ok {
		err = errors.New("somebody else has locked it")
	}
	if err == nil {
		err = s.alive.Rename(temp, s.self.id)
	}
	if err != nil {
		_ = f.Close()
		_ = s.alive.Remove(temp)
		return s.fault(aliveDir, temp, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.self.open = append(s.self.open, f)
	return nil
}

// stay keeps the file where it is: those who tidy up temporary directories go by its
// time, and one that was deleted is made again.
func (s *Store) stay() error {
	now := time.Now()
	err := s.alive.Chtimes(s.self.id, now, now)
	if errors.Is(err, fs.ErrNotExist) {
		err = s.birth()
	}
	return err
}

// death ends the life in the eyes of the others.
func (s *Store) death() {
	_ = s.alive.Remove(s.self.id)
	_ = s.wake.Remove(s.self.id)
	for _, f := range s.self.open {
		_ = f.Close()
	}
}

// dead reports whether a Store does not live any more. In doubt it does: a claim too
// many ends with its lease, one too few would let two in. Identifiers are never used
// again, so a file that is not there, or not locked, is so for good.
func (s *Store) dead(id string) bool {
	if id == s.self.id {
		return false
	}
	f, err := openPlain(s.alive, id, os.O_RDONLY)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	defer f.Close()
	ok, err := tryShared(f)
	return ok && err == nil
}

// dying is dead with a memory, for one look at a name.
func (s *Store) dying() func(string) bool {
	known := make(map[string]bool)
	return func(id string) bool {
		d, ok := known[id]
		if !ok {
			d = s.dead(id)
			known[id] = d
		}
		return d
	}
}

// validStore keeps what stands in a file from becoming a path.
func validStore(id string) bool { return lease.Claim{ID: id, TTL: 1}.Check() == nil }
