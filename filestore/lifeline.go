package filestore

import (
	"errors"
	"os"

	"github.com/redlatch/redlatch/driver"
)

// Lifeline returns what keeps this Store alive in the eyes of the others: as long as
// anybody has it open, the claims that were joined here do not fall out before their
// leases end, also when this process is dead. It is for a process that shall end what
// works under a lock before the next one gets it. The caller closes it.
func (s *Store) Lifeline() (*os.File, error) {
	if err := s.usable(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()

	// The last one is the one that has the name.
	f, err := duplicate(s.self.open[len(s.self.open)-1])
	if err != nil {
		return nil, &driver.Fault{Kind: driver.Unavailable, Err: errors.Join(errLifeline, err)}
	}
	return f, nil
}

var errLifeline = errors.New("the Store's own file cannot be opened once more")
