package filestore

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/internal/elapsed"
	"github.com/redlatch/redlatch/lease"
)

const (
	namesDir = "names"
	aliveDir = "alive"
	wakeDir  = "wake"
	bootFile = "boot"
)

// Options of a Store. The zero value is the default.
type Options struct {
	// Poll is how often a process that waits looks whether the holder's process is still
	// alive; default 200 ms. All other news comes by itself, and is found by the look if
	// it got lost.
	Poll time.Duration

	// Detached is for a program that leaves its locks to others. What it gets or renews
	// lives by its lease alone from then on and by no process, to be renewed and left by
	// whoever has the token; it ends with the host's boot. A claim that waits still
	// falls out with the process.
	Detached bool

	// AnyFileSystem takes a directory on a file system of which other hosts may have a
	// part. It excludes on this host only all the same, and as soon as another host uses
	// the directory, not even there.
	AnyFileSystem bool

	// OthersMayWrite takes a directory that others own or may write to, or could replace
	// by another. It is for a container in which that cannot be had otherwise: whoever
	// can write there can take locks away from their holders.
	OthersMayWrite bool
}

// minTTL is the shortest lease: shorter ones are over before a process gets its turn.
const minTTL = 10 * time.Millisecond

// Store is a driver.Store in a directory. Several may use one directory, in one process
// or in many. The directory is the one that New has opened: if it is removed, the Store's
// calls fail, also when another one has been made in its place.
type Store struct {
	driver.Notices

	dir  string
	o    Options
	host host
	push bool

	nodeID string // the directory's, for this boot

	top, names, alive, wake *os.Root

	here fs.FileInfo // of the directory that is open as top

	shards  [shards]shard
	self    self
	waiting waiters

	ctx  context.Context // ends with Close
	end  context.CancelFunc
	work sync.WaitGroup

	mu     sync.Mutex
	own    map[string]lease.Instant // claims that were joined here, and when their leases are over
	closed bool
}

var _ driver.Store = (*Store)(nil)

// host is the machine's clocks.
type host struct {
	boot   string               // changes with every boot; "" where that is not known
	uptime func() time.Duration // since then, with the time asleep
	wall   func() time.Time
}

// New opens the directory, making it (for the user alone) if need be. It is refused if
// somebody else could do something to its locks, see the package comment.
func New(dir string, o Options) (*Store, error) { return open(dir, o, thisHost()) }

func open(dir string, o Options, h host) (_ *Store, err error) {
	if supported != nil {
		return nil, &driver.Fault{Kind: driver.Refused, Err: supported}
	}
	full, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("lock directory %q: %w", dir, err)
	}
	o.Poll = cmp.Or(o.Poll, 200*time.Millisecond)
	if o.Poll < 0 {
		return nil, fmt.Errorf("a Poll of %v is negative", o.Poll)
	}
	s := &Store{dir: full, o: o, host: h, own: make(map[string]lease.Instant)}
	s.ctx, s.end = context.WithCancel(context.Background())
	s.self.id = lease.NewID()
	for i := range s.shards {
		s.shards[i] = shard{file: fmt.Sprintf("lock-%02x", i), turn: make(chan struct{}, 1)}
	}
	defer func() {
		if err != nil {
			s.end()
			s.closeFiles()
		}
	}()
	if err := s.openRoots(); err != nil {
		return nil, err
	}
	if err := s.firstInBoot(); err != nil {
		return nil, err
	}
	// The pipe comes first: who sees a Store alive may tell it something.
	s.push = s.listen() == nil
	if err := s.birth(); err != nil {
		return nil, err
	}
	s.work.Go(s.housekeeping)
	return s, nil
}

func (s *Store) openRoots() (err error) {
	if err := s.checkWay(); err != nil {
		return err
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return s.fault("", "", err)
	}
	if err := s.checkWay(); err != nil { // somebody may have made a part of it first
		return err
	}
	if s.top, err = os.OpenRoot(s.dir); err != nil {
		return s.fault("", "", err)
	}
	if s.here, err = s.admit(s.top, ""); err != nil {
		return err
	}
	for _, sub := range []struct {
		name string
		root **os.Root
	}{{namesDir, &s.names}, {aliveDir, &s.alive}, {wakeDir, &s.wake}} {
		if err := s.top.Mkdir(sub.name, 0o700); err != nil && !os.IsExist(err) {
			return s.fault("", sub.name, err)
		}
		// The others find the pipes by their paths, so a link is not a directory here.
		if info, err := s.top.Lstat(sub.name); err == nil && !info.IsDir() {
			return s.fault("", sub.name, notPlain(sub.name))
		}
		if *sub.root, err = s.top.OpenRoot(sub.name); err != nil {
			return s.fault("", sub.name, err)
		}
		if _, err := s.admit(*sub.root, sub.name); err != nil {
			return err
		}
	}
	return nil
}

