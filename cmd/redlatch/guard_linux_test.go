package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/redlatch/redlatch/internal/servertest"
)

// clan is a command that does not end on TERM, with relatives of all kinds, who do not
// either: in its group, in another group, in a session of their own, orphans in a session
// of their own, and one who is stopped. All write down who they are.
const clan = `
trap "" TERM HUP INT
stay='trap "" TERM HUP INT; echo $$ >>"$0"; while :; do sleep 0.5; done'
sh -c "$stay" "$PIDS" &
setsid sh -c "$stay" "$PIDS" &
(setsid sh -c "$stay" "$PIDS" &)
(sh -c "setsid sh -c '(sh -c \"\$1\" \"\$2\" &)' sh \"\$1\" \"\$2\"" sh "$stay" "$PIDS" &)
sh -c "echo \$\$ >>\"\$0\"; kill -STOP \$\$; while :; do sleep 0.5; done" "$PIDS" &
setsid sh -c "echo \$\$ >>\"\$0\"; kill -STOP \$\$; while :; do sleep 0.5; done" "$PIDS" &
echo $$ >>"$PIDS"
while :; do sleep 0.5; done`

const clanSize = 7

// relatives are the processes of one clan.
type relatives struct {
	t    *testing.T
	file string
	pids []int
}

// startClan starts redlatch with a clan, and waits until all are there.
func startClan(t *testing.T, store string, flags ...string) (*proc, *relatives) {
	t.Helper()
	r := &relatives{t: t, file: filepath.Join(t.TempDir(), "pids")}
	p := startEnv(t, environ(urlVariable+"="+store, "PIDS="+r.file), append(append([]string{"run"}, flags...), "-c", clan, "x")...)
	t.Cleanup(func() {
		for _, pid := range r.pids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	servertest.Eventually(t, patience, "the clan", func() bool {
		text, _ := os.ReadFile(r.file)
		r.pids = nil
		for _, field := range strings.Fields(string(text)) {
			pid, err := strconv.Atoi(field)
			if err != nil {
				t.Fatal(err)
			}
			r.pids = append(r.pids, pid)
		}
		return len(r.pids) == clanSize
	})
	return p, r
}

// state is what the kernel says a process does; 0 if there is none.
func state(pid int) byte {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	return text[strings.LastIndexByte(string(text), ')')+2]
}

func runs(pid int) bool {
	s := state(pid)
	return s != 0 && s != 'Z' && s != 'X'
}

// alive are those who still run.
func (r *relatives) alive() []int {
	var left []int
	for _, pid := range r.pids {
		if runs(pid) {
			left = append(left, pid)
		}
	}
	return left
}

func (r *relatives) gone() {
	r.t.Helper()
	servertest.Eventually(r.t, patience, "the clan's end", func() bool { return len(r.alive()) == 0 })
}

func (r *relatives) mustBeGone() {
	r.t.Helper()
	if left := r.alive(); len(left) > 0 {
		r.t.Errorf("%d of %d still run: %v of %v", len(left), clanSize, left, r.pids)
	}
}

// children are the processes that somebody has started.
func children(t *testing.T, pid int) map[int]string {
	t.Helper()
	list, err := exec.Command("ps", "-A", "-o", "pid=,ppid=,comm=").Output()
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[int]string)
	for line := range strings.Lines(string(list)) {
		if f := strings.Fields(line); len(f) >= 3 && f[1] == strconv.Itoa(pid) {
			child, err := strconv.Atoi(f[0])
			if err != nil {
				t.Fatal(err)
			}
			found[child] = f[2]
		}
	}
	return found
}

// guard is the process ID of the program's guard.
func (p *proc) guard() int {
	p.t.Helper()
	for pid, name := range children(p.t, p.cmd.Process.Pid) {
		if name == "rl-guard" {
			return pid
		}
	}
	p.t.Fatal("there is no guard")
	return 0
}

// nobodyElse is a command that fails if anybody of the clan still runs.
const nobodyElse = `for p in $(cat "$PIDS"); do if grep -qs '^State:.[^ZX]' /proc/$p/status; then echo "$p still runs"; exit 9; fi; done`

// next waits for the lock and looks whether it is alone.
func (r *relatives) next(store string) *proc {
	return startEnv(r.t, environ(urlVariable+"="+store, "PIDS="+r.file), "run", "-w", "forever", "-c", nobodyElse, "x")
}

// TestTheGuardEndsAllWhenWeAreKilled is also about the lock in files: that is free as soon
// as its holder is dead, so the guard must keep it until the last of the clan is.
func TestTheGuardEndsAllWhenWeAreKilled(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, store string) {
		for _, grace := range []string{"0", "0.8"} {
			p, clan := startClan(t, store, "--ttl", "6s", "--grace", grace)
			guard := p.guard()
			next := clan.next(store)
			next.says(&next.err, "waiting for x")
			p.signal(syscall.SIGKILL)
			next.want(0)
			clan.mustBeGone()
			servertest.Eventually(t, patience, "the guard's end", func() bool { return !runs(guard) })
		}
	})
}

