//go:build !(darwin || dragonfly || freebsd || linux)

package filestore

import "os"

// remote is not written for this system: no file system is refused.
func remote(*os.File) (kind string, err error) { return "", nil }

func unmapped(uint32) bool { return false }
