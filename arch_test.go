package redlatch_test

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const modulePath = "github.com/redlatch/redlatch"

// layers says which of our packages each package may import. Imports point one way: lease ← driver ← stores and root ← recipes ←
// commands. A store never knows the root or another store. A name that ends in /... stands for the package and all below it.
var layers = map[string][]string{
	".":                   {"lease", "driver", "internal/elapsed"},
	"lease":               {},
	"driver":              {"lease", "internal/elapsed"},
	"drivertest":          {"lease", "driver"},
	"memstore":            {"lease", "driver", "internal/elapsed"},
	"internal/quorum":     {"lease", "driver", "internal/elapsed", "internal/vote"},
	"internal/vote":       {"lease"},
	"filestore":           {"lease", "driver", "internal/elapsed"},
	"redisstore":          {"lease", "driver", "internal/elapsed", "internal/lines"},
	"internal/elapsed":    {"lease"},
	"internal/lines":      {"lease"},
	"internal/redismodel": {},
	"internal/sim/...":    {"lease", "internal/lines", "internal/redismodel"},
	"internal/servertest": {},
	"internal/relay":      {},
	"cmd/redlatch/...":    {".", "lease", "driver", "memstore", "filestore", "redisstore", "internal/elapsed"},
	"verify/...":          {".", "lease", "driver", "drivertest", "memstore", "filestore", "redisstore", "internal/elapsed", "internal/servertest", "internal/relay"},
	"bench/...":           {".", "lease", "driver", "memstore", "filestore", "redisstore", "internal/servertest", "internal/relay"},
}

// forTests may be imported by every test besides.
var forTests = []string{"memstore", "drivertest", "internal/servertest", "internal/relay", "internal/redismodel"}

// ownTests are what the tests of single packages may import besides.
var ownTests = map[string][]string{"internal/quorum": {"."}}

// A source is what the architecture says something about: one Go file.
type source struct {
	dir        string // from the root of the repository, with slashes
	file       string
	rootModule bool
	imports    []string
	documented bool // has a package comment
}

func TestImportsPointOneWay(t *testing.T) {
	sources := readSources(t, ".")
	if len(sources) == 0 {
		t.Fatal("no Go file found")
	}
	for _, fault := range faults(sources) {
		t.Error(fault)
	}
	gomod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if requires(string(gomod)) {
		t.Error("go.mod: the root module requires something; it needs the standard library only")
	}
}

// The rules themselves: each must be able to fail.
func TestWrongArchitectureIsFound(t *testing.T) {
	ours := func(dir string) string { return path.Join(modulePath, dir) }
	tests := []struct {
		what   string
		source source
		want   string
	}{
		{"all is well", source{dir: "driver", imports: []string{"fmt", "net/http", ours("lease")}}, ""},
		{"the root imports a store", source{dir: ".", imports: []string{ours("memstore")}}, "may not import memstore"},
		{"a store imports the root", source{dir: "memstore", imports: []string{ours(".")}}, `may not import "."`},
		{"a store imports another", source{dir: "redisstore", imports: []string{ours("memstore")}}, "may not import memstore"},
		{"the rules import a package", source{dir: "lease", imports: []string{ours("driver")}}, "may not import driver"},
		{"a command knows stores", source{dir: "cmd/redlatch/internal/x", imports: []string{ours("redisstore")}}, ""},
		{"a command shares with its parent", source{dir: "cmd/redlatch", imports: []string{ours("cmd/redlatch/internal/x")}}, ""},
		{"a store knows a command", source{dir: "redisstore", imports: []string{ours("cmd/redlatch")}}, "may not import cmd/redlatch"},
		{"a test uses what is for tests", source{dir: "lease", file: "x_test.go", imports: []string{ours("memstore"), ours("lease")}}, ""},
		{"a test uses what its package may not", source{dir: "lease", file: "x_test.go", imports: []string{ours("driver")}}, "may not import driver"},
		{"code uses what is for tests", source{dir: "redisstore", imports: []string{ours("internal/relay")}}, "may not import internal/relay"},
		{"a package nobody placed", source{dir: "util"}, "not in the table"},
		{"a package below one that was placed alone", source{dir: "lease/util"}, "not in the table"},
		{"no package comment", source{dir: "lease", file: "undocumented.go"}, "no doc comment"},
		{"only tests, no package comment", source{dir: "lease", file: "x_test.go"}, ""},
		{"the root module leans on others", source{dir: "driver", rootModule: true, imports: []string{"golang.org/x/sys/unix"}}, "standard library"},
		{"its tests too", source{dir: "driver", file: "x_test.go", rootModule: true, imports: []string{"golang.org/x/sys/unix"}}, "standard library"},
		{"another module leans on others", source{dir: "redisstore", imports: []string{"github.com/redis/go-redis/v9"}}, ""},
		{"somebody else's package that begins like ours", source{dir: "redisstore", imports: []string{modulePath + "x/lease"}}, ""},
	}
	for _, test := range tests {
		t.Run(test.what, func(t *testing.T) {
			if test.source.file == "" {
				test.source.file, test.source.documented = "x.go", true
			}
			got := strings.Join(faults([]source{test.source}), "\n")
			if test.want == "" && got != "" || !strings.Contains(got, test.want) {
				t.Errorf("faults %q, want %q", got, test.want)
			}
		})
	}
	for gomod, want := range map[string]bool{
		"module m\n\ngo 1.26\n":                    false,
		"module m\n// require x v1\n":              false,
		"module m\nrequire example.com/x v1.0.0\n": true,
		"module m\nrequire (\n\tx.org/x v1.0.0\n)": true,
	} {
		if requires(gomod) != want {
			t.Errorf("requires(%q) = %v", gomod, !want)
		}
	}
}

