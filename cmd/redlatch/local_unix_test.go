//go:build unix

package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestMem has nobody but itself to exclude.
func TestMem(t *testing.T) {
	t.Parallel()
	has(t, start(t, "mem:", "run", "x", "--", "true").want(0).err.String(), "excludes nobody")
	for _, verb := range []string{"is-held", "who", "ls", "acquire", "wait", "keys"} {
		has(t, start(t, "mem:", verb, "x").want(codeUsage).err.String(), "the memory of one process")
	}
}

// TestNothingIsConfigured is the first minute: no server, no set-up.
func TestNothingIsConfigured(t *testing.T) {
	t.Parallel()
	run := func(env []string, args ...string) *proc { return startEnv(t, environ(env...), args...) }
	runtime := t.TempDir()
	env := []string{"XDG_RUNTIME_DIR=" + runtime, "TMPDIR=" + t.TempDir()}
	name := "hello-" + strconv.Itoa(os.Getpid()) // root's directory is one for the whole machine
	p := run(env, "run", name, "--", "echo", "hi").want(0)
	if p.out.String() != "hi\n" {
		t.Errorf("stdout is %q", p.out.String())
	}
	has(t, p.err.String(), "redlatch: no store configured - using local files in ", "; this excludes this user's jobs on THIS HOST only (use --store or REDLATCH_URL, or redlatch config init)\n")
	if strings.Count(p.err.String(), "\n") != 1 {
		t.Errorf("stderr has more than that line: %q", p.err.String())
	}
	holder := run(env, "run", name, "--", "sh", "-c", "echo started; exec sleep 100")
	holder.says(&holder.out, "started")
	run(env, "run", name, "--", "true").want(codeHeld)
	// The same job from another session.
	run([]string{"XDG_RUNTIME_DIR=" + t.TempDir(), "TMPDIR=" + t.TempDir()}, "run", name, "--", "true").want(codeHeld)
	run(nil, "run", name, "--", "true").want(codeHeld)
	run(env, "is-held", name).want(0)

	p = run(append(env, "REDIS_URL=redis://127.0.0.1:1"), "ls").want(0)
	has(t, p.err.String(), "hint: REDIS_URL is set; use --store env:REDIS_URL")
	if p := run(env, "--store", "file:"+filepath.Join(runtime, "mine"), "ls").want(0); strings.Contains(p.err.String(), "no store configured") {
		t.Errorf("files that were asked for are warned about: %q", p.err.String())
	}
}

// TestADirectoryOfSomebodyElse is refused: who can remove the files can let two in.
func TestADirectoryOfSomebodyElse(t *testing.T) {
	t.Parallel()
	for what, make := range map[string]func(dir string) error{
		"writable for all": func(dir string) error {
			if err := os.Mkdir(dir, 0o700); err != nil {
				return err
			}
			return os.Chmod(dir, 0o777)
		},
		"a link": func(dir string) error { return os.Symlink(t.TempDir(), dir) },
		"a file": func(dir string) error { return os.WriteFile(dir, nil, 0o600) },
	} {
		dir := filepath.Join(t.TempDir(), "redlatch")
		if err := make(dir); err != nil {
			t.Fatal(err)
		}
		if err := ownDir(dir); err == nil {
			t.Errorf("a directory that is %s is used", what)
		}
	}
	dir := filepath.Join(t.TempDir(), "redlatch")
	if err := ownDir(dir); err != nil {
		t.Error(err)
	}
	if err := ownDir(dir); err != nil {
		t.Errorf("the second time: %v", err)
	}
}
