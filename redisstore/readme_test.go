package redisstore

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The README's lines make a module of somebody else's build with this clone, and what stands
// there for a Go program is one that builds.
func TestTheReadmesModule(t *testing.T) {
	clone, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(clone, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "```sh\ngo mod edit")
	lines, _, _ := strings.Cut(rest, "```")
	if !found {
		t.Fatal("README.md does not say how to use a clone")
	}
	_, rest, found = strings.Cut(string(text), "```go\n")
	program, _, _ := strings.Cut(rest, "```")
	if !found {
		t.Fatal("README.md has no Go program")
	}

	dir := t.TempDir()
	source := "package main\n\nimport (\n\t\"context\"\n\t\"errors\"\n\t\"log\"\n\t\"time\"\n\n\t\"github.com/redis/go-redis/v9\"\n\n" +
		"\t\"github.com/redlatch/redlatch\"\n\t\"github.com/redlatch/redlatch/redisstore\"\n)\n\n" +
		"type order struct{}\n\nfunc ship(context.Context, order, uint64) error { return nil }\n\n" +
		"func work(ctx context.Context, order order) (any, any) {\n" + program + "\treturn held, err\n}\n\nfunc main() { work(context.Background(), order{}) }\n"
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	script := "set -e\ngo mod init example.com/mine\ngo mod edit" + strings.ReplaceAll(lines, "../redlatch", clone) + "go build -o program .\n"
	cmd := exec.Command("sh", "-c", script)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s\n%s", err, out, source)
	}
}
