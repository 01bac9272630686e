package redlatch_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// pure are the packages of rules: step machines that are told the time and what was answered,
// so that the simulator plays what ships.
var pure = []string{"lease", "internal/vote", "internal/lines"}

func TestRulesHaveNoClockNoGoroutineNoChannel(t *testing.T) {
	for _, dir := range pure {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, error %v", dir, len(files), err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			fset := token.NewFileSet()
			parsed, err := parser.ParseFile(fset, file, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, fault := range impure(parsed) {
				t.Errorf("%s: %s; the package is told the time, and has no goroutine and no channel", fset.Position(fault.pos), fault.what)
			}
		}
	}
}

type impurity struct {
	pos  token.Pos
	what string
}

// impure lists what a step machine must not have.
func impure(file *ast.File) []impurity {
	var found []impurity
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			found = append(found, impurity{n.Pos(), "a goroutine"})
		case *ast.ChanType:
			found = append(found, impurity{n.Pos(), "a channel"})
		case *ast.SelectorExpr:
			if pkg, ok := n.X.(*ast.Ident); ok && pkg.Name == "time" {
				switch n.Sel.Name {
				case "Now", "Since", "Until", "Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick":
					found = append(found, impurity{n.Pos(), fmt.Sprintf("time.%s", n.Sel.Name)})
				}
			}
		}
		return true
	})
	return found
}

func TestAnImpureRuleIsFound(t *testing.T) {
	for source, want := range map[string]int{
		"func f(d time.Duration) time.Duration { return 2 * d }": 0,
		"func f() time.Time { return time.Now() }":               1,
		"func f() { go f() }":                                    1,
		"func f(c chan int) { <-time.After(1) }":                 2,
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x\n"+source, 0)
		if err != nil {
			t.Fatal(err)
		}
		if found := impure(file); len(found) != want {
			t.Errorf("%q: %v, want %d", source, found, want)
		}
	}
}
