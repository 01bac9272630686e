package drivertest

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/redlatch/redlatch/driver"
)

//go:embed testdata/features.golden
var table string

// UpdateTable is the environment variable that, if not empty, makes [Run] write the
// store's line of testdata/features.golden anew:
//
//	DRIVERTEST_UPDATE=1 go test -run Conformance ./...
//
// What a store can do is a promise. A change that takes something away needs a page in
// decisions/.
const UpdateTable = "DRIVERTEST_UPDATE"

func checkTable(t T, name string, f driver.Features) {
	t.Helper()
	line := tableLine(name, f)
	if os.Getenv(UpdateTable) != "" {
		if err := updateTable(name, line); err != nil {
			t.Fatalf("update the table: %v", err)
		}
		return
	}
	for old := range strings.Lines(table) {
		if nameOf(old) != name {
			continue
		}
		if old != line {
			t.Errorf("the store's features are not those of testdata/features.golden\n store: %s table: %s"+
				"if this is meant, run with %s=1", line, old, UpdateTable)
		}
		return
	}
	t.Errorf("%s has no line in testdata/features.golden; run with %s=1", name, UpdateTable)
}

// tableLine says a store's features in words.
func tableLine(name string, f driver.Features) string {
	words := []string{fmt.Sprintf("%-14s", name)}
	word := func(has bool, w string) {
		if has {
			words = append(words, w)
		}
	}
	word(f.Fence, "fence")
	word(f.FIFO, "fifo")
	for _, m := range f.Modes {
		word(true, m.String())
	}
	word(f.Seal, "seal")
	word(f.Push, "push")
	word(f.WaitersExpire, "waiters-expire")
	word(f.HostOnly, "host-only")
	word(f.ProcessOnly, "process-only")
	word(true, "min-ttl="+f.MinTTL.String())
	return strings.Join(words, " ") + "\n"
}

func nameOf(line string) string {
	name, _, _ := strings.Cut(strings.TrimSpace(line), " ")
	return name
}

func updateTable(name, line string) error {
	_, here, _, _ := runtime.Caller(0)
	file := filepath.Join(filepath.Dir(here), "testdata", "features.golden")
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	lines := slices.DeleteFunc(strings.SplitAfter(string(text), "\n"), func(l string) bool {
		return l == "" || nameOf(l) == name
	})
	lines = append(lines, line)
	slices.Sort(lines)
	return os.WriteFile(file, []byte(strings.Join(lines, "")), 0o644)
}
