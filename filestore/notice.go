package filestore

import (
	"encoding/json"
	"path/filepath"

	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/lease"
)

// pipeWhole is how long a message may be to arrive whole or not at all, with POSIX.
const pipeWhole = 512

// noticeText is a notice in a pipe. Bytes, because JSON would replace what is not UTF-8.
type noticeText struct {
	Name   []byte `json:"name"`
	ID     string `json:"id"`
	By     []byte `json:"by,omitempty"`
	Reason []byte `json:"reason,omitempty"`
}

// Notify implements [driver.Store].
func (s *Store) Notify(f func(driver.Notice)) (stop func()) {
	s.hearken()
	return s.Notices.Notify(f)
}

// tellBroken tells the Stores in which the claim lives that it was broken.
func (s *Store) tellBroken(n driver.Notice, stores []string) {
	s.Tell(n) // whatever Store of this process it was: each hears its own
	line := noticeLine(n)
	for _, store := range stores {
		if store != s.self.id && line != nil {
			writePipe(filepath.Join(s.dir, wakeDir, store), line)
		}
	}
}

// noticeLine leaves out what does not fit: then the next renewal tells it. It begins
// with what no claim ID does.
func noticeLine(n driver.Notice) []byte {
	text := noticeText{Name: []byte(n.Name), ID: n.ID, By: []byte(n.Seal.By), Reason: []byte(n.Seal.Reason)}
	for _, cut := range []*[]byte{nil, &text.Reason, &text.By} {
		if cut != nil {
			*cut = nil
		}
		line, err := json.Marshal(text)
		if err == nil && len(line) < pipeWhole {
			return append(line, '\n')
		}
	}
	return nil
}

func (s *Store) heard(line []byte) {
	var n noticeText
	if json.Unmarshal(line, &n) != nil {
		return
	}
	s.Tell(driver.Notice{Name: string(n.Name), ID: n.ID, Seal: lease.Seal{Victim: n.ID, By: string(n.By), Reason: string(n.Reason)}})
}
