//go:build unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestManualsAreWhatManReads formats each page with groff, which warns of what is wrong,
// and looks for all of the help in it.
func TestManualsAreWhatManReads(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	start(t, "", "man", "--dir", dir).want(0)
	pages, err := filepath.Glob(filepath.Join(dir, "*.1"))
	if err != nil || len(pages) < 15 {
		t.Fatalf("the pages are %q, %v", pages, err)
	}
	for _, page := range pages {
		words := strings.Split(strings.TrimSuffix(filepath.Base(page), ".1"), "-")[1:]
		if filepath.Base(page) == "redlatch-is-held.1" {
			words = []string{"is-held"}
		}
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		if printed := start(t, "", append([]string{"man"}, words...)...).want(0).out.String(); printed != string(text) {
			t.Errorf("redlatch man %q prints something else than %s has", words, page)
		}
		read := squeezed(rendered(t, page))
		for line := range strings.Lines(start(t, "", append(words, "--help")...).want(0).out.String()) {
			if strings.HasPrefix(line, "  ") && !strings.HasPrefix(line, "      -") && !strings.HasPrefix(line, "  -") {
				for _, word := range strings.Fields(line) {
					if !strings.Contains(read, word) {
						t.Errorf("%s lacks %q of the help", page, word)
					}
				}
			}
		}
	}
	start(t, "", "man", "nothing").want(codeUsage)
	has(t, start(t, "", "man", "rnu").want(codeUsage).err.String(), "did you mean")
	start(t, "", "man", "--dir", "/nowhere").want(codeInternal)
}

// rendered is a page as man shows it.
func rendered(t *testing.T, page string) string {
	t.Helper()
	var out, warned strings.Builder
	cmd := exec.Command("groff", "-man", "-Tutf8", "-ww", "-P-c", "-rLL=200n", page)
	cmd.Stdout, cmd.Stderr = &out, &warned
	if err := cmd.Run(); err != nil || warned.Len() > 0 {
		t.Errorf("%s: %v: %s", page, err, warned.String())
	}
	return out.String()
}

// squeezed is without the backspaces by which terminals of old printed bold.
func squeezed(s string) string {
	var b []rune
	for _, r := range s {
		if r == '\b' && len(b) > 0 {
			b = b[:len(b)-1]
			continue
		}
		b = append(b, r)
	}
	return string(b)
}
