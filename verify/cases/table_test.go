package cases

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	row   = regexp.MustCompile(`(?m)^\| ([A-Z]+)-(\d+) \| (.*) \|$`)
	named = regexp.MustCompile("`(?:(\\S+) )?(Test\\w+)`")
	cased = regexp.MustCompile(`^Test[A-Z]+\d\d`)
)

// collected are the cases of our collection, by section. It skips numbers; sections of what
// is not built yet are missing.
const collected = `TTL 01 02 04 05 07 08 09 11 12 14 15
WD 01 02 03 04 06 07 09 10 12 13 15 16
WK 01 02 03 05 06 08 09 11 12 14 15 17 18 20
CX 01 02 03 04 06 07 09 10
REL 01 02 04 05 07 08 09 11 12 14 15 17
TK 01 02 04 05
SC 01 02 04 05
ACL 01 02 03 04 06 07 09 10
SRV 01 02 03 04
NM 01 02 03 05 06 08 09
CLI 01 02 03 05 06 07 09 10 12 13
FL 01 02 04 05 07 08
CK 01 02 04 05 06
RS 01 02 04 05 07`

func TestTheTablesNameTestsThatExist(t *testing.T) {
	here := tests(t, ".")
	listed := make(map[string]bool)
	rows := make(map[string]bool)
	tables, err := filepath.Glob("README*.md")
	if err != nil || len(tables) == 0 {
		t.Fatalf("no table: %v", err)
	}
	for _, file := range tables {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range row.FindAllStringSubmatch(string(text), -1) {
			id, says := r[1]+"-"+r[2], r[3]
			if rows[id] {
				t.Errorf("%s: %s stands there twice", file, id)
			}
			rows[id] = true
			if strings.TrimSpace(says) == "" {
				t.Errorf("%s: %s has neither a test nor a reason", file, id)
			}
			for _, n := range named.FindAllStringSubmatch(says, -1) {
				dir, name := n[1], n[2]
				switch {
				case dir == "" && !here[name], dir != "" && !tests(t, filepath.Join("..", "..", dir))[name]:
					t.Errorf("%s: %s names %s of %q, which does not exist", file, id, name, dir)
				case dir == "" && cased.MatchString(name) && !strings.Contains(name, r[1]+r[2]):
					t.Errorf("%s: %s names %s, whose case is another one", file, id, name)
				}
				if dir == "" {
					listed[name] = true
				}
			}
		}
	}
	for name := range here {
		if cased.MatchString(name) && !listed[name] {
			t.Errorf("%s plays a case and is in no table", name)
		}
	}
	for _, section := range strings.Split(collected, "\n") {
		ids := strings.Fields(section)
		for _, n := range ids[1:] {
			if id := ids[0] + "-" + n; !rows[id] {
				t.Errorf("%s is in no table", id)
			}
		}
	}
}

// tests are the names of the tests in a directory.
func tests(t *testing.T, dir string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	names := make(map[string]bool)
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") {
				names[f.Name.Name] = true
			}
		}
	}
	return names
}
