package filestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/lease"
)

const (
	sweptFile  = "swept"
	sweepEvery = time.Minute
	patience   = 5 * time.Second
)

// housekeeping runs as long as the Store. What it cannot do now it leaves: nothing that
// it does is needed for a lock to be right.
func (s *Store) housekeeping() {
	for {
		s.setAside()
		s.sweep()
		if !sleep(s.ctx, sweepEvery) {
			return
		}
		_ = s.stay()
	}
}

// sweep removes what dead Stores and idle names have left, unless another process has
// done it lately.
func (s *Store) sweep() {
	now := time.Now()
	if info, err := s.top.Lstat(sweptFile); err == nil && now.Sub(info.ModTime()).Abs() < sweepEvery {
		return
	}
	f, err := openPlain(s.top, sweptFile, os.O_WRONLY|os.O_CREATE)
	if err != nil {
		return
	}
	_ = f.Close()
	_ = s.top.Chtimes(sweptFile, now, now)
	s.sweepStores()
	s.sweepNames()
}

func (s *Store) sweepStores() {
	for _, root := range []*os.Root{s.alive, s.wake} {
		d, err := root.Open(".")
		if err != nil {
			return
		}
		ids, _ := d.Readdirnames(-1)
		_ = d.Close()
		for _, id := range ids {
			if s.ctx.Err() != nil {
				return
			}
			if s.leftBehind(root, id) {
				_ = root.Remove(id)
			}
		}
	}
}

// leftBehind reports a dead Store's file. One that is just being born has its pipe first
// and its file under another name, so what is young is left alone.
func (s *Store) leftBehind(root *os.Root, file string) bool {
	info, err := root.Lstat(file)
	if err != nil || time.Since(info.ModTime()).Abs() < sweepEvery {
		return false
	}
	id, unborn := strings.CutPrefix(file, string(mark))
	if unborn && root == s.alive {
		return s.dead(file)
	}
	return validStore(id) && s.dead(id)
}

// sweepNames carries out what has happened by itself to names that nobody uses any more.
func (s *Store) sweepNames() {
	files, err := s.files()
	if err != nil {
		return
	}
	for _, file := range files {
		if s.ctx.Err() != nil {
			return
		}
		r, body, err := s.read(file, "")
		if err != nil || r == nil {
			continue
		}
		r.settle(s.dying(), r.clock(s.host))
		if _, after, err := r.text(); err == nil && bytes.Equal(after, body) && !forgettable(r) {
			continue
		}
		ctx, cancel := context.WithTimeout(s.ctx, patience)
		_ = s.move(ctx, r.name, func(*record, time.Time, func(string) bool) error { return nil })
		cancel()
	}
}

// firstInBoot cleans up after a crash of the machine, before anybody uses the directory
// in this boot. Files that were not synced may have come out of it empty or in part; the
// processes behind them are gone, so they are removed. At any other time such a file has
// been damaged by somebody, and its lock stays closed.
func (s *Store) firstInBoot() error {
	f, err := openPlain(s.top, bootFile, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return s.fault("", bootFile, err)
	}
	defer f.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		ok, err := tryLock(f)
		if err == nil && ok {
			break
		}
		if err == nil && !sleep(ctx, lastPause) {
			err = ctx.Err()
		}
		if err != nil {
			return s.fault("", bootFile, err)
		}
	}
	text, err := io.ReadAll(f)
	if err != nil {
		return s.fault("", bootFile, err)
	}
	boot, id, ok := strings.Cut(strings.TrimSuffix(string(text), "\n"), " ")
	if ok && boot == "boot="+s.host.boot {
		s.nodeID = id
		return nil
	}
	if ok && s.inUse() {
		return &driver.Fault{Kind: driver.Refused, Err: fmt.Errorf("lock directory %s: processes that were started in another boot "+
			"(%s, not boot=%s) use it: another host does, or a container with a boot id of its own; files exclude on one host only, "+
			"so use a local directory, or a server for several hosts", s.dir, boot, s.host.boot)}
	}
	if err := s.clearTorn(); err != nil {
		return err
	}
	s.nodeID = lease.NewID()
	line := "boot=" + s.host.boot + " " + s.nodeID + "\n"
	if err := f.Truncate(0); err != nil {
		return s.fault("", bootFile, err)
	}
	err = s.spend(func() error {
		_, err := f.WriteAt([]byte(line), 0)
		return err
	})
	if err != nil {
		return s.fault("", bootFile, err)
	}
	return nil
}

// inUse reports whether any Store lives. Processes do not survive a boot, so if one does,
// theirs and ours are not one after the other but side by side, and each side would take
// the other's claims for ended.
func (s *Store) inUse() bool {
	d, err := s.alive.Open(".")
	if err != nil {
		return false
	}
	defer d.Close()
	ids, _ := d.Readdirnames(-1)
	return slices.ContainsFunc(ids, func(id string) bool { return validStore(id) && !s.dead(id) })
}

func (s *Store) clearTorn() error {
	files, err := s.files()
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := s.text(file)
		if err != nil || !torn(text) {
			continue // whoever wants the lock gets the error
		}
		if err := s.names.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return s.fault(namesDir, file, err)
		}
	}
	return nil
}

// torn reports a file of which not everything has reached the disk.
func torn(text []byte) bool {
	return len(text) == 0 || text[len(text)-1] != '\n' || bytes.IndexByte(text, 0) >= 0
}
