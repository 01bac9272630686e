package main

import (
	"os"
	"path/filepath"
)

// localDir is where the locks are kept when nothing is configured: the user's own
// directory for what need not be kept.
func localDir() (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(base, "redlatch")
	return dir, os.MkdirAll(dir, 0o700)
}
