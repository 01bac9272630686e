package filestore

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/internal/elapsed"
	"github.com/redlatch/redlatch/lease"
)

const (
	noPushPoll = 20 * time.Millisecond // where pipes cannot be had
	fullLook   = 2 * time.Second       // a line is read so often even if its file looks unchanged
)

// waiters is who waits in this Store. However many they are, one goroutine reads the
// pipe and one looks around; they start with the first who has to wait, or to be told.
type waiters struct {
	pipe *os.File // nil: there is none

	mu      sync.Mutex
	lines   map[string]*line
	running bool
	hearing bool
	closed  bool
	kick    chan struct{} // capacity 1: a line is due earlier than was thought
}

// line is the waiters of one name. All of it is waiters.mu's; what is known about the
// file is written by the goroutine that looks around only, which may read it as it likes.
type line struct {
	waiting []*waiter
	due     lease.Instant // something happens by itself then

	info    fs.FileInfo   // the file as last read; nil: not read
	full    lease.Instant // read it then in any case
	holders []string      // the Stores that the holders live in
}

type waiter struct {
	id   string
	rev  uint64
	look chan struct{} // capacity 1
}

func (w *waiter) wake() {
	select {
	case w.look <- struct{}{}:
	default:
	}
}

// Wait looks, and sleeps while nothing has changed. It is entered in the list before it
// looks, so a change after the look wakes it. Who is woken because the claim is held now
// renews it in the same step: the answer's lease counts from this call.
func (s *Store) Wait(ctx context.Context, name, id string, rev uint64) (lease.Standing, error) {
	if err := s.usable(); err != nil {
		return lease.Standing{}, err
	}
	w := s.enlist(name, id, rev)
	defer s.waiting.drop(name, w)
	for {
		st, err := s.standing(ctx, name, id, rev)
		switch {
		case ctx.Err() != nil:
			return lease.Standing{}, &driver.Fault{Kind: driver.Unavailable, Err: ctx.Err()}
		case err != nil:
			return lease.Standing{}, err
		case st.Rev != rev:
			return st, nil
		}
		select {
		case <-w.look:
		case <-ctx.Done():
			return lease.Standing{}, &driver.Fault{Kind: driver.Unavailable, Err: ctx.Err()}
		case <-s.ctx.Done():
			return lease.Standing{}, s.usable()
		}
	}
}

// standing is where the claim stands. Only when something must be written, which is news
// of a hold or what others have to be told, does it take the name's lock.
func (s *Store) standing(ctx context.Context, name, id string, rev uint64) (lease.Standing, error) {
	asked := elapsed.Now()
	r, stale, err := s.glance(name)
	if err != nil {
		return lease.Standing{}, err
	}
	st := dated(r.queue.Standing(id, r.queue.Now), asked)
	if !stale && (st.State != lease.Held || st.Rev == rev) {
		s.waiting.expect(name, r)
		return st, nil
	}
	var ttl time.Duration
	err = s.move(ctx, name, func(r *record, now time.Time, dead func(string) bool) error {
		st = r.queue.Standing(id, now)
		if st.State == lease.Held && slices.Contains(r.bound[id], s.self.id) {
			ttl = r.entry(id).TTL
			st = r.queue.Renew(id, 0, ttl, 0, now)
			s.bind(r, id, st, dead)
		}
		s.waiting.expect(name, r)
		return nil
	})
	if ttl > 0 && err == nil {
		s.note(id, st, ttl)
	}
	return dated(st, asked), err
}

// listen makes the pipe through which other processes wake this one's waiters.
func (s *Store) listen() (err error) {
	s.waiting.lines = make(map[string]*line)
	s.waiting.kick = make(chan struct{}, 1)
	s.waiting.pipe, err = makePipe(filepath.Join(s.dir, wakeDir, s.self.id))
	return err
}

func (s *Store) enlist(name, id string, rev uint64) *waiter {
	q := &s.waiting
	w := &waiter{id: id, rev: rev, look: make(chan struct{}, 1)}

	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.lines[name]
	if l == nil {
		l = &line{due: lease.Never}
		q.lines[name] = l
	}
	l.waiting = append(l.waiting, w)
	if !q.running && !q.closed {
		q.running = true
		s.work.Go(s.lookAround)
	}
	s.hearLocked()
	return w
}

// hearken begins to read the pipe.
func (s *Store) hearken() {
	s.waiting.mu.Lock()
	defer s.waiting.mu.Unlock()

	s.hearLocked()
}

func (s *Store) hearLocked() {
	q := &s.waiting
	if !q.hearing && !q.closed && q.pipe != nil {
		q.hearing = true
		s.work.Go(s.hear)
	}
}

func (q *waiters) drop(name string, w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()

	l := q.lines[name]
	l.waiting = slices.DeleteFunc(l.waiting, func(o *waiter) bool { return o == w })
	if len(l.waiting) == 0 {
		delete(q.lines, name)
	}
}

