//go:build darwin || dragonfly || freebsd

package filestore

import (
	"os"
	"syscall"
)

const mntLocal = 0x1000 // MNT_LOCAL

// remote returns what kind of file system the open directory is on, if other hosts may
// see its files too, or its locks are not this kernel's.
func remote(dir *os.File) (kind string, err error) {
	var st syscall.Statfs_t
	if err := syscall.Fstatfs(int(dir.Fd()), &st); err != nil {
		return "", os.NewSyscallError("statfs", err)
	}
	if st.Flags&mntLocal != 0 {
		return "", nil
	}
	name := make([]byte, 0, len(st.Fstypename))
	for _, c := range st.Fstypename {
		if c == 0 {
			break
		}
		name = append(name, byte(c))
	}
	return string(name), nil
}

func unmapped(uint32) bool { return false }
