//go:build unix

package main

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// go test ./cmd/redlatch -run TestHelp -update writes the pages anew.
var update = flag.Bool("update", false, "write testdata/help anew")

func TestHelp(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"", "run", "flock", "acquire", "renew", "release", "hold", "who", "ls", "is-held", "wait", "break", "keys", "config", "config show", "config path", "config init", "version", "completion", "man"} {
		args, file := []string{"--help"}, "redlatch"
		if command != "" {
			args, file = append(strings.Fields(command), "--help"), strings.ReplaceAll(command, " ", "-")
		}
		p := start(t, "", args...).want(0)
		if p.err.String() != "" {
			t.Errorf("%q prints %q on stderr", args, p.err.String())
		}
		path := filepath.Join("testdata", "help", file+".txt")
		if *update {
			if err := os.WriteFile(path, []byte(p.out.String()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if p.out.String() != string(want) {
			t.Errorf("the help of %q is not what %s has; see what -update changes there", command, path)
		}
		if command != "" {
			if got := start(t, "", append([]string{"help"}, strings.Fields(command)...)...).want(0).out.String(); got != p.out.String() {
				t.Errorf("redlatch help %s prints something else: %q", command, got)
			}
		}
	}
}