// expect notes when the name will change by itself.
func (q *waiters) expect(name string, r *record) {
	due := lease.Never
	if t := r.due(); !t.IsZero() {
		due = elapsed.Now().Add(t.Sub(r.queue.Now))
	}

	q.mu.Lock()
	defer q.mu.Unlock()
	if l := q.lines[name]; l != nil {
		l.due = due
		select {
		case q.kick <- struct{}{}:
		default:
		}
	}
}

func (q *waiters) wakeClaim(id string) {
	q.mu.Lock()
	defer q.mu.Unlock()

	for _, l := range q.lines {
		for _, w := range l.waiting {
			if w.id == id {
				w.wake()
			}
		}
	}
}

// hear reads the pipe: a claim ID a line, or a notice. Writers who find it full leave it,
// so a full read means that more may have been said: everybody looks.
func (s *Store) hear() {
	q := &s.waiting
	buf := make([]byte, 8192)
	var rest []byte
	for {
		n, err := q.pipe.Read(buf)
		if err != nil {
			return // closed
		}
		rest = append(rest, buf[:n]...)
		for {
			line, more, ok := bytes.Cut(rest, []byte("\n"))
			if !ok {
				break
			}
			if bytes.HasPrefix(line, []byte("{")) {
				s.heard(line)
			} else {
				q.wakeClaim(string(line))
			}
			rest = more
		}
		if n == len(buf) {
			q.wakeAll()
		}
	}
}

func (q *waiters) wakeAll() {
	q.mu.Lock()
	defer q.mu.Unlock()

	for _, l := range q.lines {
		for _, w := range l.waiting {
			w.wake()
		}
	}
}

func (q *waiters) close() {
	q.mu.Lock()
	defer q.mu.Unlock()

	if q.pipe != nil && !q.closed {
		_ = q.pipe.Close()
	}
	q.closed = true
}

// lookAround finds what no message tells: a holder whose process has died, a lease or a
// seal that has ended, and messages that were lost.
func (s *Store) lookAround() {
	q := &s.waiting
	poll := s.o.Poll
	if !s.push {
		poll = min(poll, noPushPoll)
	}
	next := elapsed.Now().Add(poll)
	for {
		pause := time.NewTimer(q.pause(next))
		select {
		case <-pause.C:
		case <-q.kick:
		case <-s.ctx.Done():
			pause.Stop()
			return
		}
		pause.Stop()
		now := elapsed.Now()
		round := now >= next
		if round {
			next = now.Add(poll)
			if s.inPlace() != nil {
				q.wakeAll() // everybody sees it, too
				continue
			}
		}
		for name, l := range q.all() {
			if round || now >= l.dueAt(q) {
				s.lookAt(name, l, now)
			}
		}
	}
}

// pause is how long nothing needs a look; for ever while nobody waits.
func (q *waiters) pause(next lease.Instant) time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()

	if len(q.lines) == 0 {
		return time.Hour
	}
	for _, l := range q.lines {
		next = min(next, l.due)
	}
	return max(next.Sub(elapsed.Now()), 0)
}

func (q *waiters) all() map[string]*line {
	q.mu.Lock()
	defer q.mu.Unlock()

	out := make(map[string]*line, len(q.lines))
	for name, l := range q.lines {
		out[name] = l
	}
	return out
}

func (l *line) dueAt(q *waiters) lease.Instant {
	q.mu.Lock()
	defer q.mu.Unlock()

	return l.due
}

// lookAt wakes those of a name's waiters who have something to see. One is enough to
// carry out what is due: the step tells the others.
func (s *Store) lookAt(name string, l *line, now lease.Instant) {
	info, err := s.names.Lstat(fileName(name))
	same := err == nil && l.info != nil && os.SameFile(info, l.info) &&
		info.ModTime().Equal(l.info.ModTime()) && info.Size() == l.info.Size()
	if same && now < l.full && now < l.dueAt(&s.waiting) && !slices.ContainsFunc(l.holders, s.dead) {
		return
	}
	r, stale, err := s.glance(name)
	if err != nil {
		s.waiting.wakeLine(l, func(*waiter) bool { return true }) // they see it, too
		return
	}
	if stale {
		info = nil // whoever is woken may give up before it is done: look again
	}
	s.waiting.found(l, info, now, r)
	s.waiting.expect(name, r)
	first := stale
	s.waiting.wakeLine(l, func(w *waiter) bool {
		wake := first || dated(r.queue.Standing(w.id, r.queue.Now), 0).Rev != w.rev
		first = false
		return wake
	})
}

// found notes what a look has found.
func (q *waiters) found(l *line, info fs.FileInfo, now lease.Instant, r *record) {
	q.mu.Lock()
	defer q.mu.Unlock()

	l.info, l.full, l.holders = info, now.Add(fullLook), nil
	for _, e := range r.queue.Holders() {
		l.holders = append(l.holders, r.bound[e.ID]...)
	}
}

func (q *waiters) wakeLine(l *line, which func(*waiter) bool) {
	q.mu.Lock()
	defer q.mu.Unlock()

	for _, w := range l.waiting {
		if which(w) {
			w.wake()
		}
	}
}
