//go:build linux

package verify

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/redlatch/redlatch/internal/servertest"
)

// Soak is a run of many processes on one Redis server, of which some are stopped for
// longer than their leases, some killed, and all lose their connections now and then.
type Soak struct {
	Duration   time.Duration
	Processes  int
	Goroutines int // a process
	Names      int
	TTL        time.Duration
	Seed       uint64
	Broken     string // "plain-del": workers release without comparing; the judge must see it
	Log        func(string)
}

// Run runs it and judges the record.
//
// A lock counts as stuck when somebody waits and nobody holds for longer than the TTL
// and a second, and one grant more: at any time one process is stopped, and a lock that
// is handed to it costs one grant (never more than one a process).
func (s Soak) Run(ctx context.Context) (Verdict, error) {
	dir, err := os.MkdirTemp("", "redlatch-soak")
	if err != nil {
		return Verdict{}, err
	}
	defer os.RemoveAll(dir)
	server, err := servertest.StartRedis(ctx, servertest.RedisConfig{})
	if err != nil {
		return Verdict{}, err
	}
	defer server.Close()

	run := &running{Soak: s, dir: dir, server: server, dice: rand.New(rand.NewPCG(s.Seed, 0))}
	defer run.killAll()
	for range s.Processes {
		if err := run.start(); err != nil {
			return Verdict{}, err
		}
	}
	if err := run.torture(ctx); err != nil {
		return Verdict{}, err
	}
	run.killAll()
	stamps, err := readRecord(dir)
	if err != nil {
		return Verdict{}, err
	}
	return Judge(stamps, s.TTL+time.Second+min(s.TTL, 5*time.Second)), nil
}

type running struct {
	Soak

	dir     string
	server  *servertest.RedisServer
	dice    *rand.Rand
	workers []*exec.Cmd
	started int
}

func (r *running) start() error {
	r.started++
	about, err := json.Marshal(&worker{
		Addr: r.server.Addr(), Dir: r.dir, Process: r.started, Goroutines: r.Goroutines,
		Names: r.Names, TTL: r.TTL, Seed: r.Seed, Broken: r.Broken,
	})
	if err != nil {
		return err
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), workerEnv+"="+string(about))
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	r.workers = append(r.workers, cmd)
	return nil
}

// torture does one bad thing after another until the time is over.
func (r *running) torture(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.Duration)
	defer cancel()
	for r.pause(ctx, r.TTL/4+time.Duration(r.dice.Int64N(int64(r.TTL)))) {
		victim := r.dice.IntN(len(r.workers))
		switch what := r.dice.IntN(4); what {
		case 0:
			r.say("kill worker %d", victim)
			r.kill(victim)
			if err := r.start(); err != nil {
				return err
			}
		case 1:
			r.say("cut all connections")
			for _, kind := range []string{"normal", "pubsub"} {
				if _, err := r.server.Do("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"); err != nil {
					return err
				}
			}
		default:
			stop := r.TTL + time.Duration(r.dice.Int64N(int64(r.TTL*3/2)))
			r.say("stop worker %d for %v", victim, stop)
			p := r.workers[victim].Process
			if err := p.Signal(syscall.SIGSTOP); err != nil {
				return err
			}
			r.pause(ctx, stop)
			if err := p.Signal(syscall.SIGCONT); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *running) pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (r *running) say(format string, args ...any) {
	if r.Log != nil {
		r.Log(fmt.Sprintf(format, args...))
	}
}

func (r *running) kill(i int) {
	cmd := r.workers[i]
	r.workers = append(r.workers[:i], r.workers[i+1:]...)
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // it was killed: that is what Wait says
}

func (r *running) killAll() {
	for len(r.workers) > 0 {
		r.kill(0)
	}
}

// readRecord reads what all workers have written. The last line of one that was killed
// may be torn: it does not count.
func readRecord(dir string) ([]Stamp, error) {
	files, err := filepath.Glob(filepath.Join(dir, "p*"))
	if err != nil {
		return nil, err
	}
	var stamps []Stamp
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		lines := bufio.NewScanner(f)
		for lines.Scan() {
			var s Stamp
			if n, _ := fmt.Fscanf(strings.NewReader(lines.Text()), "%c %d %s %d %d", &s.Kind, &s.At, &s.Name, &s.Fence, &s.Process); n == 5 {
				stamps = append(stamps, s)
			}
		}
		_ = f.Close()
		if err := lines.Err(); err != nil {
			return nil, err
		}
	}
	return stamps, nil
}
