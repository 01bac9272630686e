package redlatch

import (
	"sync"
	"time"

	"github.com/redlatch/redlatch/lease"
)

// Observer is told what happens to a Locker's locks, for metrics and logs. Each
// function may be nil, and may call the Locker and its holds. Late, Lost and Released come
// one after the other in a goroutine of their own, so that a slow one delays no renewal, no
// release and no other hold's end; the others are called in the goroutine in which it
// happens. Close waits for all of them.
type Observer struct {
	Waiting  func(Event) // an acquire begins to wait: Holder, Ahead
	Waited   func(Event) // it has ended to wait, with the lock or without: Waited, Err
	Acquired func(Event) // a hold begins: Fence, Waited
	Renewed  func(Event) // a renewal was acknowledged: Slack is the trust that was left when it was
	Late     func(Event) // renewals are late, less than a third of the lease is left: Slack, Err is what the last one said
	Lost     func(Event) // a hold ended by itself: Held, Err is a *LostError
	Released func(Event) // an Unlock ended: Held, Err
}

// Event is one thing that happened. Only the fields named at the Observer's functions
// are set, and Name always.
type Event struct {
	Name   string
	Fence  uint64
	Holder *lease.Holder
	Ahead  int
	Waited time.Duration
	Held   time.Duration
	Slack  time.Duration
	Err    error
}

func (o *Observer) waiting(e Event)  { call(o.Waiting, e) }
func (o *Observer) waited(e Event)   { call(o.Waited, e) }
func (o *Observer) acquired(e Event) { call(o.Acquired, e) }
func (o *Observer) renewed(e Event)  { call(o.Renewed, e) }
func (o *Observer) late(e Event)     { call(o.Late, e) }
func (o *Observer) lost(e Event)     { call(o.Lost, e) }
func (o *Observer) released(e Event) { call(o.Released, e) }

func call(f func(Event), e Event) {
	if f != nil {
		f(e)
	}
}

// tidings tells one thing after the other in a goroutine that runs while there is
// something to tell. Whoever has it told never waits.
type tidings struct {
	mu    sync.Mutex
	queue []func()
	told  chan struct{} // closed when all is; nil: nothing is to be told
}

func (t *tidings) tell(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.queue = append(t.queue, f)
	if t.told == nil {
		t.told = make(chan struct{})
		go t.run()
	}
}

func (t *tidings) run() {
	for {
		t.mu.Lock()
		if len(t.queue) == 0 {
			close(t.told)
			t.told = nil
			t.mu.Unlock()
			return
		}
		next := t.queue
		t.queue = nil
		t.mu.Unlock()
		for _, f := range next {
			f()
		}
	}
}

// wait returns when all that was to be told has been.
func (t *tidings) wait() {
	t.mu.Lock()
	told := t.told
	t.mu.Unlock()
	if told != nil {
		<-told
	}
}
