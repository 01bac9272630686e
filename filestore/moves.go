package filestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"iter"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/internal/elapsed"
	"github.com/redlatch/redlatch/lease"
)

func (s *Store) Join(ctx context.Context, name string, c lease.Claim) (lease.Standing, error) {
	asked := elapsed.Now()
	if err := s.takes(c.TTL); err != nil {
		return lease.Standing{}, err
	}
	var st lease.Standing
	err := s.move(ctx, name, func(r *record, now time.Time, dead func(string) bool) (err error) {
		if st, err = r.queue.Join(c, now); err != nil {
			return err
		}
		if st.State == lease.Held || st.State == lease.Waiting {
			s.bind(r, c.ID, st, dead)
		}
		return nil
	})
	if err != nil {
		return lease.Standing{}, err
	}
	s.note(c.ID, st, c.TTL)
	if c.Vote {
		st.Node = s.node()
	}
	return dated(st, asked), nil
}

// Renew makes one step a name, however many of its claims are renewed.
func (s *Store) Renew(ctx context.Context, refs []driver.Ref) []driver.Outcome {
	asked := elapsed.Now()
	out := make([]driver.Outcome, len(refs))
	var names []string
	byName := make(map[string][]int)
	for i, ref := range refs {
		if err := s.takes(ref.TTL); err != nil {
			out[i].Err = err
			continue
		}
		if byName[ref.Name] == nil {
			names = append(names, ref.Name)
		}
		byName[ref.Name] = append(byName[ref.Name], i)
	}
	for _, name := range names {
		err := s.move(ctx, name, func(r *record, now time.Time, dead func(string) bool) error {
			for _, i := range byName[name] {
				t := refs[i].Token
				st := r.queue.Renew(t.ID, t.Ticket, refs[i].TTL, refs[i].Fence, now)
				if st.State != lease.Gone {
					s.bind(r, t.ID, st, dead)
				}
				out[i].Standing = dated(st, asked)
			}
			return nil
		})
		for _, i := range byName[name] {
			if err != nil {
				out[i] = driver.Outcome{Err: err}
				continue
			}
			s.note(refs[i].Token.ID, out[i].Standing, refs[i].TTL)
		}
	}
	return out
}

// bind makes the claim live in this Store too; one that is held and detached lives in none.
func (s *Store) bind(r *record, id string, st lease.Standing, dead func(string) bool) {
	if s.o.Detached && st.State == lease.Held {
		r.bound[id] = nil
		return
	}
	r.bind(id, s.self.id, dead)
}

func (s *Store) Leave(ctx context.Context, name, id string, ticket uint64, seal lease.Seal) (lease.Standing, error) {
	asked := elapsed.Now()
	if err := s.usable(); err != nil {
		return lease.Standing{}, err
	}
	var st lease.Standing
	var stores []string
	err := s.move(ctx, name, func(r *record, now time.Time, _ func(string) bool) error {
		stores = r.bound[id]
		st = r.leave(id, ticket, seal, now)
		return nil
	})
	if err != nil {
		return lease.Standing{}, err
	}
	if st.State != lease.Gone || ticket == 0 {
		s.note(id, lease.Standing{}, 0)
	}
	st.Once = true
	if st.State == lease.Held && seal.By != "" {
		s.tellBroken(driver.Notice{Name: name, ID: id, Seal: seal}, stores)
	}
	return dated(st, asked), nil
}

func (s *Store) Inspect(ctx context.Context, name string) (lease.Queue, error) {
	if err := s.ready(ctx); err != nil {
		return lease.Queue{}, err
	}
	r, _, err := s.glance(name)
	if err != nil {
		return lease.Queue{}, err
	}
	return r.queue, nil
}

// Names reads one file per name in use, or that was when its processes died.
func (s *Store) Names(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if err := s.ready(ctx); err != nil {
			yield("", err)
			return
		}
		files, err := s.files()
		if err != nil {
			yield("", err)
			return
		}
		for _, file := range files {
			if !mayBegin(file, prefix) {
				continue
			}
			if err := s.ready(ctx); err != nil {
				yield("", err)
				return
			}
			name, used, err := s.look(file)
			if err != nil {
				yield("", err)
				return
			}
			if used && strings.HasPrefix(name, prefix) && !yield(name, nil) {
				return
			}
		}
	}
}

// look returns the name whose state is in the file, and whether it is in use.
func (s *Store) look(file string) (name string, used bool, err error) {
	r, _, err := s.read(file, "")
	if err != nil || r == nil {
		return "", false, err
	}
	r.settle(s.dying(), r.clock(s.host))
	return r.name, r.used(), nil
}

// takes refuses what no call can ask for.
func (s *Store) takes(ttl time.Duration) error {
	if ttl < minTTL {
		return &driver.Fault{Kind: driver.Refused, Err: fmt.Errorf("a TTL of %v: %v is the shortest here", ttl, minTTL)}
	}
	return s.usable()
}

// ready is for calls that only read, and so never wait.
func (s *Store) ready(ctx context.Context) error {
	if err := s.usable(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return &driver.Fault{Kind: driver.Unavailable, Err: ctx.Err()}
	}
	return nil
}

// move is one step of a name: whatever changes it goes through here. f is told what is
// there after everything dead and expired has fallen out; its error is move's, and what
// fell out is kept all the same.
func (s *Store) move(ctx context.Context, name string, f func(r *record, now time.Time, dead func(string) bool) error) error {
	sh := s.shardOf(name)
	if err := s.enter(ctx, sh); err != nil {
		return err
	}
	news, err := s.step(sh, name, f)
	sh.exit()
	s.tell(news) // a process that is killed here has told nobody: they find out by their looks
	return err
}