// TestTheGuardLetsTheCommandCleanUp: it asks first, when we are dead and when we are late.
func TestTheGuardLetsTheCommandCleanUp(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		signal string
		flags  []string
		harm   syscall.Signal
	}{
		{"TERM", nil, syscall.SIGKILL},
		{"USR2", []string{"--on-lost", "usr2"}, syscall.SIGKILL},
		{"TERM", []string{"--ttl", "4.5s", "--grace", "0.5"}, syscall.SIGSTOP},
	} {
		file := filepath.Join(t.TempDir(), "cleaned")
		p := startEnv(t, environ(urlVariable+"="+redisURL(t), "FILE="+file), append(append([]string{"run"}, c.flags...),
			"-c", `trap 'echo done >"$FILE"; exit' `+c.signal+`; echo ready; while :; do sleep 0.02; done`, "x")...)
		p.says(&p.out, "ready")
		p.signal(c.harm)
		servertest.Eventually(t, patience, fmt.Sprintf("the command to clean up on %s after %v", c.signal, c.harm), func() bool {
			text, _ := os.ReadFile(file)
			return string(text) == "done\n"
		})
		_ = p.cmd.Process.Signal(syscall.SIGCONT) // of a dead one: nothing
		p.code()
	}
}

// TestACommandMayOutliveItsFirstLease: the guard is told of the renewals.
func TestACommandMayOutliveItsFirstLease(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, store string) {
		p := start(t, store, "run", "--ttl", "3.3s", "--grace", "0", "x", "--", "sh", "-c", "sleep 4.5; exit 3").want(3)
		if p.err.String() != "" {
			t.Errorf("it says %q", p.err.String())
		}
	})
}

// TestAStoppedCommandIsAskedToo: it hears only when it is continued.
func TestAStoppedCommandIsAskedToo(t *testing.T) {
	t.Parallel()
	const command = `trap 'echo cleaned >"$FILE"; exit' TERM; echo $$; kill -STOP $$; while :; do sleep 0.02; done`
	for _, who := range []string{"redlatch", "the guard"} {
		file := filepath.Join(t.TempDir(), "cleaned")
		p := startEnv(t, environ(urlVariable+"="+redisURL(t), "FILE="+file), "run", "--ttl", "5m", "--grace", "1m", "--max-runtime", "1", "-c", command, "x")
		pid := p.number()
		servertest.Eventually(t, patience, "the command to stop", func() bool { return state(pid) == 'T' })
		if who == "redlatch" {
			p.want(codeMaxRuntime)
		} else {
			p.signal(syscall.SIGKILL)
		}
		servertest.Eventually(t, patience, who+" to ask the command", func() bool {
			text, _ := os.ReadFile(file)
			return string(text) == "cleaned\n"
		})
	}
}

// TestTheGuardEndsAllWhenWeDoNotRun stops redlatch, which then renews nothing.
func TestTheGuardEndsAllWhenWeDoNotRun(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, store string) {
		p, clan := startClan(t, store, "--ttl", "4.5s", "--grace", "0.5")
		next := clan.next(store)
		next.says(&next.err, "waiting for x")
		p.signal(syscall.SIGSTOP)
		next.want(0)
		clan.mustBeGone()
		p.signal(syscall.SIGCONT)
		p.want(codeLost)
		has(t, p.err.String(), "LOST x")
	})
}

