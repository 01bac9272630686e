package driver

import (
	"sync"

	"github.com/redlatch/redlatch/lease"
)

// Notice says that a claim was broken, and in its Seal by whom and why.
type Notice struct {
	Name, ID string
	Seal     lease.Seal
}

// Notices is the Notify of a Store: embed it, and Tell it what is heard. The zero value
// is ready.
type Notices struct {
	mu        sync.RWMutex
	listeners map[*func(Notice)]struct{}
}

// Notify implements [Store].
func (n *Notices) Notify(f func(Notice)) (stop func()) {
	n.mu.Lock()
	defer n.mu.Unlock()

	if n.listeners == nil {
		n.listeners = make(map[*func(Notice)]struct{})
	}
	n.listeners[&f] = struct{}{}
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()

		delete(n.listeners, &f)
	}
}

// Tell calls everybody who listens.
func (n *Notices) Tell(notice Notice) {
	n.mu.RLock()
	defer n.mu.RUnlock()

	for f := range n.listeners {
		(*f)(notice)
	}
}

// Wanted reports whether anybody listens.
func (n *Notices) Wanted() bool {
	n.mu.RLock()
	defer n.mu.RUnlock()

	return len(n.listeners) > 0
}
