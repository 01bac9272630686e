//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filestore

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/lease"
)

func newStore(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := New(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func claim(ttl time.Duration) lease.Claim { return lease.Claim{ID: lease.NewID(), TTL: ttl} }

// patient is the time for what has to happen soon; only a hang uses all of it.
func patient(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func join(t *testing.T, s *Store, name string, c lease.Claim) lease.Standing {
	t.Helper()
	st, err := s.Join(patient(t), name, c)
	if err != nil {
		t.Fatalf("join %q: %v", name, err)
	}
	return st
}

func leave(t *testing.T, s *Store, name, id string, seal lease.Seal) lease.Standing {
	t.Helper()
	st, err := s.Leave(patient(t), name, id, 0, seal)
	if err != nil {
		t.Fatalf("leave %q: %v", name, err)
	}
	return st
}

func wait(t *testing.T, s *Store, name string, id string, st lease.Standing) lease.Standing {
	t.Helper()
	st, err := s.Wait(patient(t), name, id, st.Rev)
	if err != nil {
		t.Fatalf("wait %q: %v", name, err)
	}
	return st
}

func TestTwoStoresOfOneProcessExcludeEachOther(t *testing.T) {
	dir := t.TempDir()
	a, b := newStore(t, dir), newStore(t, dir)
	first, second := claim(time.Minute), claim(time.Minute)
	held := join(t, a, "n", first)
	if held.State != lease.Held {
		t.Fatalf("first: %v", held.State)
	}
	queued := join(t, b, "n", second)
	if queued.State != lease.Waiting || queued.Holder == nil || queued.Holder.ID != first.ID {
		t.Fatalf("second: %+v", queued)
	}
	leave(t, a, "n", first.ID, lease.Seal{})
	got := wait(t, b, "n", second.ID, queued)
	if got.State != lease.Held || got.Ticket <= held.Ticket {
		t.Fatalf("second after the release: %+v, first had ticket %d", got, held.Ticket)
	}
}

func TestClaimsOfADeadStoreFallOutAtOnce(t *testing.T) {
	dir := t.TempDir()
	a, b := newStore(t, dir), newStore(t, dir)
	dead, live := claim(time.Hour), claim(time.Hour)
	join(t, a, "n", dead)
	queued := join(t, b, "n", live)
	for _, f := range a.self.open {
		f.Close() // what the kernel does when a process ends
	}
	if got := wait(t, b, "n", live.ID, queued); got.State != lease.Held {
		t.Fatalf("got %+v", got)
	}
}

func TestClosedStoreKeepsItsClaims(t *testing.T) {
	dir := t.TempDir()
	a, b := newStore(t, dir), newStore(t, dir)
	join(t, a, "n", claim(300*time.Millisecond))
	a.Close()
	mine := claim(time.Minute)
	queued := join(t, b, "n", mine)
	if queued.State != lease.Waiting {
		t.Fatalf("a holder's Store was closed and another one is %v", queued.State)
	}
	if got := wait(t, b, "n", mine.ID, queued); got.State != lease.Held {
		t.Fatalf("after the lease: %+v", got)
	}
	if _, err := a.Join(t.Context(), "n", claim(time.Minute)); !errors.Is(err, errClosed) {
		t.Errorf("join on a closed Store: %v", err)
	}
}

func TestCloseWithNothingHeldLeavesNoFileOfItsOwn(t *testing.T) {
	dir := t.TempDir()
	s := newStore(t, dir)
	c := claim(time.Minute)
	join(t, s, "n", c)
	leave(t, s, "n", c.ID, lease.Seal{})
	s.Close()
	for _, sub := range []string{aliveDir, wakeDir} {
		if files, err := os.ReadDir(filepath.Join(dir, sub)); err != nil || len(files) > 0 {
			t.Errorf("%s: %v, %v", sub, files, err)
		}
	}
}

func TestDirectoryAndFilesAreTheUsersAlone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	s := newStore(t, dir)
	join(t, s, "n", claim(time.Minute))
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestDamagedFileKeepsTheLockClosed(t *testing.T) {
	dir := t.TempDir()
	s := newStore(t, dir)
	tests := []struct {
		what, text string
		is         error
	}{
		{"empty", "", errNotOurs},
		{"cut short", "redlatch-queue 1 5\n{\"name\":", errBroken},
		{"something else", "hello\n", errNotOurs},
		{"a newer form", "redlatch-queue 2 5 6\nwhatever\n", lease.ErrNewer},
		{"of another form", "redlatch-queue 1 5\n{\"name\":\"n\"}\n", errBroken},
		{"without its checksum", "redlatch-queue 1 5 00000000\n{\"name\":\"n\"}\n", errBroken},
		{"another name's", summed(5, "{\"name\":\"other\"}\n"), nil},
	}
	for _, test := range tests {
		t.Run(test.what, func(t *testing.T) {
			path := filepath.Join(dir, namesDir, fileName("n"))
			if err := os.WriteFile(path, []byte(test.text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := s.Join(t.Context(), "n", claim(time.Minute))
			var fault *driver.Fault
			if !errors.As(err, &fault) || fault.Kind != driver.Misplaced || !strings.Contains(err.Error(), path) {
				t.Fatalf("got %v", err)
			}
			if test.is != nil && !errors.Is(err, test.is) {
				t.Errorf("got %v, want %v", err, test.is)
			}
			if text, _ := os.ReadFile(path); string(text) != test.text {
				t.Errorf("the file was changed to %q", text)
			}
		})
	}
}

// What has happened to the directory, every call says, and no wait sleeps over it. Also
// when it is whole and elsewhere: others use what is at the path now.
func TestRemovedOrMovedDirectoryIsAnError(t *testing.T) {
	for _, test := range []struct {
		what string
		do   func(dir string) error
		same bool // another one is made in its place
	}{
		{"removed", os.RemoveAll, false},
		{"removed and made again", os.RemoveAll, true},
		{"moved", func(dir string) error { return os.Rename(dir, dir+"-old") }, false},
		{"moved and made again", func(dir string) error { return os.Rename(dir, dir+"-old") }, true},
	} {
		t.Run(test.what, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "d")
			s := newStore(t, dir)
			mine, queued := claim(time.Minute), claim(time.Minute)
			st := join(t, s, "n", mine)
			waits := join(t, s, "n", queued)
			answer := make(chan error, 1)
			ctx := patient(t)
			go func() {
				_, err := s.Wait(ctx, "n", queued.ID, waits.Rev)
				answer <- err
			}()
			for !s.waiting.looked("n") && ctx.Err() == nil {
				sleep(ctx, time.Millisecond)
			}
			for test.do(dir) != nil { // housekeeping may just be making a file
				if ctx.Err() != nil {
					t.Fatal("cannot do that to the directory")
				}
			}
			if test.same {
				join(t, newStore(t, dir), "n", claim(time.Minute))
			}
			check := func(call string, err error) {
				t.Helper()
				var fault *driver.Fault
				if !errors.As(err, &fault) || fault.Kind != driver.Unavailable || ctx.Err() != nil ||
					!strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "removed or moved") {
					t.Errorf("%s: %v", call, err)
				}
			}
			_, err := s.Join(ctx, "m", claim(time.Minute))
			check("join", err)
			ref := driver.Ref{Name: "n", Token: lease.Token{ID: mine.ID, Ticket: st.Ticket}, TTL: time.Minute}
			check("renew", s.Renew(ctx, []driver.Ref{ref})[0].Err)
			_, err = s.Leave(ctx, "n", mine.ID, 0, lease.Seal{})
			check("leave", err)
			_, err = s.Inspect(ctx, "n")
			check("inspect", err)
			for _, err := range s.Names(ctx, "") {
				check("names", err)
			}
			check("wait", <-answer)
		})
	}
}

func TestSymbolicLinksAreNotFollowed(t *testing.T) {
	dir := t.TempDir()
	s := newStore(t, dir)
	target := filepath.Join(dir, namesDir, "target")
	if err := os.WriteFile(target, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	sh := s.shardOf("n").file
	for _, test := range []struct {
		link, to string
		refused  bool // else it is removed
	}{
		{filepath.Join(namesDir, "n"), "target", true},
		{sh, filepath.Join(namesDir, "target"), true},
		{filepath.Join(namesDir, string(mark)+sh), "target", false},
	} {
		link := filepath.Join(dir, test.link)
		os.Remove(link)
		if err := os.Symlink(test.to, link); err != nil {
			t.Fatal(err)
		}
		// What is behind the link is not looked at: it would be another error.
		if st, err := s.Join(patient(t), "n", claim(time.Minute)); errors.Is(err, syscall.ELOOP) != test.refused || (err != nil) != test.refused {
			t.Errorf("%s: %v, %v", test.link, st.State, err)
		}
		os.Remove(link)
	}
	if text, _ := os.ReadFile(target); string(text) != "precious" {
		t.Errorf("the target was changed to %q", text)
	}
}

func TestCallsEndWithTheirContextWhileTheLockFileIsTaken(t *testing.T) {
	dir := t.TempDir()
	s, other := newStore(t, dir), newStore(t, dir)
	sh := other.shardOf("n")
	if err := other.enter(t.Context(), sh); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	_, err := s.Join(ctx, "n", claim(time.Minute))
	var fault *driver.Fault
	if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &fault) || fault.Kind != driver.Unavailable ||
		!strings.Contains(err.Error(), filepath.Join(dir, sh.file)) {
		t.Fatalf("got %v", err)
	}
	sh.exit()
	join(t, s, "n", claim(time.Minute))
}

// A lock file that was deleted is locked by nobody else: its lock is worth nothing.
func TestDeletedLockFileIsNoticed(t *testing.T) {
	dir := t.TempDir()
	s, other := newStore(t, dir), newStore(t, dir)
	sh := s.shardOf("n")
	join(t, s, "n", claim(time.Minute))
	if err := os.Remove(filepath.Join(dir, sh.file)); err != nil {
		t.Fatal(err)
	}
	join(t, other, "n", claim(time.Minute))
	if err := s.enter(patient(t), sh); err != nil {
		t.Fatal(err)
	}
	defer sh.exit()
	if now, err := os.Lstat(filepath.Join(dir, sh.file)); err != nil || !os.SameFile(now, sh.info) {
		t.Errorf("locked a file that nobody finds: %v", err)
	}
}

// boot is a host that has been booted at that wall time.
func boot(id string, wall time.Time) host {
	h := thisHost()
	up := h.uptime()
	return host{
		boot:   id,
		uptime: func() time.Duration { return h.uptime() - up },
		wall:   func() time.Time { return wall.Add(h.uptime() - up) },
	}
}

func openOn(t *testing.T, dir string, h host) *Store {
	t.Helper()
	s, err := open(dir, Options{}, h)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// crash ends a Store as the machine's crash would: without a word.
func crash(s *Store) {
	for _, f := range s.self.open {
		f.Close()
	}
}

func TestRebootEndsClaimsAndKeepsFencesAndSeals(t *testing.T) {
	dir := t.TempDir()
	start := time.Now()
	one := openOn(t, dir, boot("one", start))
	c := claim(time.Hour)
	held := join(t, one, "held", c)
	sealer := claim(time.Hour)
	join(t, one, "sealed", sealer)
	leave(t, one, "sealed", sealer.ID, lease.Seal{For: time.Hour, Value: "done"})
	idle := claim(time.Hour)
	free := join(t, one, "free", idle)
	leave(t, one, "free", idle.ID, lease.Seal{})
	before, err := one.Node(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	crash(one)

	// The wall clock comes up wrong, as without a battery.
	two := openOn(t, dir, boot("two", start.Add(-24*365*time.Hour)))
	after, err := two.Node(t.Context())
	if err != nil || after.ID == before.ID {
		t.Errorf("the node is %q after %q, %v", after.ID, before.ID, err)
	}
	if st := join(t, two, "held", claim(time.Hour)); st.State != lease.Held || st.Ticket <= held.Ticket {
		t.Errorf("a claim of the boot before: %+v after %d", st, held.Ticket)
	}
	if st := join(t, two, "free", claim(time.Hour)); st.Ticket <= free.Ticket {
		t.Errorf("fence %d after %d", st.Ticket, free.Ticket)
	}
	st := join(t, two, "sealed", claim(time.Hour))
	if st.State != lease.Waiting || st.Seal.Value != "done" || st.Seal.For > time.Hour || st.Seal.For < 59*time.Minute {
		t.Errorf("the seal of the boot before: %+v", st)
	}
}

func TestSealEndsByTheWallClockAcrossBoots(t *testing.T) {
	dir := t.TempDir()
	start := time.Now()
	one := openOn(t, dir, boot("one", start))
	c := claim(time.Hour)
	join(t, one, "n", c)
	leave(t, one, "n", c.ID, lease.Seal{For: time.Hour})
	crash(one)
	two := openOn(t, dir, boot("two", start.Add(2*time.Hour)))
	if st := join(t, two, "n", claim(time.Hour)); st.State != lease.Held {
		t.Errorf("two hours later: %+v", st)
	}
}

// A power failure leaves files that were not synced empty, or with holes. The first who
// comes after it removes them; in a boot that is under way nobody does.
func TestTornFilesGoWithTheBoot(t *testing.T) {
	dir := t.TempDir()
	one := openOn(t, dir, boot("one", time.Now()))
	torn := map[string]string{"empty": "", "zeros": "redlatch-queue\x00\x00\x00\n", "short": "redlatch-queue 1 5\n{\"name\""}
	for name, text := range torn {
		if err := os.WriteFile(filepath.Join(dir, namesDir, fileName(name)), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	damaged := filepath.Join(dir, namesDir, "damaged")
	if err := os.WriteFile(damaged, []byte("no file of ours\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	same := openOn(t, dir, boot("one", time.Now()))
	for name := range torn {
		if st, err := same.Join(t.Context(), name, claim(time.Hour)); err == nil {
			t.Errorf("%s, in the same boot: %+v", name, st)
		}
	}
	crash(one)
	crash(same)
	two := openOn(t, dir, boot("two", time.Now()))
	for name := range torn {
		if st := join(t, two, name, claim(time.Hour)); st.State != lease.Held {
			t.Errorf("%s, in the next boot: %+v", name, st)
		}
	}
	if st, err := two.Join(t.Context(), "damaged", claim(time.Hour)); err == nil {
		t.Errorf("damaged, in the next boot: %+v", st)
	}
}

// A claim that is bound to no process lives by its lease alone.
func TestDetachedClaimOutlivesItsStore(t *testing.T) {
	dir := t.TempDir()
	a, b := detached(t, dir, thisHost()), newStore(t, dir)
	c := claim(time.Hour)
	st := join(t, a, "n", c)
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, aliveDir, a.self.id)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the Store lives on after Close although no claim counts on it: %v", err)
	}
	crash(a)
	if st := join(t, b, "n", claim(time.Hour)); st.State != lease.Waiting {
		t.Errorf("beside it: %+v", st)
	}
	ref := driver.Ref{Name: "n", Token: lease.Token{ID: c.ID, Ticket: st.Ticket}, TTL: time.Hour}
	if out := b.Renew(t.Context(), []driver.Ref{ref}); out[0].Err != nil || out[0].State != lease.Held {
		t.Errorf("renewed by another process: %+v", out[0])
	}
	crash(b)
	d := newStore(t, dir)
	if q, err := d.Inspect(t.Context(), "n"); err != nil || len(q.Holders()) != 1 {
		t.Errorf("after both are dead: %+v, %v", q.Claims, err)
	}
	if st := leave(t, d, "n", c.ID, lease.Seal{}); st.State != lease.Held {
		t.Errorf("left by another process: %+v", st)
	}
}

func TestDetachedClaimEndsWithItsLease(t *testing.T) {
	dir := t.TempDir()
	a, b := detached(t, dir, thisHost()), newStore(t, dir)
	first := join(t, a, "n", claim(100*time.Millisecond))
	c := claim(time.Hour)
	st := join(t, b, "n", c)
	if st.State != lease.Waiting {
		t.Fatalf("beside it: %+v", st)
	}
	if st = wait(t, b, "n", c.ID, st); st.State != lease.Held || st.Ticket <= first.Ticket {
		t.Errorf("after its lease: %+v after %d", st, first.Ticket)
	}
}

// A reboot frees leases but not seals, whatever the wall clock says afterwards.
func TestDetachedClaimEndsWithTheBoot(t *testing.T) {
	dir := t.TempDir()
	start := time.Now()
	one := detached(t, dir, boot("one", start))
	held := join(t, one, "held", claim(time.Hour))
	sealer := claim(time.Hour)
	join(t, one, "sealed", sealer)
	leave(t, one, "sealed", sealer.ID, lease.Seal{For: time.Hour, Value: "done"})
	same := detached(t, dir, boot("one", start))
	if st := join(t, same, "held", claim(time.Hour)); st.State != lease.Waiting {
		t.Errorf("another Store in the same boot: %+v", st)
	}
	crash(one)
	crash(same)

	two := detached(t, dir, boot("two", start.Add(-time.Hour)))
	if q, err := two.Inspect(t.Context(), "held"); err != nil || len(q.Claims) != 0 {
		t.Errorf("a look after the reboot: %+v, %v", q.Claims, err)
	}
	if st := join(t, two, "held", claim(time.Hour)); st.State != lease.Held || st.Ticket <= held.Ticket {
		t.Errorf("after the reboot: %+v after %d", st, held.Ticket)
	}
	if st := join(t, two, "sealed", claim(time.Hour)); st.State != lease.Waiting || st.Seal.Value != "done" {
		t.Errorf("the seal of the boot before: %+v", st)
	}
}

// Whoever renews counts on the lease, however the process ends that had it before.
func TestDetachedRenewalFreesFromTheProcess(t *testing.T) {
	dir := t.TempDir()
	a, b := newStore(t, dir), detached(t, dir, thisHost())
	c := claim(time.Hour)
	st := join(t, a, "n", c)
	ref := driver.Ref{Name: "n", Token: lease.Token{ID: c.ID, Ticket: st.Ticket}, TTL: time.Hour}
	for _, s := range []*Store{b, a} {
		if out := s.Renew(t.Context(), []driver.Ref{ref}); out[0].Err != nil || out[0].State != lease.Held {
			t.Fatalf("renewed: %+v", out[0])
		}
	}
	crash(a)
	if q, err := b.Inspect(t.Context(), "n"); err != nil || len(q.Holders()) != 1 {
		t.Errorf("its first process is dead: %+v, %v", q.Claims, err)
	}
}

// A place in the line is nothing without the process that waits.
func TestDetachedWaiterFallsOutUntilItHolds(t *testing.T) {
	dir := t.TempDir()
	first := newStore(t, dir)
	c := claim(time.Hour)
	join(t, first, "n", c)
	dies, stays := detached(t, dir, thisHost()), detached(t, dir, thisHost())
	gone, mine := claim(time.Hour), claim(time.Hour)
	join(t, dies, "n", gone)
	st := join(t, stays, "n", mine)
	crash(dies)
	leave(t, first, "n", c.ID, lease.Seal{})
	if st = wait(t, stays, "n", mine.ID, st); st.State != lease.Held {
		t.Fatalf("behind a dead waiter: %+v", st)
	}
	crash(stays)
	if q, err := first.Inspect(t.Context(), "n"); err != nil || len(q.Holders()) != 1 {
		t.Errorf("the holder is detached: %+v, %v", q.Claims, err)
	}
}

func detached(t *testing.T, dir string, h host) *Store {
	t.Helper()
	s, err := open(dir, Options{Detached: true}, h)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestFileIsWhereTheNameIs(t *testing.T) {
	dir := t.TempDir()
	s := newStore(t, dir)
	join(t, s, "../A b", claim(time.Hour))
	if _, err := os.Stat(File(dir, "../A b")); err != nil {
		t.Error(err)
	}
}

// Whoever renews a claim trusts it, so it lives as long as any of those who did.
func TestClaimLivesAsLongAsAnyWhoRenewedIt(t *testing.T) {
	dir := t.TempDir()
	a, b, c := newStore(t, dir), newStore(t, dir), newStore(t, dir)
	mine := claim(time.Hour)
	st := join(t, a, "n", mine)
	out := b.Renew(t.Context(), []driver.Ref{{Name: "n", Token: lease.Token{ID: mine.ID, Ticket: st.Ticket}, TTL: time.Hour}})
	if out[0].Err != nil || out[0].State != lease.Held {
		t.Fatalf("renewed by another Store: %+v", out[0])
	}
	crash(a)
	other := claim(time.Hour)
	other.NoWait = true
	if st := join(t, c, "n", other); st.State != lease.Busy {
		t.Errorf("the one who joined is dead, the one who renewed lives: %+v", st)
	}
	crash(b)
	if st := join(t, c, "n", other); st.State != lease.Held {
		t.Errorf("both are dead: %+v", st)
	}
}

// Messages can be lost: the one who releases may be killed before it sends any.
func TestLostMessageCostsOneLook(t *testing.T) {
	dir := t.TempDir()
	a, b := newStore(t, dir), newStore(t, dir)
	first, second := claim(time.Hour), claim(time.Hour)
	join(t, a, "n", first)
	queued := join(t, b, "n", second)
	if err := os.Remove(filepath.Join(dir, wakeDir, b.self.id)); err != nil {
		t.Fatal(err)
	}
	answer := waitInBackground(t, b, "n", second.ID, queued)
	leave(t, a, "n", first.ID, lease.Seal{})
	if st := <-answer; st.State != lease.Held {
		t.Errorf("got %+v", st)
	}
}

func TestSweepRemovesWhatTheDeadHaveLeft(t *testing.T) {
	dir := t.TempDir()
	a, b := newStore(t, dir), newStore(t, dir)
	join(t, a, "n", claim(time.Hour))
	leave(t, a, "late", lease.NewID(), lease.Seal{}) // a tombstone
	b.Close()
	b = newStore(t, dir)
	join(t, b, "kept", claim(time.Hour))
	crash(a)
	old := time.Now().Add(-time.Hour)
	for _, path := range []string{sweptFile, filepath.Join(aliveDir, a.self.id), filepath.Join(wakeDir, a.self.id), filepath.Join(aliveDir, b.self.id)} {
		if err := os.Chtimes(filepath.Join(dir, path), old, old); err != nil {
			t.Fatal(err)
		}
	}
	b.sweep()
	for path, want := range map[string]bool{
		filepath.Join(aliveDir, a.self.id): false,
		filepath.Join(wakeDir, a.self.id):  false,
		filepath.Join(namesDir, "n"):       false,
		filepath.Join(namesDir, "kept"):    true,
		filepath.Join(namesDir, "late"):    true,
		filepath.Join(aliveDir, b.self.id): true,
		filepath.Join(wakeDir, b.self.id):  true,
	} {
		if _, err := os.Lstat(filepath.Join(dir, path)); (err == nil) != want {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// A program that tidies up has removed the file that says that the Store lives.
func TestDeletedLifeIsMadeAgain(t *testing.T) {
	dir := t.TempDir()
	a, b := newStore(t, dir), newStore(t, dir)
	if err := os.Remove(filepath.Join(dir, aliveDir, a.self.id)); err != nil {
		t.Fatal(err)
	}
	if err := a.stay(); err != nil {
		t.Fatal(err)
	}
	if b.dead(a.self.id) {
		t.Error("it lives and seems dead")
	}
}

// A claim that was bound to no process, ends and is joined again is bound.
func TestClaimThatComesAgainIsBound(t *testing.T) {
	dir := t.TempDir()
	a, b := newStore(t, dir), newStore(t, dir)
	c := claim(20 * time.Millisecond)
	join(t, a, "n", c)
	err := a.move(t.Context(), "n", func(r *record, _ time.Time, _ func(string) bool) error {
		r.bound[c.ID] = nil
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for { // looking writes nothing: its end is found by its own next join
		if q, err := b.Inspect(patient(t), "n"); err != nil {
			t.Fatal(err)
		} else if len(q.Claims) == 0 {
			break
		}
	}
	c.TTL = time.Hour
	if st := join(t, a, "n", c); st.State != lease.Held {
		t.Fatalf("again: %+v", st)
	}
	crash(a)
	if st := join(t, b, "n", claim(time.Hour)); st.State != lease.Held {
		t.Errorf("after its death: %+v", st)
	}
}
