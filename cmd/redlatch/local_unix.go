//go:build unix

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"syscall"
)

// localDir is where the locks are kept when nothing is configured: /run/lock/redlatch
// for root, and for others a directory of their own in the temporary one that outlives a
// boot. It is the same from cron, a shell and a service: what the session's variables say
// (TMPDIR, XDG_RUNTIME_DIR) must not part two runs of one job.
func localDir() (string, error) {
	own := "redlatch-" + strconv.Itoa(os.Geteuid())
	dirs := []string{"/var/tmp/" + own, "/tmp/" + own}
	if os.Geteuid() == 0 {
		dirs = append([]string{"/run/lock/redlatch"}, dirs...)
	}
	var err error
	for _, dir := range dirs {
		if err = ownDir(dir); !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) && !errors.Is(err, syscall.EROFS) {
			return dir, err // it is there; or it is not ours, and another one would exclude nobody
		}
	}
	return "", err
}

// ownDir makes the directory if it is not there, and refuses one that somebody else
// can write to: in /tmp and /run/lock everybody can make one of that name before us,
// and whoever can remove lock files can let two in.
func ownDir(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir():
		return fmt.Errorf("%s is not a directory", dir)
	case !ok || int(stat.Uid) != os.Geteuid():
		return fmt.Errorf("%s belongs to somebody else", dir)
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("others may write to %s (mode %04o)", dir, info.Mode().Perm())
	}
	return nil
}
