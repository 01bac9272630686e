package mutants

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// What docs/safety.md lets a reader run is there to be run.
func TestTheDocsNameWhatExists(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "safety.md"))
	if err != nil {
		t.Fatal(err)
	}
	shown := 0
	for _, m := range regexp.MustCompile("`-only '([^']+)'`").FindAllStringSubmatch(string(text), -1) {
		shown++
		pattern, err := regexp.Compile(m[1])
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(All(), func(m Mutant) bool { return pattern.MatchString(m.Name) }) {
			t.Errorf("there is no mutant %q", m[1])
		}
	}
	for _, m := range regexp.MustCompile("`(Test\\w+)` in `([^`]+)`").FindAllStringSubmatch(string(text), -1) {
		shown++
		if err := hasTest(Mutant{Dir: m[2], Run: m[1]}); err != nil {
			t.Error(err)
		}
	}
	if rows := strings.Count(string(text), "| `"); shown < 25 || rows < 20 {
		t.Errorf("only %d commands were found: the table has another form", shown)
	}
}
