//go:build unix

package main

import (
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/servertest"
)

// stubborn is a command that does not end on TERM, and has others who do not either.
const stubborn = `trap "" TERM HUP; (while :; do sleep 1; done) & (sleep 100; sleep 100) & echo $$; while :; do sleep 1; done`

// number is what the process printed: its process ID.
func (p *proc) number() int {
	p.t.Helper()
	p.says(&p.out, "\n")
	line, _, _ := strings.Cut(p.out.String(), "\n")
	n, err := strconv.Atoi(line)
	if err != nil {
		p.t.Fatal(err)
	}
	return n
}

func TestSignalsArePassedOn(t *testing.T) {
	t.Parallel()
	p := start(t, redisURL(t), "run", "-c",
		`for s in HUP INT QUIT USR1 USR2 ABRT ILL TRAP BUS FPE SEGV SYS WINCH CONT; do trap "echo got $s" $s; done; trap 'echo got TERM; exit 9' TERM; echo ready; while :; do sleep 0.02; done`, "x")
	p.says(&p.out, "ready")
	for name, sig := range map[string]syscall.Signal{
		"HUP": syscall.SIGHUP, "INT": syscall.SIGINT, "QUIT": syscall.SIGQUIT, "USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2,
		"ABRT": syscall.SIGABRT, "ILL": syscall.SIGILL, "TRAP": syscall.SIGTRAP, "BUS": syscall.SIGBUS, "FPE": syscall.SIGFPE,
		"SEGV": syscall.SIGSEGV, "SYS": syscall.SIGSYS, "WINCH": syscall.SIGWINCH, "CONT": syscall.SIGCONT,
	} {
		p.signal(sig)
		p.says(&p.out, "got "+name)
	}
	for _, sig := range []syscall.Signal{syscall.SIGPIPE, syscall.SIGALRM} { // which are for nobody here
		p.signal(sig)
	}
	p.signal(syscall.SIGTERM)
	p.want(9)
	has(t, p.out.String(), "got TERM")
}

func TestTheWholeGroupIsStopped(t *testing.T) {
	t.Parallel()
	store := redisURL(t)
	p := start(t, store, "run", "--max-runtime", "0.5", "--grace", "0.3", "-c", stubborn, "x")
	group := p.number()
	p.want(codeMaxRuntime)
	if !groupGone(t, group) {
		t.Error("some of the group still run")
	}
	start(t, store, "is-held", "x").want(codeFree)
}

func TestAskingTwiceKills(t *testing.T) {
	t.Parallel()
	p := start(t, redisURL(t), "run", "--ttl", "10m", "--max-runtime", "0.2", "--grace", "2m", "-c", stubborn, "x")
	group := p.number()
	p.says(&p.err, "stopping pid")
	p.signal(syscall.SIGINT)
	p.want(codeMaxRuntime)
	if !groupGone(t, group) {
		t.Error("some of the group still run")
	}
}

func TestWhatIsLeftBehindEndsWithTheLock(t *testing.T) {
	t.Parallel()
	store := redisURL(t)
	p := start(t, store, "run", "--grace", "0.3", "-c", `(trap "" TERM; sleep 100; sleep 100) >/dev/null 2>&1 & echo $$; exit 6`, "x")
	group := p.number()
	p.want(6)
	has(t, p.err.String(), "left others running", "setsid")
	if !groupGone(t, group) {
		t.Error("some of the group still run")
	}

	// One who ends by himself soon is not disturbed.
	p = start(t, store, "run", "-c", `(sleep 0.05; echo late) & exit 0`, "x").want(0)
	if p.out.String() != "late\n" || p.err.String() != "" {
		t.Errorf("it printed %q and we %q", p.out.String(), p.err.String())
	}

	p = start(t, store, "run", "-c", `setsid sleep 100 >/dev/null 2>&1 & echo $!`, "x")
	left := p.number()
	t.Cleanup(func() { _ = syscall.Kill(left, syscall.SIGKILL) })
	p.want(0)
	if err := syscall.Kill(left, 0); err != nil {
		t.Errorf("who has left the group with setsid was ended too: %v", err)
	}
	start(t, store, "is-held", "x").want(codeFree)
}

func TestADeletedLockStopsTheCommand(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t, servertest.RedisConfig{})
	p := start(t, server.URL(), "run", "--json", "--ttl", "4s", "--grace", "0.2", "-c", stubborn, "x")
	group := p.number()
	if n, err := server.Do("DEL", "lock:x"); err != nil || n != int64(1) {
		t.Fatalf("DEL: %v, %v", n, err)
	}
	p.want(codeLost)
	has(t, p.err.String(), "LOST x after", "TERM, KILL in 200ms")
	if doc := document(t, p.err.String()); doc["outcome"] != "lost" {
		t.Errorf("the result is %v", doc)
	}
	if !groupGone(t, group) {
		t.Error("some of the group still run")
	}
}

