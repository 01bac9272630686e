//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filestore

import (
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/lease"
)

// machine is a host whose clocks the test sets.
type machine struct {
	mu   sync.Mutex
	boot string
	up   time.Duration
	time time.Time
}

func (m *machine) host() host {
	return host{
		boot: m.boot,
		uptime: func() time.Duration {
			m.mu.Lock()
			defer m.mu.Unlock()
			return m.up
		},
		wall: func() time.Time {
			m.mu.Lock()
			defer m.mu.Unlock()
			return m.time
		},
	}
}

// passes is time that passes, awake or asleep: both clocks go on.
func (m *machine) passes(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.up += d
	m.time = m.time.Add(d)
}

// set is somebody who sets the wall clock.
func (m *machine) set(by time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.time = m.time.Add(by)
}

func newMachine(boot string) *machine {
	return &machine{boot: boot, up: time.Hour, time: time.UnixMicro(1_764_551_336_000_000)}
}

// state is what a process sees that has just come.
func state(t *testing.T, dir string, h host) lease.State {
	t.Helper()
	s := openOn(t, dir, h)
	defer s.Close()
	c := claim(time.Hour)
	c.NoWait = true
	st := join(t, s, "n", c)
	if st.State == lease.Held {
		leave(t, s, "n", c.ID, lease.Seal{})
	}
	return st.State
}

// Nobody renews, and the lease is as long as it is, whoever sets what clock.
func TestDetachedClaimLastsItsLeaseWhateverTheWallClockSays(t *testing.T) {
	for _, by := range []time.Duration{0, time.Minute, -time.Minute, 10 * 365 * 24 * time.Hour, -10 * 365 * 24 * time.Hour} {
		m := newMachine("one")
		dir := t.TempDir()
		s := detached(t, dir, m.host())
		join(t, s, "n", claim(time.Hour))
		s.Close()
		m.set(by)
		m.passes(time.Hour - time.Second)
		if got := state(t, dir, m.host()); got != lease.Busy {
			t.Errorf("the clock set by %v, a second before the end: another one is %v", by, got)
		}
		m.set(-by)
		m.passes(2 * time.Second)
		if got := state(t, dir, m.host()); got != lease.Held {
			t.Errorf("the clock set by %v and back, a second after the end: another one is %v", by, got)
		}
	}
}

// The host sleeps over the end of the lease: the boot clock has gone on.
func TestDetachedClaimEndsInSuspend(t *testing.T) {
	m := newMachine("one")
	dir := t.TempDir()
	s := detached(t, dir, m.host())
	c := claim(time.Hour)
	st := join(t, s, "n", c)
	m.passes(8 * time.Hour)
	if got := state(t, dir, m.host()); got != lease.Held {
		t.Errorf("after the night another one is %v", got)
	}
	ref := driver.Ref{Name: "n", Token: lease.Token{ID: c.ID, Ticket: st.Ticket}, TTL: time.Hour}
	if out := s.Renew(t.Context(), []driver.Ref{ref}); out[0].Err != nil || out[0].State != lease.Gone {
		t.Errorf("its renewal: %+v", out[0])
	}
}

// The clocks of this host are those that are meant.
func TestHostClocks(t *testing.T) {
	h := thisHost()
	before := h.uptime()
	time.Sleep(time.Millisecond)
	if after := h.uptime(); after <= before || after > before+time.Minute {
		t.Errorf("uptime %v after %v", after, before)
	}
	if h.boot == "" && runtime.GOOS == "linux" {
		t.Error("the boot is not known")
	}
}

// Side by side, under two boot ids (two hosts, or containers that are given one each),
// each would take the other's claims for those of a boot that is over.
func TestDirectoryInUseByAnotherBootIsRefused(t *testing.T) {
	for _, other := range []string{"two", ""} {
		dir := t.TempDir()
		one := openOn(t, dir, boot("one", time.Now()))
		c := claim(time.Hour)
		join(t, one, "n", c)
		_, err := open(dir, Options{}, boot(other, time.Now()))
		refused(t, err, dir, "another boot", "boot=one")
		if q, err := one.Inspect(t.Context(), "n"); err != nil || len(q.Holders()) != 1 {
			t.Errorf("the holder after it: %+v, %v", q.Claims, err)
		}
		if st, err := openOn(t, dir, boot("one", time.Now())).Inspect(t.Context(), "n"); err != nil || len(st.Holders()) != 1 {
			t.Errorf("another one of the same boot sees %+v, %v", st.Claims, err)
		}
	}
}

