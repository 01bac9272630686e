//go:build unix

package servertest

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
)

// Group is a process group whose members die with this process, however it dies.
//
// A deferred Close does not run when a test times out, panics or gets SIGKILL. Linux' parent death signal would do, but it is sent when
// the *thread* that started the child ends, which Go only rules out with one locked thread for each server, and other systems lack it.
// So the group is led by a shell that reads from a pipe that only we can write to, and never do. When we are gone it reads the end of
// the file and kills its whole group. There is no gap: a server joins the group before it is exec'd, and until then it holds the
// pipe open itself. The shell ignores SIGHUP, which the kernel sends to a group with a stopped member when nobody is left to continue it.
type Group struct {
	leader *exec.Cmd
	alive  io.Closer
}

// NewGroup starts a group with nobody in it but its leader.
func NewGroup() (*Group, error) {
	leader := exec.Command("/bin/sh", "-c", "trap '' HUP; read _; kill -9 0")
	leader.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	alive, err := leader.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := leader.Start(); err != nil {
		return nil, err
	}
	return &Group{leader: leader, alive: alive}, nil
}

// start runs a program in the group, with what it prints going to the file.
func (g *Group) start(output *os.File, dir, program string, args ...string) (*process, error) {
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, output, output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: g.ID()}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, exited: make(chan struct{})}
	p.waiter.Go(func() {
		defer close(p.exited)
		_ = cmd.Wait() // How it ended is in its log, which says more than the exit code.
	})
	return p, nil
}

// ID is what a member gives as its Pgid, with Setpgid, when it is started.
func (g *Group) ID() int { return g.leader.Process.Pid }

// End kills whatever is in the group. Until the leader is waited for, its number cannot be given to somebody else's group.
func (g *Group) End() {
	_ = syscall.Kill(-g.ID(), syscall.SIGKILL)
	_ = g.leader.Wait() // "signal: killed" is what was wanted.
	g.alive.Close()
}

// A process is one run of a server.
type process struct {
	cmd    *exec.Cmd
	waiter sync.WaitGroup
	exited chan struct{}
}

func (p *process) signal(s os.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("%v to process %d: %w", s, p.cmd.Process.Pid, err)
	}
	return nil
}

// kill returns when the process is gone; one that was gone already is not an error.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	p.waiter.Wait()
}
