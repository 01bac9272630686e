//go:build unix

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
)

// ordersVariable makes a process a client: it holds what the client has to do.
const ordersVariable = "REDLATCH_BENCH_CLIENT"

type orders struct {
	Addr       string
	ID         int
	Goroutines int // that want the hot lock
	Others     int // locks that it holds besides
	Hold       time.Duration
}

// tally is what a client tells when it is asked.
type tally struct {
	Acquired int64 // of the hot lock
	Renewals int64 // EVALSHA sent in pipelines: nothing else is
}

// client is a client process, seen from its parent. It ends with it: it reads from a pipe
// that only the parent has.
type client struct {
	cmd *exec.Cmd
	ask io.WriteCloser
	say *bufio.Reader
}

func startClient(o orders) (*client, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &client{cmd: exec.Command(self)}
	c.cmd.Env, c.cmd.Stderr = append(os.Environ(), ordersVariable+"="+string(text)), os.Stderr
	if c.ask, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.say = bufio.NewReader(out)
	return c, c.cmd.Start()
}

func (c *client) end() {
	_ = c.ask.Close()
	_ = c.cmd.Process.Kill() // it may have ended
	_ = c.cmd.Wait()         // "signal: killed" is what was wanted
}

// tell asks all clients and adds up what they say.
func tell(clients []*client) (tally, error) {
	var sum tally
	for _, c := range clients {
		if _, err := io.WriteString(c.ask, "?\n"); err != nil {
			return tally{}, err
		}
	}
	for _, c := range clients {
		line, err := c.say.ReadString('\n')
		if err != nil {
			return tally{}, fmt.Errorf("a client does not answer: %w", err)
		}
		var t tally
		if err := json.Unmarshal([]byte(line), &t); err != nil {
			return tally{}, err
		}
		sum.Acquired += t.Acquired
		sum.Renewals += t.Renewals
	}
	return sum, nil
}

// beClient makes this process a client if it was started as one; it then does not return.
func beClient() {
	text, ok := os.LookupEnv(ordersVariable)
	if !ok {
		return
	}
	var o orders
	check(json.Unmarshal([]byte(text), &o))
	check(o.carryOut())
	os.Exit(0)
}

func (o orders) carryOut() error {
	rdb, locks, err := connect(o.Addr)
	if err != nil {
		return err
	}
	var sent renewals
	rdb.AddHook(&sent)
	for i := range o.Others {
		if _, err := locks.Lock(context.Background(), fmt.Sprintf("own/%d/%d", o.ID, i), redlatch.Options{}); err != nil {
			return err
		}
	}
	var acquired atomic.Int64
	for range o.Goroutines {
		go func() { // it ends with the process
			for {
				held, err := locks.Lock(context.Background(), hot, redlatch.Options{})
				check(err)
				acquired.Add(1)
				<-time.After(o.Hold)
				check(held.Unlock())
			}
		}()
	}
	// The input ends when the parent is done, or gone.
	for asked := bufio.NewScanner(os.Stdin); asked.Scan(); {
		if err := json.NewEncoder(os.Stdout).Encode(tally{acquired.Load(), sent.n.Load()}); err != nil {
			return err
		}
	}
	return nil
}

// renewals counts the EVALSHA that go in pipelines.
type renewals struct{ n atomic.Int64 }

func (*renewals) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (*renewals) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (r *renewals) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, c := range cmds {
			if strings.EqualFold(c.Name(), "evalsha") {
				r.n.Add(1)
			}
		}
		return next(ctx, cmds)
	}
}
