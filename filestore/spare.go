package filestore

import (
	"crypto/rand"
	"os"
	"time"
)

const (
	spareFile = "spare"
	spareSize = 16 << 10

	spendTries = 10
)

// On a full disk nobody new can get a lock, and that is an error like any other. But who
// holds one must be able to renew and to release it, and to let the next one in: all of
// that writes a new record before the old one goes. For this some room is set aside.

// setAside makes the spare file if it is not there, and leaves it if that does not work.
func (s *Store) setAside() {
	f, err := s.top.OpenFile(spareFile, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return
	}
	room := make([]byte, spareSize)
	_, _ = rand.Read(room) // zeros take no room on some file systems
	_, err = f.Write(room)
	if closed := f.Close(); err != nil || closed != nil {
		_ = s.top.Remove(spareFile)
	}
}

// spend carries f out; where there is no room for it, once more without the spare file.
// Another process may just be making that file again, and give its room back in a moment:
//
//	A finds the disk full and removes the file
//	B comes, and writes a new one
//	A finds the disk full
//	B finds it full too, and removes its own
func (s *Store) spend(f func() error) error {
	err := f()
	for range spendTries {
		if !noRoom(err) {
			return err
		}
		_ = s.top.Remove(spareFile) // if somebody else did, the room may be ours all the same
		if err = f(); noRoom(err) {
			time.Sleep(time.Millisecond)
		}
	}
	return err
}