func (s *Store) step(sh *shard, name string, f func(*record, time.Time, func(string) bool) error) ([]news, error) {
	file := fileName(name)
	r, body, err := s.read(file, name)
	if err != nil {
		return nil, err
	}
	if r == nil {
		r = newRecord(name, sh.floor())
	}
	before := r.marks()
	now, dead := r.clock(s.host), s.dying()
	r.settle(dead, now)
	refused := f(r, now, dead)
	grows := len(r.queue.Claims) > len(before)
	if err := s.save(sh, file, r, body, grows); err != nil {
		return nil, err
	}
	return r.news(before), refused
}

// glance is what a step would find, without the lock: files are replaced whole, so what
// is read is one state. stale says that a step would change it.
func (s *Store) glance(name string) (r *record, stale bool, err error) {
	if err := s.inPlace(); err != nil {
		return nil, false, err
	}
	r, body, err := s.read(fileName(name), name)
	if err != nil {
		return nil, false, err
	}
	if r == nil {
		r = newRecord(name, 0)
		r.queue.Advance(r.clock(s.host))
		return r, false, nil
	}
	r.settle(s.dying(), r.clock(s.host))
	_, after, err := r.text()
	return r, !bytes.Equal(body, after), err
}

// read returns nil for a name that has no file.
func (s *Store) read(file, name string) (r *record, body []byte, err error) {
	text, err := s.text(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, s.fault(namesDir, file, err)
	}
	r, body, err = parse(name, text)
	if err == nil && fileName(r.name) != file {
		err = fmt.Errorf("it belongs to the name %q", r.name)
	}
	if err != nil {
		return nil, nil, s.misplaced(file, err)
	}
	return r, body, nil
}

// text is the content of a name's file.
func (s *Store) text(file string) ([]byte, error) {
	f, err := openPlain(s.names, file, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}

// save writes what has changed. The new state is a file of its own until it is complete
// and takes the old one's place in one step; one such file per shard is enough, and what
// a killed process left of it is removed.
//
// A name that nobody uses any more loses its file in the same step. That is not only
// tidy: file systems write a replaced file to the disk soon, and one that comes and goes
// never.
//
// Where nothing else is left, a record that does not grow may use what was set aside.
func (s *Store) save(sh *shard, file string, r *record, body []byte, grows bool) error {
	if body == nil && r.queue.Idle() {
		return nil
	}
	if body != nil && forgettable(r) {
		return s.forget(sh, file, r)
	}
	head, after, err := r.text()
	if err != nil {
		return s.fault(namesDir, file, err)
	}
	if bytes.Equal(after, body) {
		return nil
	}
	temp := string(mark) + sh.file
	write := func() error { return s.write(temp, append(head, after...), r.lasting()) }
	if grows {
		err = write()
	} else {
		err = s.spend(write)
	}
	if err == nil {
		err = s.names.Rename(temp, file)
	}
	if err == nil && r.lasting() {
		err = s.syncNames()
	}
	if err != nil {
		return s.fault(namesDir, file, err)
	}
	return nil
}

// forgettable reports whether the name needs no file. One whose tickets are ahead of the
// clock keeps it: the note in the lock file would drag all names of the shard along.
func forgettable(r *record) bool {
	return r.queue.Idle() && r.queue.Last < uint64(max(r.queue.Now.UnixMicro(), 0))
}

// forget removes the file. The last ticket is noted first: in between there are both.
func (s *Store) forget(sh *shard, file string, r *record) error {
	err := s.spend(func() error { return sh.raise(r.queue.Last) })
	if err == nil {
		err = s.names.Remove(file)
	}
	if err != nil {
		return s.fault(namesDir, file, err)
	}
	return nil
}

func (s *Store) write(file string, text []byte, lasting bool) error {
	const anew = os.O_WRONLY | os.O_CREATE | os.O_EXCL
	f, err := s.names.OpenFile(file, anew, 0o600)
	if errors.Is(err, fs.ErrExist) {
		if err = s.names.Remove(file); err == nil {
			f, err = s.names.OpenFile(file, anew, 0o600)
		}
	}
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err == nil && lasting {
		err = f.Sync()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		_ = s.names.Remove(file) // it takes room
	}
	return err
}

func (s *Store) syncNames() error {
	d, err := s.names.Open(".")
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// files lists the names' files.
func (s *Store) files() ([]string, error) {
	if err := s.inPlace(); err != nil {
		return nil, err
	}
	d, err := s.names.Open(".")
	if err != nil {
		return nil, s.fault(namesDir, "", err)
	}
	defer d.Close()
	all, err := d.Readdirnames(-1)
	if err != nil {
		return nil, s.fault(namesDir, "", err)
	}
	all = slices.DeleteFunc(all, func(file string) bool { return file[0] == mark })
	slices.Sort(all)
	return all, nil
}

// dated completes an answer: when it was asked for, and what Wait compares.
func dated(st lease.Standing, asked lease.Instant) lease.Standing {
	st.Asked = asked
	h := fnv.New64a()
	fmt.Fprintf(h, "%d %d %s", st.State, st.Ticket, sealed(st.Seal))
	st.Rev = h.Sum64() | 1 // never 0: whoever has seen nothing yet gets an answer at once
	return st
}

// sealed tells one seal from another, whatever is left of its time.
func sealed(s lease.Seal) string {
	if !s.Closed() {
		return ""
	}
	return fmt.Sprintf("%q %q %q %q", s.Value, s.Victim, s.By, s.Reason)
}
