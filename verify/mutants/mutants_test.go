package mutants

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// A protection that was rewritten takes its mutant along, or CI says so.
func TestEveryMutantCanBeCarriedOut(t *testing.T) {
	copied := make(map[string]bool)
	dir := t.TempDir()
	names := make(map[string]bool)
	for _, m := range All() {
		if key := m.File + ": " + m.Name; names[key] {
			t.Errorf("%q stands twice", key)
		} else {
			names[key] = true
		}
		if !copied[m.File] {
			copied[m.File] = true
			text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(m.File)))
			if err != nil {
				t.Fatal(err)
			}
			to := filepath.Join(dir, filepath.FromSlash(m.File))
			if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(to, text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		undo, err := m.Apply(dir)
		if err != nil {
			t.Errorf("%s: %v", m.Name, err)
			continue
		}
		if err := undo(); err != nil {
			t.Fatal(err)
		}
		if err := hasTest(m); err != nil {
			t.Errorf("%s: %v", m.Name, err)
		}
	}
}

// hasTest reports a Run that matches no test of the package, in any of its alternatives.
func hasTest(m Mutant) error {
	files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(m.Dir), "*_test.go"))
	if err != nil {
		return err
	}
	var tests []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for _, found := range regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`).FindAllStringSubmatch(string(text), -1) {
			tests = append(tests, found[1])
		}
	}
	for _, run := range strings.Split(m.Run, "|") {
		first, _, _ := strings.Cut(run, "/")
		pattern, err := regexp.Compile(first)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(tests, pattern.MatchString) {
			return fmt.Errorf("no test in %s matches %s", m.Dir, run)
		}
	}
	return nil
}

// The rules that stand in the design: one without a mutant is not known to be needed.
func TestEveryRuleHasAMutant(t *testing.T) {
	rules := []string{
		"6.1", "6.2", "6.3", "6.4", "6.5", "6.6", "6.7", "6.8", "6.9", "6.10",
		"7 keys", "7 join", "7 release", "7 order", "7 subscription", "7 ticket", "7 grant", "7 nets", "7 break", "7 scripts",
		"8 quorum", "8 fence", "files",
	}
	for _, rule := range rules {
		if !slices.ContainsFunc(All(), func(m Mutant) bool { return m.Rule == rule }) {
			t.Errorf("rule %s has no mutant", rule)
		}
	}
}
