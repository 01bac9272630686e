//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filestore

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/lease"
)

// stranger is a user that this machine need not know.
const stranger = 54321

// asRoot skips what needs more than a user's rights. A developer may lack them; CI has
// them, and there nothing is skipped.
func asRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 && os.Getenv("CI") == "" {
		t.Skip("files of another user can be made by root only")
	}
}

// within fails a test whose call hangs, and names it.
func within(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatalf("%s: it hangs", what)
	}
}

func denied(t *testing.T, what string, err error, words ...string) {
	t.Helper()
	var fault *driver.Fault
	if !errors.As(err, &fault) || fault.Kind != driver.Denied {
		t.Errorf("%s: %v, want a fault of kind Denied", what, err)
		return
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%s: the message %q does not say %q", what, err, word)
		}
	}
}

func refused(t *testing.T, err error, words ...string) {
	t.Helper()
	var fault *driver.Fault
	if !errors.As(err, &fault) || fault.Kind != driver.Refused {
		t.Errorf("%v, want a fault of kind Refused", err)
		return
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("the message %q does not say %q", err, word)
		}
	}
}

// settled waits until the Store's housekeeping has made what it makes.
func settled(t *testing.T, s *Store) {
	t.Helper()
	for ctx := patient(t); ; sleep(ctx, time.Millisecond) {
		info, err := s.top.Lstat(spareFile)
		_, swept := s.top.Lstat(sweptFile)
		if err == nil && info.Size() == spareSize && swept == nil {
			return
		}
		if ctx.Err() != nil {
			t.Fatal("no room is set aside")
		}
	}
}

// A directory that others can change is refused, and so is one that others can replace.
func TestDirectoryThatOthersCanChangeIsRefused(t *testing.T) {
	tests := []struct {
		what  string
		root  bool // making it takes root
		make  func(t *testing.T, base string) (dir string)
		words []string // none: it is taken
	}{
		{"everybody may write", false, func(t *testing.T, base string) string {
			must(t, os.Mkdir(base+"/d", 0o700), os.Chmod(base+"/d", 0o777))
			return base + "/d"
		}, []string{"/d", "everybody may write", "chmod go-w"}},
		{"everybody may make files, as in /tmp", false, func(t *testing.T, base string) string {
			must(t, os.Mkdir(base+"/d", 0o700), os.Chmod(base+"/d", 0o777|os.ModeSticky))
			return base + "/d"
		}, []string{"/d", "everybody may write"}},
		{"inside one like /tmp", false, func(t *testing.T, base string) string {
			must(t, os.Mkdir(base+"/tmp", 0o700), os.Chmod(base+"/tmp", 0o777|os.ModeSticky))
			return base + "/tmp/d"
		}, nil},
		{"everybody may write above it", false, func(t *testing.T, base string) string {
			must(t, os.MkdirAll(base+"/up/on/d", 0o700), os.Chmod(base+"/up", 0o777))
			return base + "/up/on/d"
		}, []string{"/up/on/d", "/up on the way", "everybody may write"}},
		{"a link of one's own", false, func(t *testing.T, base string) string {
			must(t, os.Mkdir(base+"/real", 0o700), os.Symlink("./real/../real", base+"/link"))
			return base + "/link/d"
		}, nil},
		{"a link to where everybody may write", false, func(t *testing.T, base string) string {
			must(t, os.Mkdir(base+"/open", 0o700), os.Chmod(base+"/open", 0o777), os.Symlink(base+"/open", base+"/link"))
			return base + "/link/d"
		}, []string{"/open on the way", "everybody may write"}},
		{"links in a circle", false, func(t *testing.T, base string) string {
			must(t, os.Symlink("b", base+"/a"), os.Symlink("a", base+"/b"))
			return base + "/a/d"
		}, []string{"/a/d"}},
		{"read by everybody", false, func(t *testing.T, base string) string {
			must(t, os.Mkdir(base+"/d", 0o700), os.Chmod(base+"/d", 0o755))
			return base + "/d"
		}, nil},
		{"the files' directory is open to everybody", false, func(t *testing.T, base string) string {
			must(t, os.MkdirAll(base+"/d/names", 0o700), os.Chmod(base+"/d/names", 0o777))
			return base + "/d"
		}, []string{"/d/names", "everybody may write"}},
		{"the files' directory is a link", false, func(t *testing.T, base string) string {
			must(t, os.MkdirAll(base+"/d/else", 0o700), os.Symlink("else", base+"/d/names"))
			return base + "/d"
		}, []string{"/d/names", "link"}},
		{"another user's", true, func(t *testing.T, base string) string {
			must(t, os.Mkdir(base+"/d", 0o700), os.Chown(base+"/d", stranger, 0))
			return base + "/d"
		}, []string{"/d", "user 54321", "user 0"}},
		{"in another user's", true, func(t *testing.T, base string) string {
			must(t, os.Mkdir(base+"/home", 0o755), os.Chown(base+"/home", stranger, 0))
			return base + "/home/d"
		}, []string{"/home on the way", "user 54321"}},
		{"another group may write", true, func(t *testing.T, base string) string {
			must(t, os.Mkdir(base+"/d", 0o700), os.Chown(base+"/d", 0, stranger), os.Chmod(base+"/d", 0o770))
			return base + "/d"
		}, []string{"/d", "group 54321 may write"}},
		{"one's own group may write", true, func(t *testing.T, base string) string {
			must(t, os.Mkdir(base+"/d", 0o700), os.Chmod(base+"/d", 0o770))
			return base + "/d"
		}, nil},
		{"another user's link", true, func(t *testing.T, base string) string {
			must(t, os.Mkdir(base+"/real", 0o700), os.Symlink("real", base+"/link"), os.Lchown(base+"/link", stranger, 0))
			return base + "/link"
		}, []string{"/link", "user 54321"}},
		{"the files' directory is another user's", true, func(t *testing.T, base string) string {
			must(t, os.MkdirAll(base+"/d/alive", 0o700), os.Chown(base+"/d/alive", stranger, 0))
			return base + "/d"
		}, []string{"/d/alive", "user 54321"}},
	}
	for _, test := range tests {
		t.Run(test.what, func(t *testing.T) {
			if test.root {
				asRoot(t)
			}
			base := t.TempDir()
			must(t, os.Chmod(base, 0o700))
			dir := test.make(t, base)
			s, err := New(dir, Options{})
			if err == nil {
				s.Close()
			}
			if test.words == nil {
				if err != nil {
					t.Error(err)
				}
				return
			}
			denied(t, test.what, err, test.words...)
			if strings.Contains(test.what, "link") || strings.Contains(test.what, "circle") {
				return
			}
			s, err = New(dir, Options{OthersMayWrite: true})
			if err != nil {
				t.Fatalf("asked for: %v", err)
			}
			s.Close()
		})
	}
}