func TestTheCommandEndsBeforeItsLeaseWhenTheStoreIsGone(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t, servertest.RedisConfig{})
	const ttl = 4 * time.Second
	p := start(t, server.URL(), "run", "--ttl", "4s", "--grace", "0.2", "-c", stubborn, "x")
	group := p.number()
	server.Kill()
	// The last renewal was before this moment, so nobody can have the lock later than this.
	passesOn := time.Now().Add(ttl)
	servertest.Eventually(t, 30*time.Second, "the end of the group", func() bool { return groupGone(t, group) })
	if late := time.Since(passesOn); late > 0 {
		t.Errorf("the group was alive until %v after others could have had the lock", late)
	}
	p.want(codeLost)
	has(t, p.err.String(), "LOST x after", "no renewal for", "lost lock x: the command was stopped")
}

// TestTheStoreForgetsTheLock has the lock go without a word.
func TestTheStoreForgetsTheLock(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		harm func(t *testing.T, server *servertest.RedisServer)
		says string
	}{
		"it was written over": {func(t *testing.T, server *servertest.RedisServer) {
			if _, err := server.Do("SET", "lock:x", "somebody else's"); err != nil {
				t.Fatal(err)
			}
		}, "another program"},
		"it was restarted empty": {func(t *testing.T, server *servertest.RedisServer) {
			server.Kill()
			server.Restart()
		}, "LOST x after"},
		"it was flushed": {func(t *testing.T, server *servertest.RedisServer) {
			if _, err := server.Do("FLUSHALL"); err != nil {
				t.Fatal(err)
			}
		}, "LOST x after"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			server := servertest.Redis(t, servertest.RedisConfig{})
			p := start(t, server.URL(), "run", "--ttl", "4s", "--grace", "0.2", "-c", stubborn, "x")
			group := p.number()
			c.harm(t, server)
			p.want(codeLost)
			has(t, p.err.String(), "LOST x after", c.says)
			if !groupGone(t, group) {
				t.Error("some of the group still run")
			}
		})
	}
}

// leaseLeft is how long the server keeps the lock x.
func leaseLeft(server *servertest.RedisServer) (time.Duration, error) {
	n, err := server.Do("PTTL", "lock:x")
	if err != nil {
		return 0, err
	}
	return time.ParseDuration(fmt.Sprint(n, "ms"))
}

// TestAnOutageThatIsShortHurtsNobody stops the server for less than the lease.
func TestAnOutageThatIsShortHurtsNobody(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t, servertest.RedisConfig{})
	p := start(t, server.URL(), "run", "-v", "--ttl", "6s", "--grace", "0.2", "-c", `trap 'exit 3' USR1; echo $$; while :; do sleep 0.02; done`, "x")
	p.number()
	left := func() time.Duration {
		d, err := leaseLeft(server)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	ends := time.Now().Add(left())
	server.Stop()
	// A renewal is due when a third is over, and may take a sixth.
	servertest.Eventually(t, patience, "a renewal to fail", func() bool { return time.Until(ends) < 3*time.Second })
	server.Continue()
	servertest.Eventually(t, patience, "a renewal", func() bool { return left() > 5*time.Second })
	p.signal(syscall.SIGUSR1)
	p.want(3)
}

func TestOnLostWarn(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t, servertest.RedisConfig{})
	p := start(t, server.URL(), "run", "--ttl", "4s", "--grace", "0.2", "--on-lost", "warn", "--json", "-c", `trap 'exit 8' USR1; echo $$; while :; do sleep 0.05; done`, "x")
	p.number()
	if _, err := server.Do("DEL", "lock:x"); err != nil {
		t.Fatal(err)
	}
	p.says(&p.err, "runs on without it")
	p.signal(syscall.SIGUSR1)
	p.want(8)
	if doc := document(t, p.err.String()); doc["outcome"] != "lost" || doc["exit_code"] != 8.0 || doc["error"] == nil {
		t.Errorf("the result is %v", doc)
	}
}

func TestOnLostSignal(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t, servertest.RedisConfig{})
	p := start(t, server.URL(), "run", "--ttl", "40s", "--grace", "10s", "--on-lost", "usr2", "-c", `trap 'echo told; exit 0' USR2; echo $$; while :; do sleep 0.05; done`, "x")
	p.number()
	if _, err := server.Do("DEL", "lock:x"); err != nil {
		t.Fatal(err)
	}
	p.want(codeLost)
	has(t, p.out.String(), "told")
}

// TestNohup is started with SIGHUP ignored, and so is its command.
func TestNohup(t *testing.T) {
	t.Parallel()
	p := &proc{t: t, cmd: exec.Command("sh", "-c", `trap "" HUP; exec "$@"`, "sh", binary, "run", "-c", `echo ready; read x; exit 3`, "x"), ended: make(chan struct{})}
	p.cmd.Env = environ(urlVariable + "=" + redisURL(t))
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.run()
	p.says(&p.out, "ready")
	p.signal(syscall.SIGHUP)
	if _, err := io.WriteString(stdin, "go on\n"); err != nil {
		t.Fatal(err)
	}
	p.want(3)
}
