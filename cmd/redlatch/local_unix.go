//go:build unix

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// localDir is where the locks are kept when nothing is configured: /run/lock/redlatch
// for root, the user's runtime directory for others, and where there is none, a
// directory of their own under the system's temporary one.
func localDir() (string, error) {
	base := os.Getenv("XDG_RUNTIME_DIR")
	if os.Geteuid() == 0 {
		base = "/run/lock"
	}
	if base != "" {
		dir := filepath.Join(base, "redlatch")
		if ownDir(dir) == nil {
			return dir, nil
		}
	}
	dir := filepath.Join(os.TempDir(), "redlatch-"+strconv.Itoa(os.Geteuid()))
	if err := ownDir(dir); err != nil {
		return "", err
	}
	return dir, nil
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
