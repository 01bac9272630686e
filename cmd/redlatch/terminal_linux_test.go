package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/redlatch/redlatch/internal/servertest"
)

// terminal opens a new terminal: who types and reads, and what the program gets.
func terminal(t *testing.T) (person, program *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { person.Close() })
	if err := unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(person.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { program.Close() })
	return person, program
}

// atTerminal runs a command line in a shell with job control at a terminal, and reads
// what is printed there.
func atTerminal(t *testing.T, store, script string) (person *os.File, printed *output, shell *exec.Cmd) {
	t.Helper()
	person, program := terminal(t)
	shell = exec.Command("bash", "-m", "-c", script)
	shell.Env = environ(urlVariable+"="+store, "REDLATCH="+binary)
	shell.Stdin, shell.Stdout, shell.Stderr = program, program, program
	shell.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = shell.Process.Kill()
		_ = shell.Wait()
	})
	printed = new(output)
	go func() { _, _ = io.Copy(printed, person) }() // ends when the terminal does
	return person, printed, shell
}

func shows(t *testing.T, printed *output, text string) {
	t.Helper()
	servertest.Eventually(t, patience, "the terminal to show "+text, func() bool { return strings.Contains(printed.String(), text) })
}

func typed(t *testing.T, person *os.File, text string) {
	t.Helper()
	if _, err := person.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

func TestTheCommandHasTheTerminal(t *testing.T) {
	t.Parallel()
	store := redisURL(t)
	t.Run("it reads what is typed", func(t *testing.T) {
		person, printed, _ := atTerminal(t, store, `"$REDLATCH" run -c 'echo ready; read x; echo "got <$x>"' a; echo "code $?"; read y; echo "shell <$y>"`)
		shows(t, printed, "ready")
		typed(t, person, "hello\n")
		shows(t, printed, "got <hello>")
		shows(t, printed, "code 0")
		typed(t, person, "bye\n")
		shows(t, printed, "shell <bye>")
	})
	t.Run("it reads what is typed in a pipeline", func(t *testing.T) {
		person, printed, _ := atTerminal(t, store, `"$REDLATCH" run -c 'echo ready; read x; echo "got <$x>"' b | cat; echo "code $?"`)
		shows(t, printed, "ready")
		typed(t, person, "hello\n")
		shows(t, printed, "got <hello>")
		shows(t, printed, "code 0")
	})
	t.Run("Ctrl-C is its own", func(t *testing.T) {
		person, printed, _ := atTerminal(t, store, `"$REDLATCH" run -c 'trap "echo not yet" INT; echo ready; read x; echo "got <$x>"; trap - INT; kill -INT $$' c; echo "code $?"`)
		shows(t, printed, "ready")
		typed(t, person, "\x03")
		shows(t, printed, "not yet")
		typed(t, person, "x\n")
		shows(t, printed, "code 130")
	})
	t.Run("Ctrl-C ends the wait", func(t *testing.T) {
		holder := start(t, store, "run", "w", "--", "sh", "-c", "echo started; exec sleep 100")
		holder.says(&holder.out, "started")
		person, printed, _ := atTerminal(t, store, `"$REDLATCH" run -w forever w -- true; echo "code $?"`)
		shows(t, printed, "waiting for w")
		typed(t, person, "\x03")
		shows(t, printed, "code 130")
	})
	t.Run("the wait is one line that changes", func(t *testing.T) {
		holder := start(t, store, "run", "l", "--", "sh", "-c", "echo started; read x; sleep 100 & wait")
		holder.says(&holder.out, "started")
		_, printed, _ := atTerminal(t, store, `TERM=xterm "$REDLATCH" run -w 1m l -- echo hello`)
		const line = "\r\x1b[Kredlatch: waiting for l ("
		for _, text := range []string{line + "0s) - held by ", line + "2s) - held by "} {
			shows(t, printed, text)
		}
		if n := strings.Count(printed.String(), "\n"); n != 0 {
			t.Errorf("%d lines: %q", n, printed.String())
		}
		holder.signal(syscall.SIGTERM)
		shows(t, printed, "\r\x1b[Kredlatch: acquired l after")
		shows(t, printed, "hello")
	})
	t.Run("Ctrl-Z suspends and fg continues", func(t *testing.T) {
		person, printed, _ := atTerminal(t, store,
			`"$REDLATCH" run -c 'echo ready; while read x; do echo "got <$x>"; done' d; echo "stopped $?"; read y; fg >/dev/null; echo "code $?"`)
		shows(t, printed, "ready")
		typed(t, person, "\x1a")
		shows(t, printed, "stopped 147")
		typed(t, person, "on\n") // for the shell
		typed(t, person, "more\n")
		shows(t, printed, "got <more>")
		typed(t, person, "\x04")
		shows(t, printed, "code 0")
	})
	t.Run("a lock that was lost in a suspension stops the command", func(t *testing.T) {
		person, printed, _ := atTerminal(t, store,
			`"$REDLATCH" run --ttl 3.1s --grace 0 -c 'echo ready; while :; do echo alive; sleep 0.05; done' e; echo "stopped $?"; read y; fg >/dev/null; echo "code $?"`)
		shows(t, printed, "ready")
		typed(t, person, "\x1a")
		shows(t, printed, "stopped 147")
		servertest.Eventually(t, patience, "the end of the lease", func() bool {
			return start(t, store, "is-held", "e").code() == codeFree
		})
		alive := strings.Count(printed.String(), "alive")
		typed(t, person, "on\n")
		shows(t, printed, "code 79")
		if now := strings.Count(printed.String(), "alive"); now != alive {
			t.Errorf("the command ran on without the lock: it said %d times more that it is alive", now-alive)
		}
	})
}

// TestTheCommandDiesWithUs kills redlatch itself.
func TestTheCommandDiesWithUs(t *testing.T) {
	t.Parallel()
	p := start(t, redisURL(t), "run", "-c", `trap "" TERM; echo $$; while :; do :; done`, "x")
	group := p.number()
	p.signal(syscall.SIGKILL)
	servertest.Eventually(t, patience, "the command's end", func() bool { return groupGone(t, group) })
}