// What stands in a file's place and is none is neither followed, nor waited for, nor
// written to.
func TestWhatIsNoFileIsNotOpened(t *testing.T) {
	kinds := []struct {
		what string
		root bool
		make func(path string) error
	}{
		{"a pipe", false, func(path string) error { return syscall.Mkfifo(path, 0o600) }},
		{"a directory", false, func(path string) error { return os.Mkdir(path, 0o700) }},
		{"a link", false, func(path string) error { return os.Symlink("precious", path) }},
		{"a link out", false, func(path string) error { return os.Symlink("/dev/zero", path) }},
		{"a device", true, func(path string) error { return syscall.Mknod(path, syscall.S_IFCHR|0o600, 1<<8|5) }}, // zero
		{"another user's file", true, func(path string) error {
			return errors.Join(os.WriteFile(path, nil, 0o666), os.Chown(path, stranger, 0))
		}},
	}
	for _, kind := range kinds {
		t.Run(kind.what, func(t *testing.T) {
			if kind.root {
				asRoot(t)
			}
			dir := t.TempDir()
			s := newStore(t, dir)
			settled(t, s)
			place := func(file string) (path string) {
				path = filepath.Join(dir, file)
				os.Remove(path)
				must(t, os.WriteFile(filepath.Join(filepath.Dir(path), "precious"), []byte("precious"), 0o600), kind.make(path))
				return path
			}
			within(t, "a name's file", func() {
				path := place(filepath.Join(namesDir, fileName("n")))
				_, err := s.Join(patient(t), "n", claim(time.Minute))
				denied(t, "join", err, path)
				_, err = s.Inspect(patient(t), "n")
				denied(t, "inspect", err, path)
			})
			within(t, "a lock file", func() {
				path := place(s.shardOf("m").file)
				_, err := s.Join(patient(t), "m", claim(time.Minute))
				denied(t, "join", err, path)
			})
			within(t, "a Store's file", func() {
				id := lease.NewID()
				place(filepath.Join(aliveDir, id))
				if s.dead(id) {
					t.Error("what cannot be looked at counts as dead")
				}
			})
			within(t, "housekeeping", func() {
				place(sweptFile)
				place(spareFile)
				s.setAside()
				s.sweep()
			})
			within(t, "the first file", func() {
				path := place(bootFile)
				_, err := New(dir, Options{})
				denied(t, "New", err, path)
			})
			for _, sub := range []string{"", namesDir, aliveDir} {
				if text, err := os.ReadFile(filepath.Join(dir, sub, "precious")); string(text) != "precious" {
					t.Errorf("%s/precious is %q now, %v", sub, text, err)
				}
			}
		})
	}
}

// What chmod -R has opened is closed again before anything is in it.
func TestOpenedFilesAreClosedAgain(t *testing.T) {
	dir := t.TempDir()
	s := newStore(t, dir)
	c := claim(time.Minute)
	join(t, s, "n", c)
	leave(t, s, "n", c.ID, lease.Seal{})
	s.Close()
	lock := s.shardOf("n").file
	for _, file := range []string{namesDir, aliveDir, wakeDir, lock} {
		must(t, os.Chmod(filepath.Join(dir, file), 0o755))
	}
	s = newStore(t, dir)
	join(t, s, "n", claim(time.Minute))
	for _, file := range []string{namesDir, aliveDir, wakeDir, lock} {
		info, err := os.Lstat(filepath.Join(dir, file))
		if err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s is open to others: %v, %v", file, info.Mode(), err)
		}
	}
}