// checkWay is checkPath as the user wants it.
func (s *Store) checkWay() error {
	if s.o.OthersMayWrite {
		return nil
	}
	if err := checkPath(s.dir); err != nil {
		return s.fault("", "", err)
	}
	return nil
}

// admit looks at a directory after it has been opened: what is looked at is what is used.
func (s *Store) admit(root *os.Root, sub string) (fs.FileInfo, error) {
	d, err := root.Open(".")
	if err != nil {
		return nil, s.fault("", sub, err)
	}
	defer d.Close()
	info, err := d.Stat()
	if err != nil {
		return nil, s.fault("", sub, err)
	}
	path := filepath.Join(s.dir, sub)
	if !s.o.OthersMayWrite {
		if err := checkOwn(path, info); err != nil {
			return nil, err
		}
		// We have made it for the user alone; a chmod -R of the whole has opened it.
		if sub != "" && info.Mode().Perm()&0o077 != 0 {
			if err := d.Chmod(0o700); err != nil {
				return nil, s.fault("", sub, err)
			}
		}
	}
	switch kind, err := remote(d); {
	case err != nil:
		return nil, s.fault("", sub, err)
	case kind != "" && !s.o.AnyFileSystem:
		return nil, &driver.Fault{Kind: driver.Refused, Err: fmt.Errorf("lock directory %s: it is on %s, "+
			"where other hosts may use it too, and files exclude on one host only; use a local directory, or a server for several hosts", path, kind)}
	}
	return info, nil
}

// openPlain opens a file of the directory that is a file and the user's. An os.Root keeps
// links from leading out of it, and follows the others whatever the flags say; a pipe or
// a device would be waited for. Nobody else can change it between the look and the open.
func openPlain(root *os.Root, file string, flag int) (*os.File, error) {
	info, err := root.Lstat(file)
	if err == nil {
		if !info.Mode().IsRegular() {
			return nil, notPlain(file)
		}
		if err := foreign(info); err != nil {
			return nil, &os.PathError{Op: "open", Path: file, Err: err}
		}
	}
	return root.OpenFile(file, flag, 0o600)
}

func notPlain(file string) error { return &os.PathError{Op: "open", Path: file, Err: syscall.ELOOP} }

func (s *Store) Features() driver.Features {
	return driver.Features{
		Fence: true, FIFO: true, Seal: true, Push: s.push, WaitersExpire: true, HostOnly: true,
		Modes:  []lease.Mode{lease.Exclusive, lease.Shared, lease.Permit},
		MinTTL: minTTL,
	}
}

// Node is the host. It is durable although a grant is not synced to the disk: a crash of
// the host ends the processes that were granted anything.
func (s *Store) Node(ctx context.Context) (lease.Node, error) {
	if err := s.usable(); err != nil {
		return lease.Node{}, err
	}
	return s.node(), nil
}

func (s *Store) node() lease.Node {
	return lease.Node{ID: s.nodeID, Uptime: s.host.uptime(), Durable: true, Clock: s.host.wall()}
}

// usable reports a Store that is closed.
func (s *Store) usable() error {
	if s.ctx.Err() != nil {
		return &driver.Fault{Kind: driver.Unavailable, Err: errClosed}
	}
	return nil
}

// Close ends the Store's own work. Claims that were joined here stay until they leave or
// their leases end, even though nobody renews them, or until the process ends: whoever
// closes a Store too early must not let others in beside a holder.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.mu.Unlock()

	s.end()
	s.waiting.close()
	s.work.Wait()
	if left := s.ownLeft(); left > 0 {
		time.AfterFunc(left, s.closeFiles)
		return nil
	}
	s.closeFiles()
	return nil
}

// ownLeft is how long the last claim that was joined here may still live.
func (s *Store) ownLeft() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()

	now, left := elapsed.Now(), time.Duration(0)
	for _, until := range s.own {
		left = max(left, until.Sub(now))
	}
	return left
}

// note remembers until when a claim counts on this Store's life.
func (s *Store) note(id string, st lease.Standing, ttl time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()

	switch {
	case st.State == lease.Waiting, st.State == lease.Held && !s.o.Detached:
		s.own[id] = max(s.own[id], elapsed.Now().Add(ttl))
	default:
		delete(s.own, id)
	}
}

// closeFiles gives up what open has opened, as far as it came.
func (s *Store) closeFiles() {
	for i := range s.shards {
		sh := &s.shards[i]
		sh.turn <- struct{}{} // for good
		if sh.open != nil {
			sh.close()
		}
	}
	s.waiting.close()
	if s.alive != nil && s.wake != nil {
		s.death()
	}
	for _, root := range []*os.Root{s.top, s.names, s.alive, s.wake} {
		if root != nil {
			_ = root.Close()
		}
	}
}
