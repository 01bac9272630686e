package filestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"

	"github.com/redlatch/redlatch/driver"
)

// errClosed answers calls on a Store after Close.
var errClosed = errors.New("the file store is closed")

// fault says what kind of trouble an error about a file is, and names the file in full:
// the operating system's own errors are about a name within the directory.
func (s *Store) fault(dir, file string, err error) error {
	var known *driver.Fault
	if errors.As(err, &known) {
		return err
	}
	path := filepath.Join(s.dir, dir, file)
	var inner *fs.PathError
	if errors.As(err, &inner) {
		err = &fs.PathError{Op: inner.Op, Path: path, Err: inner.Err}
	} else {
		err = fmt.Errorf("%s: %w", path, err)
	}
	kind := driver.Unavailable
	switch {
	case errors.Is(err, fs.ErrPermission):
		kind, err = driver.Denied, fmt.Errorf("%w (locks are one user's: run as the user who owns them, or use another directory)", err)
	case errors.Is(err, syscall.EROFS):
		kind, err = driver.Denied, fmt.Errorf("%w (mount it for writing, or use another directory)", err)
	case errors.Is(err, syscall.ELOOP):
		kind, err = driver.Denied, fmt.Errorf("%w (it is a link or something else that does not belong here: look who has put it there, and remove it)", err)
	case errors.Is(err, syscall.ENOTDIR):
		err = fmt.Errorf("%w (a file is in the way: give a directory)", err)
	case noRoom(err):
		err = fmt.Errorf("%w (make room, in bytes, files or quota; until then who holds a lock can renew and release it, and nobody new gets one)", err)
	case errors.Is(err, fs.ErrNotExist):
		err = fmt.Errorf("%w (was the directory removed or moved? this process does not use another one in its place: start it again)", err)
	}
	return &driver.Fault{Kind: kind, Err: err}
}

// misplaced is a file that cannot be read as what it should be. Nobody gets the lock
// until a person has looked.
func (s *Store) misplaced(file string, err error) error {
	return &driver.Fault{Kind: driver.Misplaced, Err: fmt.Errorf(
		"%s: %w; the lock stays closed until that file is put right or, when surely nobody holds the lock, deleted",
		filepath.Join(s.dir, namesDir, file), err)}
}

// late is the end of ctx before the call got its turn at a lock file.
func (s *Store) late(ctx context.Context, file string) error {
	return &driver.Fault{Kind: driver.Unavailable, Err: fmt.Errorf(
		"no turn at %s: %w", filepath.Join(s.dir, file), ctx.Err())}
}

func noRoom(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
