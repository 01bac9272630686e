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

// platformText is what this system lacks.
const platformText = `On Windows there are no locks in files: name a server with --store or REDLATCH_URL.
redlatch break writes to no system log there, only to --audit-log.`