// A boot that is not known is no other boot: leases are all that ends detached claims.
func TestUnknownBootEndsNothing(t *testing.T) {
	for _, boots := range [][2]string{{"", ""}, {"", "one"}, {"one", ""}} {
		dir := t.TempDir()
		m := newMachine(boots[0])
		s := detached(t, dir, m.host())
		join(t, s, "n", claim(time.Hour))
		s.Close()
		m.boot = boots[1]
		m.passes(time.Minute)
		if got := state(t, dir, m.host()); got != lease.Busy {
			t.Errorf("%q: another one is %v", boots, got)
		}
		m.passes(time.Hour)
		if got := state(t, dir, m.host()); got != lease.Held {
			t.Errorf("%q: after the lease another one is %v", boots, got)
		}
	}
}

// Where the boot is not known, which is everywhere but on Linux, a name's clock is the
// wall clock from the first claim on: fences are ahead of all lost ones, and nothing
// stays of a name that is free.
func TestUnknownBootCountsFromTheWallClock(t *testing.T) {
	m := newMachine("")
	dir := t.TempDir()
	s := openOn(t, dir, m.host())
	c := claim(time.Hour)
	st := join(t, s, "n", c)
	if now := uint64(m.time.UnixMicro()); st.Ticket < now {
		t.Errorf("fence %d at %d", st.Ticket, now)
	}
	m.passes(time.Second)
	leave(t, s, "n", c.ID, lease.Seal{})
	if files, err := os.ReadDir(filepath.Join(dir, namesDir)); err != nil || len(files) > 0 {
		t.Errorf("left in the directory: %v, %v", files, err)
	}
	m.set(-time.Hour) // and back a little: never behind what was given
	if again := join(t, s, "n", claim(time.Hour)); again.Ticket <= st.Ticket {
		t.Errorf("fence %d after %d", again.Ticket, st.Ticket)
	}
}

// A newer release has written what this one cannot know: the lock is closed, in the next
// boot too, and the file stays as it is.
func TestNewerFormStaysClosedAndUntouched(t *testing.T) {
	dir := t.TempDir()
	one := openOn(t, dir, boot("one", time.Now()))
	path := filepath.Join(dir, namesDir, fileName("n"))
	const newer = "redlatch-queue 2 whatever\nthat means\n"
	must(t, os.WriteFile(path, []byte(newer), 0o600))
	crash(one)
	two := openOn(t, dir, boot("two", time.Now()))
	two.sweepNames()
	if st, err := two.Join(t.Context(), "n", claim(time.Hour)); err == nil {
		t.Errorf("got %+v", st)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != newer {
		t.Errorf("the file is %q, %v", text, err)
	}
}

// A token proves one hold: it neither renews nor ends the next one's.
func TestDetachedTokenOfAnEndedHoldDoesNothing(t *testing.T) {
	m := newMachine("one")
	dir := t.TempDir()
	s := detached(t, dir, m.host())
	old, next := claim(time.Minute), claim(time.Hour)
	st := join(t, s, "n", old)
	m.passes(2 * time.Minute)
	join(t, s, "n", next)
	ref := driver.Ref{Name: "n", Token: lease.Token{ID: old.ID, Ticket: st.Ticket}, TTL: time.Hour}
	if out := s.Renew(t.Context(), []driver.Ref{ref}); out[0].Err != nil || out[0].State != lease.Gone {
		t.Errorf("its renewal: %+v", out[0])
	}
	if st := leave(t, s, "n", old.ID, lease.Seal{}); st.State != lease.Gone {
		t.Errorf("its release: %+v", st)
	}
	if q, err := s.Inspect(t.Context(), "n"); err != nil || len(q.Holders()) != 1 || q.Holders()[0].ID != next.ID {
		t.Errorf("afterwards: %+v, %v", q.Claims, err)
	}
}
