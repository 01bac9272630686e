package filestore

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func init() { parts["list"] = list }

// list says which files of the directory this process was started with.
func list(dir string) error {
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, fd := range all {
		if to, err := os.Readlink(filepath.Join("/proc/self/fd", fd.Name())); err == nil && strings.HasPrefix(to, dir) {
			fmt.Println(to)
		}
	}
	return nil
}

// Whatever a Store has open, and it has everything open here, no child has.
func TestFL01NothingIsInherited(t *testing.T) {
	dir := t.TempDir()
	s := newStore(t, dir)
	for i := range 100 {
		join(t, s, fmt.Sprint("n", i), claim(time.Hour))
	}
	line, err := s.Lifeline()
	must(t, err)
	defer line.Close()
	own := 0
	fds, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	for _, fd := range fds {
		if to, _ := os.Readlink(filepath.Join("/proc/self/fd", fd.Name())); strings.HasPrefix(to, dir) {
			own++
		}
	}
	if own < 40 {
		t.Fatalf("it has only %d files open", own)
	}
	p := start(t, "list", dir)
	for {
		inherited, err := p.out.ReadString('\n')
		if err != nil {
			break
		}
		t.Errorf("a child has %s", inherited)
	}
}
