package filestore

import (
	"path/filepath"
)

// mark is what a waiting party would notice of its claim.
type claimMark struct {
	held   bool
	sealed string
	stores []string
}

// news is a claim whose standing has changed by a step, and the Stores to tell.
type news struct {
	id     string
	stores []string
}

func (r *record) marks() map[string]claimMark {
	m := make(map[string]claimMark, len(r.queue.Claims))
	closed := sealed(r.queue.Seal())
	for _, e := range r.queue.Claims {
		m[e.ID] = claimMark{held: e.Held(), sealed: closed, stores: r.bound[e.ID]}
	}
	return m
}

func (r *record) news(before map[string]claimMark) []news {
	var out []news
	after := r.marks()
	for id, was := range before {
		is, here := after[id]
		if !here || is.held != was.held || is.sealed != was.sealed {
			out = append(out, news{id, was.stores})
		}
	}
	return out
}

// tell wakes those who wait for the claims: one message to each process concerned, none
// to all the others that wait for the same name.
func (s *Store) tell(all []news) {
	for _, n := range all {
		s.waiting.wakeClaim(n.id) // whatever Store joined it
		for _, store := range n.stores {
			if store != s.self.id {
				writePipe(filepath.Join(s.dir, wakeDir, store), []byte(n.id+"\n"))
			}
		}
	}
}
