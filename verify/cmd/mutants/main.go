//go:build unix

// Command mutants takes redlatch's protections out one by one, on a copy of the tree, and
// says which of them the tests miss.
//
//	go run ./verify/cmd/mutants                  # all: about 15 minutes on 2 cores
//	go run ./verify/cmd/mutants -only 'ticket'   # those whose name or rule matches
//	go run ./verify/cmd/mutants -list
//
// It exits with 1 if a mutant survives. The right program must pass the same tests; the
// suites see to that.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/redlatch/redlatch/verify/mutants"
)

func main() {
	only := flag.String("only", "", "regular expression; only mutants whose name, rule or file matches")
	list := flag.Bool("list", false, "list them and do nothing")
	workers := flag.Int("workers", 2, "mutants at a time, each on its own copy of the tree")
	limit := flag.Duration("limit", 2*time.Minute, "time for one mutant's tests")
	flag.Parse()
	pattern, err := regexp.Compile(*only)
	if err != nil {
		fail(err)
	}
	var chosen []mutants.Mutant
	for _, m := range mutants.All() {
		if pattern.MatchString(m.Name) || pattern.MatchString(m.Rule) || pattern.MatchString(m.File) {
			chosen = append(chosen, m)
		}
	}
	if *list {
		for _, m := range chosen {
			fmt.Printf("%-16s %-60s %s\n", m.Rule, m.Name, m.File)
		}
		return
	}
	root, err := rootDir()
	if err != nil {
		fail(err)
	}
	if survived := hunt(root, chosen, *workers, *limit); survived > 0 {
		fmt.Printf("%d of %d mutants survived\n", survived, len(chosen))
		os.Exit(1)
	}
	fmt.Printf("all %d mutants were killed\n", len(chosen))
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "mutants:", err)
	os.Exit(2)
}

// rootDir is where go.work stands.
func rootDir() (string, error) {
	out, err := exec.CommandContext(context.Background(), "go", "env", "GOWORK").Output()
	if err != nil {
		return "", err
	}
	work := strings.TrimSpace(string(out))
	if work == "" || work == "off" {
		return "", fmt.Errorf("no go.work: run it inside the repository")
	}
	return filepath.Dir(work), nil
}

// hunt returns how many survive, or could not be tried.
func hunt(root string, chosen []mutants.Mutant, workers int, limit time.Duration) (survived int) {
	todo := make(chan mutants.Mutant)
	var mu sync.Mutex
	var work sync.WaitGroup
	for range min(workers, len(chosen)) {
		work.Go(func() {
			dir, err := copyTree(root)
			if err != nil {
				fail(err)
			}
			defer os.RemoveAll(dir)
			for m := range todo {
				began := time.Now()
				verdict, killed := try(dir, m, limit)
				mu.Lock()
				fmt.Printf("%-9s %5.1fs  [%s] %s: %s\n", map[bool]string{true: "killed", false: "SURVIVED"}[killed],
					time.Since(began).Seconds(), m.Rule, m.Name, verdict)
				if !killed {
					survived++
				}
				mu.Unlock()
			}
		})
	}
	for _, m := range chosen {
		todo <- m
	}
	close(todo)
	work.Wait()
	return survived
}

// try carries one out. A mutant that does not compile is not killed: it proves nothing.
func try(dir string, m mutants.Mutant, limit time.Duration) (verdict string, killed bool) {
	undo, err := m.Apply(dir)
	if err != nil {
		return err.Error(), false
	}
	defer func() {
		if err := undo(); err != nil {
			fail(err)
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "-failfast", "-timeout", limit.String(), "-run", m.Run, ".")
	cmd.Dir = filepath.Join(dir, filepath.FromSlash(m.Dir))
	out, err := cmd.CombinedOutput()
	switch {
	case bytes.Contains(out, []byte("[build failed]")), bytes.Contains(out, []byte("[setup failed]")):
		return "does not compile: " + firstLine(out, ".go:"), false
	case bytes.Contains(out, []byte("[no tests to run]")):
		return "no test matches " + m.Run, false
	case err == nil:
		return m.Run + " passes in " + m.Dir, false
	}
	return firstLine(out, "--- FAIL:"), true
}

func firstLine(out []byte, with string) string {
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, with) {
			return strings.TrimSpace(line)
		}
	}
	return "did not end in time"
}

// copyTree copies what is under version control, or would be.
func copyTree(root string) (string, error) {
	dir, err := os.MkdirTemp("", "redlatch-mutants")
	if err != nil {
		return "", err
	}
	return dir, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		to := filepath.Join(dir, rel)
		switch {
		case d.IsDir() && d.Name() == ".git":
			return filepath.SkipDir
		case d.IsDir():
			return os.MkdirAll(to, 0o700)
		case !d.Type().IsRegular():
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(to, text, 0o600)
	})
}
