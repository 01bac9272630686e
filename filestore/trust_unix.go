//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filestore

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/redlatch/redlatch/driver"
)

// Whoever can put a file or another directory in the place of one of ours can read
// tokens, end locks and pretend to have them. So nobody but the user and root may be
// able to, from the root of the file system down. The kernel then does the rest.

const maxLinks = 40 // as many as Linux follows

// checkPath looks at what leads to the directory, as far as it is there: also at the
// links on the way, which others could point elsewhere.
func checkPath(dir string) error {
	at, ahead, links := "/", strings.Split(dir, "/"), 0
	for len(ahead) > 0 {
		next := filepath.Join(at, ahead[0]) // also makes ".." of a link what it is, for at has no links
		ahead = ahead[1:]
		info, err := os.Lstat(next)
		if os.IsNotExist(err) {
			return nil // it will be made, for the user alone
		}
		if err != nil {
			return err
		}
		if err := replaceable(info); err != nil {
			return untrusted(dir, next, err)
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			at = next
			continue
		}
		to, err := os.Readlink(next)
		if links++; links > maxLinks && err == nil {
			err = &os.PathError{Op: "open", Path: dir, Err: syscall.ELOOP}
		}
		if err != nil {
			return err
		}
		if filepath.IsAbs(to) {
			at = "/"
		}
		ahead = append(strings.Split(to, "/"), ahead...)
	}
	return nil
}

func untrusted(dir, at string, why error) error {
	if at == dir {
		return &driver.Fault{Kind: driver.Denied, Err: fmt.Errorf("lock directory %s: %w", dir, why)}
	}
	return &driver.Fault{Kind: driver.Denied, Err: fmt.Errorf(
		"lock directory %s: %s on the way to it could be used to put another one in its place: %w", dir, at, why)}
}

// replaceable reports who else could replace what is in a directory on the way.
func replaceable(info fs.FileInfo) error {
	stat := info.Sys().(*syscall.Stat_t)
	if own := int(stat.Uid) == os.Geteuid(); !own && stat.Uid != 0 && !unmapped(stat.Uid) {
		return fmt.Errorf("it belongs to user %d, not to user %d, who asks, or root; use a directory of your own", stat.Uid, os.Geteuid())
	}
	if info.IsDir() && info.Mode()&fs.ModeSticky == 0 {
		return writable(info)
	}
	return nil
}

// checkOwn looks at a directory that has been opened: the user's, and nobody else writes.
func checkOwn(dir string, info fs.FileInfo) error {
	if owner := info.Sys().(*syscall.Stat_t).Uid; int(owner) != os.Geteuid() {
		return untrusted(dir, dir, fmt.Errorf("it belongs to user %d, not to user %d, who asks; "+
			"run as that user, or use a directory of your own: locks are not shared between users", owner, os.Geteuid()))
	}
	if err := writable(info); err != nil {
		return untrusted(dir, dir, err)
	}
	return nil
}

// writable reports which others may write. A group that has the user's own number is the
// user's alone on systems that give each user one, and there umasks leave it the right.
func writable(info fs.FileInfo) error {
	stat := info.Sys().(*syscall.Stat_t)
	const advice = "take that right away (chmod go-w), or use a directory that only you can write to"
	switch {
	case info.Mode().Perm()&0o002 != 0:
		return fmt.Errorf("everybody may write to it (%v); %s", info.Mode(), advice)
	case info.Mode().Perm()&0o020 != 0 && (stat.Gid != stat.Uid || int(stat.Gid) != os.Getegid()):
		return fmt.Errorf("group %d may write to it (%v); %s", stat.Gid, info.Mode(), advice)
	}
	return nil
}

// foreign reports whose file it is, if not the user's.
func foreign(info fs.FileInfo) error {
	if owner := info.Sys().(*syscall.Stat_t).Uid; int(owner) != os.Geteuid() {
		return fmt.Errorf("%w: it belongs to user %d, not to user %d, who asks", fs.ErrPermission, owner, os.Geteuid())
	}
	return nil
}