func faults(sources []source) []string {
	var found []string
	documented := make(map[string]bool)
	for _, s := range sources {
		if !s.isTest() {
			documented[s.dir] = documented[s.dir] || s.documented
		}
		key, placed := place(s.dir)
		if !placed {
			found = append(found, fmt.Sprintf("%s: the package is not in the table of arch_test.go", s.name()))
			continue
		}
		for _, imported := range s.imports {
			if fault := s.judge(key, imported); fault != "" {
				found = append(found, s.name()+": "+fault)
			}
		}
	}
	for dir, ok := range documented {
		if !ok {
			found = append(found, fmt.Sprintf("%s: the package has no doc comment", dir))
		}
	}
	slices.Sort(found)
	return found
}

// judge says what is wrong with an import; nothing is "".
func (s source) judge(key, imported string) string {
	dir, ours := strings.CutPrefix(imported+"/", modulePath+"/")
	if !ours {
		if domain, _, _ := strings.Cut(imported, "/"); s.rootModule && strings.Contains(domain, ".") {
			return fmt.Sprintf("the root module may import the standard library only, not %s", imported)
		}
		return ""
	}
	dir = path.Clean(dir)
	of, _ := place(dir)
	allowed := slices.Contains(layers[key], dir) ||
		of == key && strings.HasSuffix(key, "/...") ||
		s.isTest() && (dir == s.dir || slices.Contains(forTests, dir) || slices.Contains(ownTests[s.dir], dir))
	if allowed {
		return ""
	}
	if dir == "." {
		dir = `"." (the root)`
	}
	return fmt.Sprintf("%s may not import %s: see the table in arch_test.go", s.dir, dir)
}

func (s source) isTest() bool { return strings.HasSuffix(s.file, "_test.go") }

func (s source) name() string { return path.Join(s.dir, s.file) }

// place finds the line of the table that a directory falls under.
func place(dir string) (key string, ok bool) {
	if _, ok := layers[dir]; ok {
		return dir, true
	}
	for up := dir; up != "."; up = path.Dir(up) {
		if _, ok := layers[up+"/..."]; ok {
			return up + "/...", true
		}
	}
	return "", false
}

func requires(gomod string) bool {
	for line := range strings.Lines(gomod) {
		if strings.HasPrefix(line, "require ") || strings.HasPrefix(line, "require(") {
			return true
		}
	}
	return false
}

// readSources reads every Go file of the workspace, whatever system it is for: build constraints hide no import from this test.
func readSources(t *testing.T, root string) []source {
	t.Helper()
	var sources []source
	nested := make(map[string]bool)
	err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() {
			if file == root {
				return nil
			}
			if name == "testdata" || name[0] == '.' || name[0] == '_' {
				return fs.SkipDir
			}
			_, err := os.Stat(filepath.Join(file, "go.mod"))
			nested[file] = err == nil || nested[filepath.Dir(file)]
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly|parser.ParseComments)
		if err != nil {
			return err
		}
		dir := filepath.Dir(file)
		s := source{dir: filepath.ToSlash(dir), file: name, rootModule: !nested[dir], documented: parsed.Doc.Text() != ""}
		for _, spec := range parsed.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			s.imports = append(s.imports, imported)
		}
		sources = append(sources, s)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return sources
}
