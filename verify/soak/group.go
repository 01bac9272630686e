//go:build unix

package soak

import (
	"io"
	"os/exec"
	"syscall"
)

// group is a process group that dies with this process, stopped members too. A shell that
// leads it reads from a pipe which only we hold open: however we end, it sees that, and
// kills the group.
type group struct {
	leader *exec.Cmd
	alive  io.Closer
}

func newGroup() (*group, error) {
	leader := exec.Command("/bin/sh", "-c", "trap '' HUP; read _; kill -9 0")
	leader.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	alive, err := leader.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := leader.Start(); err != nil {
		return nil, err
	}
	return &group{leader: leader, alive: alive}, nil
}

func (g *group) id() int { return g.leader.Process.Pid }

func (g *group) end() {
	_ = syscall.Kill(-g.id(), syscall.SIGKILL)
	_ = g.leader.Wait() // "signal: killed" is what was wanted.
	g.alive.Close()
}
