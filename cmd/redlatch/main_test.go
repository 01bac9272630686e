//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/servertest"
)

// binary is what all tests run: the program as users have it.
var binary string

func TestMain(m *testing.M) {
	ownSignals()
	dir, err := os.MkdirTemp("", "redlatch-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	binary = filepath.Join(dir, "redlatch")
	build := exec.Command("go", "build", "-o", binary, ".")
	build.Stderr = os.Stderr
	code := 1
	if err := build.Run(); err == nil {
		code = m.Run()
	}
	os.RemoveAll(dir)
	os.Exit(code)
}

// ownSignals makes what the tests start deaf to nothing. Signals that are ignored where a
// program starts stay ignored in what it runs: under nohup, or in the background of a
// script, redlatch would rightly not pass them on. A signal that this process handles
// is its children's own again.
func ownSignals() {
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT)
	go func() {
		<-end
		os.Exit(1)
	}()
}

// patience is for what another process does by itself, in its own time.
const patience = 20 * time.Second

// output is what a process prints, to be read while it does.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// proc is one redlatch.
type proc struct {
	t        *testing.T
	cmd      *exec.Cmd
	out, err output
	ended    chan struct{}
}

// environ is a clean environment, with more.
func environ(more ...string) []string {
	return append([]string{"PATH=" + os.Getenv("PATH"), "HOME=/nowhere", "TMPDIR=" + os.TempDir()}, more...)
}

// start starts redlatch on the store.
func start(t *testing.T, store string, args ...string) *proc {
	t.Helper()
	var env []string
	if store != "" {
		env = []string{urlVariable + "=" + store}
	}
	return startEnv(t, environ(env...), args...)
}

func startEnv(t *testing.T, env []string, args ...string) *proc {
	t.Helper()
	p := &proc{t: t, cmd: exec.Command(binary, args...), ended: make(chan struct{})}
	p.cmd.Env = env
	p.run()
	return p
}

func (p *proc) run() {
	t := p.t
	t.Helper()
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.err
	p.cmd.WaitDelay = 5 * time.Second // for those who hold our pipes open
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait() // ProcessState says it
		close(p.ended)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-p.ended:
		case <-time.After(10 * time.Second):
			_ = p.cmd.Process.Kill()
			t.Errorf("%v does not end when it is told to", p.cmd.Args)
		}
	})
}

// code waits for the end and is the exit code.
func (p *proc) code() int {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(40 * time.Second):
		p.t.Fatalf("%v still runs; stdout %q, stderr %q", p.cmd.Args[1:], p.out.String(), p.err.String())
	}
	return p.cmd.ProcessState.ExitCode()
}

// want waits for the end and compares the exit code.
func (p *proc) want(code int) *proc {
	p.t.Helper()
	if got := p.code(); got != code {
		p.t.Errorf("%q: exit code %d, want %d; stdout %q, stderr %q", p.cmd.Args[1:], got, code, p.out.String(), p.err.String())
	}
	return p
}

// says waits until the process has printed the text.
func (p *proc) says(o *output, text string) *proc {
	p.t.Helper()
	servertest.Eventually(p.t, patience, fmt.Sprintf("%q from %q", text, p.cmd.Args[1:]), func() bool {
		return strings.Contains(o.String(), text)
	})
	return p
}

func (p *proc) signal(sig os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Fatal(err)
	}
}

// has fails unless the text has all parts.
func has(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in %q", part, text)
		}
	}
}

// document parses the last line of a text as JSON.
func document(t *testing.T, text string) map[string]any {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(text), "\n")
	var doc map[string]any
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &doc); err != nil {
		t.Fatalf("%v in %q", err, text)
	}
	return doc
}

// groupGone reports whether nobody of a process group runs any more. One who has ended
// and whose parent has not looked yet does not run.
func groupGone(t *testing.T, group int) bool {
	t.Helper()
	list, err := exec.Command("ps", "-A", "-o", "pgid=,stat=").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(list)) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == strconv.Itoa(group) && f[1][0] != 'Z' {
			return false
		}
	}
	return true
}

// redisURL starts a server.
func redisURL(t *testing.T) string {
	t.Helper()
	return servertest.Redis(t, servertest.RedisConfig{}).URL()
}

// eachStore runs a test on every store that several processes can share.
func eachStore(t *testing.T, test func(t *testing.T, store string)) {
	eachQueue(t, test)
	t.Run("plain", func(t *testing.T) { t.Parallel(); test(t, redisURL(t)+"?plain=true") })
}

// eachQueue runs a test on those whose waiters others can see.
func eachQueue(t *testing.T, test func(t *testing.T, store string)) {
	t.Run("redis", func(t *testing.T) { t.Parallel(); test(t, redisURL(t)) })
	t.Run("file", func(t *testing.T) { t.Parallel(); test(t, "file:"+t.TempDir()) })
}