// Nobody reads what redlatch says, and the pipe is full: that keeps nothing from ending, and
// no lock held. The lease would last for an hour.
func TestNobodyReadsTheMessages(t *testing.T) {
	t.Parallel()
	store := redisURL(t)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { read.Close(); write.Close() })
	full := int(write.Fd())
	if err := syscall.SetNonblock(full, true); err != nil {
		t.Fatal(err)
	}
	for n := 4096; n > 0; {
		if _, err := syscall.Write(full, make([]byte, n)); err != nil {
			n /= 2
		}
	}
	if err := syscall.SetNonblock(full, false); err != nil {
		t.Fatal(err)
	}
	clan := &relatives{t: t, file: filepath.Join(t.TempDir(), "pids")}
	p := exec.Command(binary, "run", "--ttl", "1h", "--max-runtime", "0.5", "--grace", "0.5", "-c", "echo $$ >$PIDS; exec 2>/dev/null; trap '' TERM; while :; do sleep 0.02; done", "x")
	p.Env, p.Stderr = environ(urlVariable+"="+store, "PIDS="+clan.file), write
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Process.Kill(); _ = p.Wait() })
	servertest.Eventually(t, patience, "the command", func() bool {
		text, _ := os.ReadFile(clan.file)
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		clan.pids = []int{pid}
		return err == nil
	})
	clan.gone()
	if err := p.Wait(); p.ProcessState.ExitCode() != codeMaxRuntime {
		t.Errorf("ended with %v, want exit code %d", err, codeMaxRuntime)
	}
	start(t, store, "run", "x", "--", "true").want(0)
}

