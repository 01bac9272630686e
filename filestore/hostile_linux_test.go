package filestore

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redlatch/redlatch/lease"
)

// Another user of the host, with all that the victim's directory lets everybody do: look
// at what is in it. The test binary plays that user.
func TestAnotherUserCanDoNothing(t *testing.T) {
	asRoot(t)
	base, err := os.MkdirTemp("/tmp", "redlatch-hostile-") // t.TempDir's are closed to others above
	must(t, err, os.Chmod(base, 0o755))
	t.Cleanup(func() { os.RemoveAll(base) })
	dir := filepath.Join(base, "locks")
	must(t, os.Mkdir(dir, 0o755))

	s := newStore(t, dir)
	mine, queued := claim(time.Hour), claim(time.Hour)
	held := join(t, s, "n", mine)
	join(t, s, "n", queued)
	sealer := claim(time.Hour)
	join(t, s, "sealed", sealer)
	leave(t, s, "sealed", sealer.ID, lease.Seal{For: time.Hour, Value: "secret"})

	out := asStranger(t, "attack", dir)
	lines := bufio.NewScanner(bytes.NewReader(out))
	tried := 0
	for lines.Scan() {
		if what, ok := strings.CutPrefix(lines.Text(), "could: "); ok {
			t.Errorf("another user could %s", what)
		} else if strings.HasPrefix(lines.Text(), "could not: ") {
			tried++
		}
	}
	if tried < 50 {
		t.Errorf("it tried %d things only:\n%s", tried, out)
	}
	q, err := s.Inspect(t.Context(), "n")
	if err != nil || len(q.Claims) != 2 || q.Claims[0].ID != mine.ID || q.Claims[0].Ticket != held.Ticket {
		t.Errorf("afterwards: %+v, %v", q.Claims, err)
	}
	within(t, "a join afterwards", func() { join(t, s, "other", claim(time.Hour)) })
}

// asStranger runs a part as another user, and returns what it says.
func asStranger(t *testing.T, part string, args ...string) []byte {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", args...) // whose directory is closed to others
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), partEnv+"="+part, "GORACE=atexit_sleep_ms=0")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: stranger, Gid: stranger}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return out
}

func init() { parts["attack"], parts["prepare"] = attack, prepare }

// attack tries whatever can be done to a file, to all of the directory.
func attack(dir string) error {
	try := func(what string, err error) {
		if err == nil {
			fmt.Println("could:", what)
			return
		}
		fmt.Println("could not:", what, err)
	}
	loot, err := os.MkdirTemp("/tmp", "redlatch-loot-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(loot)

	paths := []string{dir}
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if path != dir {
			paths = append(paths, path)
		}
		return nil // as far as it comes
	})
	for _, sub := range []string{namesDir, aliveDir, wakeDir} {
		if _, err := os.ReadDir(filepath.Join(dir, sub)); err == nil {
			fmt.Println("could: list", sub)
		}
	}
	paths = append(paths, filepath.Join(dir, namesDir, "n"), filepath.Join(dir, namesDir, "sealed")) // it can guess
	for i, path := range paths {
		info, err := os.Lstat(path)
		isDir := err == nil && info.IsDir()
		if !isDir {
			_, err := os.ReadFile(path)
			try("read "+path, err)
			f, err := os.OpenFile(path, os.O_WRONLY|syscall.O_NONBLOCK, 0)
			try("write to "+path, err)
			if err == nil {
				f.Close()
			}
			fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_NONBLOCK, 0)
			if err == nil {
				err = syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB)
			}
			try("lock "+path, err)
			stolen := filepath.Join(loot, fmt.Sprint(i))
			if os.Link(path, stolen) == nil { // a second name gives no right
				_, err := os.ReadFile(stolen)
				try("read a second name of "+path, err)
				try("cut a second name of "+path, os.Truncate(stolen, 0))
			}
		} else {
			try("make a file in "+path, os.WriteFile(filepath.Join(path, "planted"), nil, 0o600))
			try("make a link in "+path, os.Symlink("/etc/passwd", filepath.Join(path, "link")))
			try("make a pipe in "+path, syscall.Mkfifo(filepath.Join(path, "pipe"), 0o600))
		}
		try("rename "+path, os.Rename(path, filepath.Join(loot, "moved")))
		try("replace "+path, os.Rename(loot, path))
		try("remove "+path, os.RemoveAll(path))
		try("open the rights of "+path, os.Chmod(path, 0o777))
		try("take "+path, os.Chown(path, stranger, stranger))
	}
	for _, o := range []Options{{}, {OthersMayWrite: true}} {
		s, err := New(dir, o)
		try(fmt.Sprintf("use it as a Store %+v", o), err)
		if err == nil {
			st, err := s.Join(context.Background(), "n", claim(time.Minute))
			try(fmt.Sprintf("join (%v)", st.State), err)
		}
	}
	return nil
}

// A directory that somebody else has prepared, before the victim came, is refused too.
func TestPreparedDirectoryIsRefused(t *testing.T) {
	asRoot(t)
	base, err := os.MkdirTemp("/tmp", "redlatch-hostile-")
	must(t, err, os.Chmod(base, 0o777|os.ModeSticky))
	t.Cleanup(func() { os.RemoveAll(base) })
	dir := filepath.Join(base, "locks")
	asStranger(t, "prepare", dir)
	_, err = New(dir, Options{})
	denied(t, "a prepared directory", err, dir, "user 54321")
	_, err = New(filepath.Join(base, "link", "locks"), Options{})
	if err == nil {
		t.Error("a prepared link was followed")
	}
	if _, err := os.Lstat(filepath.Join(base, "real", "locks")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("something was made behind the link: %v", err)
	}
}

func prepare(dir string) error {
	base := filepath.Dir(dir)
	s, err := New(dir, Options{})
	if err != nil {
		return err
	}
	return errors.Join(s.Close(), os.Chmod(dir, 0o777),
		os.Mkdir(filepath.Join(base, "real"), 0o777), os.Symlink("real", filepath.Join(base, "link")))
}

// A network's file system is one whose kind says so, for the directory and for what is
// mounted inside it. ramfs stands for one here.
func TestFL07NetworkFileSystemIsRefused(t *testing.T) {
	const ramfs = 0x858458f6
	for _, sub := range []string{"", namesDir} {
		dir := t.TempDir()
		must(t, os.MkdirAll(filepath.Join(dir, sub), 0o700))
		mountKind(t, "ramfs", filepath.Join(dir, sub), 0, "mode=700")
		elsewhere[ramfs] = "a test's network"
		_, err := New(dir, Options{})
		forced, forcedErr := New(dir, Options{AnyFileSystem: true})
		delete(elsewhere, ramfs)
		refused(t, err, filepath.Join(dir, sub), "a test's network", "local directory")
		if forcedErr != nil {
			t.Fatalf("asked for: %v", forcedErr)
		}
		forced.Close()
	}
}

// The numbers of linux/magic.h and of the file systems' own sources, as statfs gives them.
func TestKindsOfFileSystems(t *testing.T) {
	for kind, want := range map[uint32]bool{
		0x6969: true, 0x517b: true, 0xff534d42: true, 0xfe534d42: true, 0x01021997: true, 0x65735546: true, 0x00c36400: true, 0x0bd00bd0: true,
		0xef53: false, 0x58465342: false, 0x9123683e: false, 0x01021994: false, 0x794c7630: false, 0x2fc12fc1: false, 0xf15f: false,
	} {
		if got := elsewhere[kind] != ""; got != want {
			t.Errorf("%#x: refused %v, want %v", kind, got, want)
		}
	}
}
