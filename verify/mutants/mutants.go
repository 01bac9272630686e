// Package mutants is the list of redlatch's protections, each with a change that takes it
// out: the suite named beside it must then fail. The command cmd/mutants carries them out
// on a copy of the tree; the shipped code knows nothing of it.
package mutants

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Mutant is one protection taken out.
type Mutant struct {
	Name string // what the broken program does, as a sentence
	Rule string // where the protection is asked for: a section of the design, or "wire", "files", "cli"

	File     string // from the root of the repository
	Old, New string // Old stands there once

	Dir string // the package whose tests must fail
	Run string // which of them, as for go test -run
}

// All returns every mutant.
func All() []Mutant {
	var all []Mutant
	for _, some := range [][]Mutant{timeMutants, doubtMutants, redisMutants, fileMutants, simMutants, quorumMutants} {
		all = append(all, some...)
	}
	return all
}

// Apply changes the file under root, and returns what changes it back.
func (m Mutant) Apply(root string) (undo func() error, err error) {
	path := filepath.Join(root, filepath.FromSlash(m.File))
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	switch n := strings.Count(string(text), m.Old); {
	case m.Old == m.New:
		return nil, errors.New("the mutant changes nothing")
	case n != 1:
		return nil, fmt.Errorf("%s: what is to be changed stands there %d times, not once", m.File, n)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(text), m.Old, m.New, 1)), 0o600); err != nil {
		return nil, err
	}
	return func() error { return os.WriteFile(path, text, 0o600) }, nil
}