// TestTheGuardIsKilled leaves redlatch to itself.
func TestTheGuardIsKilled(t *testing.T) {
	t.Parallel()
	store := redisURL(t)
	t.Run("the command goes on", func(t *testing.T) {
		p := start(t, store, "run", "-c", `trap 'exit 5' USR1; echo $$; while :; do sleep 0.02; done`, "a")
		p.number()
		if err := syscall.Kill(p.guard(), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		p.says(&p.err, "the guard was killed; pid")
		start(t, store, "is-held", "a").want(0)
		p.signal(syscall.SIGUSR1)
		p.want(5)
		start(t, store, "is-held", "a").want(codeFree)
	})
	t.Run("all end in time", func(t *testing.T) {
		p, clan := startClan(t, store, "--max-runtime", "3", "--grace", "0.3")
		if err := syscall.Kill(p.guard(), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		p.want(codeMaxRuntime)
		clan.mustBeGone()
	})
	t.Run("a guard that is stopped hides nothing", func(t *testing.T) {
		p, clan := startClan(t, store, "--max-runtime", "3", "--grace", "0.3")
		if err := syscall.Kill(p.guard(), syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		p.want(codeMaxRuntime)
		clan.mustBeGone()
	})
}

// TestTheGuardIsNotHitByName: those who kill all that is called redlatch, or all that has
// the command's name in it, do not kill the guard.
func TestTheGuardIsNotHitByName(t *testing.T) {
	t.Parallel()
	p := start(t, redisURL(t), "run", "-c", `echo $$; exec sleep 100`, "x")
	p.number()
	for _, file := range []string{"comm", "cmdline"} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", p.guard(), file))
		if err != nil {
			t.Fatal(err)
		}
		if got := string(text); !strings.HasPrefix(got, "rl-guard") || strings.Contains(got, "redlatch") || strings.Contains(got, "sleep") {
			t.Errorf("its %s is %q", file, got)
		}
	}
}

// TestLostMeansAllOfThem has the lock lost, and the time over, under a clan.
func TestLostMeansAllOfThem(t *testing.T) {
	t.Parallel()
	for _, guard := range [][]string{nil, {"--no-guard"}} {
		t.Run(strings.Join(guard, ""), func(t *testing.T) {
			t.Parallel()
			server := servertest.Redis(t, servertest.RedisConfig{})
			p, clan := startClan(t, server.URL(), append(slices.Clone(guard), "--ttl", "4.5s", "--grace", "0.3")...)
			if _, err := server.Do("DEL", "lock:x"); err != nil {
				t.Fatal(err)
			}
			p.want(codeLost)
			clan.mustBeGone()

			p, clan = startClan(t, server.URL(), append(slices.Clone(guard), "--max-runtime", "3", "--grace", "0.3")...)
			p.want(codeMaxRuntime)
			clan.mustBeGone()
		})
	}
}

// TestOrphansAreBuried: whoever starts many short-lived processes that lose their parents
// does not fill the table of processes.
func TestOrphansAreBuried(t *testing.T) {
	t.Parallel()
	for _, guard := range [][]string{nil, {"--no-guard"}} {
		p := start(t, redisURL(t), append(append([]string{"run"}, guard...), "-c", `for i in 1 2 3 4 5; do (setsid sh -c true &); done; echo $$; read x; exec sleep 100`, "x")...)
		p.number()
		parent := p.cmd.Process.Pid
		if guard == nil {
			parent = p.guard()
		}
		servertest.Eventually(t, patience, "the orphans' burial", func() bool {
			for pid := range children(t, parent) {
				if state(pid) == 'Z' {
					return false
				}
			}
			return true
		})
	}
}

// TestNobodyIsLeft: neither the guard nor a thread that waits for it.
func TestNobodyIsLeft(t *testing.T) {
	t.Parallel()
	p := start(t, "mem:", "run", "-c", `echo $PPID`, "x")
	guard := p.number()
	p.want(0)
	if runs(guard) {
		t.Error("the guard is still there")
	}
}

// TestWhatIsOpenStaysOpen: what our caller has opened for the command reaches it, and
// nothing of ours does.
func TestWhatIsOpenStaysOpen(t *testing.T) {
	t.Parallel()
	for _, guard := range []string{"", "--no-guard"} {
		for _, store := range []string{redisURL(t), "file:" + t.TempDir()} {
			run := fmt.Sprintf(`open() { "$@" 5>&1 7>/dev/null 3<<END
kept
END
}
look='cat <&3; ls /proc/$$/fd'
open sh -c "$look"; echo; open "$0" run %s x -- sh -c "$look"`, guard)
			p := exec.Command("sh", "-c", run, binary)
			p.Env = environ(urlVariable + "=" + store)
			out, err := p.CombinedOutput()
			without, with, _ := strings.Cut(string(out), "\n\n")
			if err != nil || !strings.HasPrefix(with, "kept\n") || strings.TrimSpace(with) != without {
				t.Errorf("with %q the command sees %q, %v", guard, out, err)
			}
		}
	}
}

func TestEveryExitCode(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("sh", "-c", `i=0; while [ $i -le 255 ]; do "$0" -q --store mem: run x -- sh -c "exit $i"; [ $? = $i ] || echo "$i"; i=$((i + 1)); done`, binary).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("not passed on: %q, %v", out, err)
	}
}

func TestEverySignalThatEndsACommand(t *testing.T) {
	t.Parallel()
	for sig := syscall.Signal(1); sig <= 64; sig++ {
		switch sig {
		case syscall.SIGCHLD, syscall.SIGCONT, syscall.SIGSTOP, syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU, syscall.SIGURG, syscall.SIGWINCH, 32, 33:
			continue // which end nobody, or are the C library's own
		}
		start(t, "mem:", "run", "x", "--", "sh", "-c", fmt.Sprintf("ulimit -c 0; kill -%d $$", sig)).want(128 + int(sig))
	}
}

// TestTheFirstProcess runs redlatch as a container does.
func TestTheFirstProcess(t *testing.T) {
	t.Parallel()
	for _, guard := range []string{"", "--no-guard"} {
		p := &proc{t: t, ended: make(chan struct{}), cmd: exec.Command("unshare", "-pf", "--mount-proc", "--kill-child", "sh", "-c", fmt.Sprintf(`exec "$0" run %s -c "$1" x`, guard), binary,
			`trap 'echo got TERM; exit 9' TERM
[ "$(cat /proc/1/comm)" = redlatch ] || exit 1
for i in 1 2 3; do (setsid sh -c "sleep 0.01" &); done
while ps -A -o stat= | grep -q Z; do sleep 0.02; done
echo ready
while :; do sleep 0.02; done`)}
		p.cmd.Env = environ(urlVariable + "=mem:")
		p.run()
		p.says(&p.out, "ready")
		for first := range children(t, p.cmd.Process.Pid) {
			if err := syscall.Kill(first, syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
		}
		p.want(9)
		has(t, p.out.String(), "got TERM")
	}
}

// TestTheFirstProcessSeesAnotherProc: where /proc shows another container's processes,
// their numbers mean nothing, and the group is what there is.
func TestTheFirstProcessSeesAnotherProc(t *testing.T) {
	t.Parallel()
	p := &proc{t: t, ended: make(chan struct{}), cmd: exec.Command("unshare", "-pf", "--kill-child", binary, "run", "--max-runtime", "0.5", "--grace", "0.2", "-c", stubborn, "x")}
	p.cmd.Env = environ(urlVariable + "=mem:")
	p.run()
	p.want(codeMaxRuntime)
}
