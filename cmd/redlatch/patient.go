package main

import (
	"io"
	"sync"
	"time"
)

// hearing is how long a message may take to be read before we go on without it.
const hearing = 200 * time.Millisecond

// patient is where the messages of a run go. Whoever should read them may have stopped
// reading: a pager, a terminal after Ctrl-S, a log collector that hangs. That must keep no
// command running and no lock held, so a message that is not taken is written later, by a
// goroutine, and lost if we end before.
type patient struct {
	w io.Writer

	mu    sync.Mutex
	queue [][]byte
	done  chan struct{} // closed when all is written; nil: nothing is to be
}

// kept is how many messages wait for a reader. What comes then is lost: the first ones say
// what happened.
const kept = 100

func (p *patient) Write(text []byte) (int, error) {
	done, waits := p.add(text)
	if waits {
		return len(text), nil // nobody has read the one before
	}
	late := time.NewTimer(hearing)
	defer late.Stop()
	select {
	case <-done:
	case <-late.C:
	}
	return len(text), nil
}

// add reports whether there are others before it.
func (p *patient) add(text []byte) (done <-chan struct{}, waits bool) {
	p.mu.Lock()
	defer p.mu.Unlock()

	if waits = p.done != nil; !waits {
		p.done = make(chan struct{})
		go p.write()
	}
	if len(p.queue) < kept {
		p.queue = append(p.queue, append([]byte(nil), text...))
	}
	return p.done, waits
}

func (p *patient) write() {
	for {
		p.mu.Lock()
		if len(p.queue) == 0 {
			close(p.done)
			p.done = nil
			p.mu.Unlock()
			return
		}
		next := p.queue[0]
		p.queue = p.queue[1:]
		p.mu.Unlock()
		_, _ = p.w.Write(next) // whether anybody reads it is not our business
	}
}
