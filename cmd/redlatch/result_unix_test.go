//go:build unix

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A place where no result can be written is found before anything is run.
func TestResultFileThatCannotBe(t *testing.T) {
	t.Parallel()
	store, dir := redisURL(t), t.TempDir()
	for _, path := range []string{dir, filepath.Join(dir, "no", "such"), "/dev/full/x"} {
		ran := filepath.Join(dir, "ran")
		p := start(t, store, "run", "--result-file", path, "x", "--", "touch", ran).want(codeUsage)
		has(t, p.err.String(), "--result-file: ", "nothing was run")
		if _, err := os.Stat(ran); err == nil {
			t.Errorf("it has run, with --result-file %s", path)
		}
	}
}

// What is no ordinary file is written to and not replaced; a link goes on leading there.
func TestResultFileThatIsSpecial(t *testing.T) {
	t.Parallel()
	store, dir := redisURL(t), t.TempDir()
	p := start(t, store, "run", "--result-file", "/dev/stderr", "x", "--", "true").want(0)
	has(t, p.err.String(), `"outcome":"ran"`)

	target, link := filepath.Join(dir, "target"), filepath.Join(dir, "link")
	if err := os.WriteFile(target, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("target", link); err != nil {
		t.Fatal(err)
	}
	start(t, store, "run", "--result-file", link, "x", "--", "true").want(0)
	text, err := os.ReadFile(target)
	if err != nil || !json.Valid(text) {
		t.Errorf("behind the link is %q, error %v", text, err)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link was replaced: %v, %v", info.Mode(), err)
	}

	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	p = start(t, store, "run", "--result-file", fifo, "x", "--", "true").want(0)
	has(t, p.err.String(), "--result-file: ") // nobody reads it, and nobody waits for that
	if info, err := os.Lstat(fifo); err != nil || info.Mode()&os.ModeNamedPipe == 0 {
		t.Errorf("the FIFO was replaced: %v, %v", info, err)
	}
}
