//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package filestore

import "io/fs"

func checkPath(string) error             { return supported }
func checkOwn(string, fs.FileInfo) error { return supported }
func foreign(fs.FileInfo) error          { return supported }
