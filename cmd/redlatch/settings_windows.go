package main

import (
	"os"
	"path/filepath"
)

func systemConfigDir() string {
	if dir := os.Getenv("ProgramData"); dir != "" {
		return filepath.Join(dir, "redlatch")
	}
	return ""
}

const worldReadable = false
