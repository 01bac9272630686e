package redlatch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"sync"
	"time"

	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/lease"
)

// Owner says to people who holds a lock.
type Owner = lease.Owner

// OnUnavailable is what an acquire does when the store does not answer.
type OnUnavailable uint8

const (
	Fail OnUnavailable = iota // return ErrUnavailable after the first call that got no answer
	Wait                      // go on until ctx, MaxWait or MaxAttempts end it
)

// Config is what all locks of a Locker have in common. The zero value works.
type Config struct {
	Prefix     string          // stands before every name: "prod/"
	Owner      Owner           // default: user@host, host, process, program
	Drift      time.Duration   // trust ends that much before 1 % and 2 ms less than the lease do
	Observer   Observer        // told what happens
	MaxWaiters int             // so many may wait for one name, over all processes; default: no bound
	Require    driver.Features // New refuses a store that has less than this

	OnUnavailable OnUnavailable

	// KeepOnClose leaves the locks that are held at Close in the store, where they run
	// out or are taken up with Resume. Default: Close releases them.
	KeepOnClose bool
}

// Locker takes locks in one store. It is safe for concurrent use. All its holds are
// renewed by one goroutine, which runs only while there are any.
type Locker struct {
	store    driver.Store
	features driver.Features
	cfg      Config

	keeping  keeping
	leavings leavings
	tidings  tidings

	ctx  context.Context // ends when Close begins
	stop context.CancelCauseFunc

	mu     sync.Mutex
	closed bool
	busy   sync.WaitGroup // calls that Close waits for; added to under mu

	wound    chan struct{} // closed when all has ended
	closeErr error         // what could not be released; before wound is closed nobody reads it
}

// New returns a Locker on store. It sends nothing. The error says what Config.Require
// asks of the store that it cannot do, or what is wrong with the Config.
func New(store driver.Store, cfg Config) (*Locker, error) {
	if store == nil {
		panic("redlatch: New needs a store")
	}
	f := store.Features()
	if err := f.Covers(cfg.Require); err != nil {
		return nil, &Error{Op: "new", Err: &kinded{ErrUnsupported, err}}
	}
	switch {
	case cfg.Drift < 0:
		return nil, &Error{Op: "new", Err: invalid("a Drift of %v is negative", cfg.Drift)}
	case cfg.MaxWaiters < 0:
		return nil, &Error{Op: "new", Err: invalid("%d MaxWaiters are negative; 0 is no bound", cfg.MaxWaiters)}
	}
	cfg.Owner = ownerDefaults(cfg.Owner)
	l := &Locker{store: store, features: f, cfg: cfg, wound: make(chan struct{})}
	l.ctx, l.stop = context.WithCancelCause(context.Background())
	l.keeping.init(l)
	l.leavings.init(store)
	return l, nil
}

// Features says what the locker's store can do.
func (l *Locker) Features() driver.Features { return l.features }

// Owner is how others see who holds the locker's locks.
func (l *Locker) Owner() Owner { return l.cfg.Owner }

// Lock waits until it has the lock. ctx bounds the waiting only; the hold's life is
// its own, see [Held.Context]. When ctx or MaxWait ends first, the error is a
// *HeldError (and ctx's) that names the holder; the claim is withdrawn.
func (l *Locker) Lock(ctx context.Context, name string, o Options) (*Held, error) {
	return l.lock(ctx, "lock", name, o)
}

// TryLock takes the lock if it is free and nobody waits for it. Otherwise it is a
// *HeldError that names the holder, or a *SealedError.
func (l *Locker) TryLock(ctx context.Context, name string, o Options) (*Held, error) {
	return l.lock(ctx, "try", name, o)
}

// Do runs fn under the lock and releases it, also when fn panics. fn's ctx ends with
// the caller's, or when the hold's trust ends, whichever comes first. If the hold was
// lost while fn ran, the error says so beside fn's own, also when that is nil: others
// may have had the lock before fn was done.
func (l *Locker) Do(ctx context.Context, name string, o Options, fn func(ctx context.Context, held *Held) error) (err error) {
	held, err := l.Lock(ctx, name, o)
	if err != nil {
		return err
	}
	inner, cancel := joinContext(held.Context(), ctx)
	returned := false
	defer func() {
		cancel()
		released := held.Unlock()
		if !returned {
			return // fn panics or left the goroutine: that goes on, and says more than the release would
		}
		if released != nil && !errors.Is(err, released) {
			err = errors.Join(err, released)
		}
	}()
	err = fn(inner, held)
	returned = true
	return err
}

// joinContext returns a context with hold's values that ends with hold or with caller,
// and with whose cause.
func joinContext(hold, caller context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(hold)
	deadline, has := caller.Deadline()
	stop := context.AfterFunc(caller, func() {
		if !has || !errors.Is(caller.Err(), context.DeadlineExceeded) {
			cancel(context.Cause(caller))
		} // else the deadline below says it, and is then what Err says
	})
	end := func() { stop(); cancel(nil) }
	if !has {
		return ctx, end
	}
	ctx, timeout := context.WithDeadline(ctx, deadline)
	return ctx, func() { end(); timeout() }
}

// Close ends the calls that wait, with ErrClosed, releases what is held (or leaves it,
// with Config.KeepOnClose; the holds' contexts end either way) and returns when all
// goroutines of the Locker have. If ctx ends first, its error is returned, and what is
// left goes on in the background. It does not close the store. Closing again waits again.
func (l *Locker) Close(ctx context.Context) error {
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		go l.wind()
	}
	l.mu.Unlock()

	select {
	case <-l.wound:
		return l.closeErr
	case <-ctx.Done():
		return &Error{Op: "close", Err: context.Cause(ctx)}
	}
}

// wind ends everything. Each step leaves nothing that could add to the next one's.
func (l *Locker) wind() {
	defer close(l.wound)
	l.stop(ErrClosed)
	l.busy.Wait()
	l.closeErr = l.keeping.close(l.cfg.KeepOnClose)
	l.leavings.wait()
	l.tidings.wait()
}

// enter is called by everything that Close must wait for.
func (l *Locker) enter() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return ErrClosed
	}
	l.busy.Add(1)
	return nil
}

// full is the name as the store knows it.
func (l *Locker) full(name string) (string, error) {
	if err := lease.CheckName(name); err != nil {
		return "", &kinded{ErrInvalid, err}
	}
	if l.cfg.Prefix == "" {
		return name, nil
	}
	full := l.cfg.Prefix + name
	if err := lease.CheckName(full); err != nil {
		return "", &kinded{ErrInvalid, fmt.Errorf("with the prefix: %w", err)}
	}
	return full, nil
}

func ownerDefaults(o Owner) Owner {
	if o.Host == "" {
		o.Host, _ = os.Hostname()
	}
	if o.Name == "" {
		who := "uid" + fmt.Sprint(os.Getuid())
		if u, err := user.Current(); err == nil {
			who = u.Username
		}
		o.Name = who + "@" + o.Host
	}
	if o.PID == 0 {
		o.PID = os.Getpid()
	}
	if o.Command == "" && len(os.Args) > 0 {
		o.Command = filepath.Base(os.Args[0])
	}
	return o
}
