//go:build unix

package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/servertest"
)

func TestMain(m *testing.M) {
	beClient()
	os.Exit(m.Run())
}

// The server says of each command where it comes from, if it is asked by MONITOR.
func TestWhatClientsSendIsToldApartByName(t *testing.T) {
	server := servertest.Redis(t, servertest.RedisConfig{})
	monitor, err := servertest.Dial(server.Socket())
	if err != nil {
		t.Fatal(err)
	}
	defer monitor.Close()
	if _, err := monitor.Do("MONITOR"); err != nil {
		t.Fatal(err)
	}
	a, locks, err := connect(server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	held, err := locks.Lock(t.Context(), hot, redlatch.Options{})
	if err != nil {
		t.Fatal(err)
	}
	waited := make(chan error, 1)
	go func() {
		held, err := locks.Lock(t.Context(), hot, redlatch.Options{})
		if err == nil {
			err = held.Unlock()
		}
		waited <- err
	}()
	servertest.Eventually(t, 5*time.Second, "one in line", func() bool {
		n, err := server.Do("ZCARD", queue)
		return err == nil && n == int64(1)
	})
	servertest.Eventually(t, 5*time.Second, "a record of names", func() bool { return server.CommandStats()["sadd"] > 0 })
	if err := held.Renew(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if err := held.Unlock(); err != nil {
		t.Fatal(err)
	}
	if err := <-waited; err != nil {
		t.Fatal(err)
	}
	if _, err := server.Do("ECHO", "the end"); err != nil {
		t.Fatal(err)
	}
	scripts, sent := map[string]bool{}, map[string]bool{}
	for {
		reply, err := monitor.Receive(5 * time.Second)
		if err != nil {
			t.Fatal(err)
		}
		line, _ := reply.(string) // 1764551336.123456 [0 lua] "get" "lock:hot"
		source, command, ok := strings.Cut(line, `] "`)
		command, _, _ = strings.Cut(strings.ToLower(command), `"`)
		switch {
		case !ok:
			t.Fatalf("not a line of MONITOR: %q", line)
		case strings.HasSuffix(source, " lua"):
			scripts[command] = true
		case !strings.Contains(source, "unix:"): // the test's own come over the socket
			sent[command] = true
		}
		if command == "echo" {
			break
		}
	}
	for command := range scripts {
		if byClients(command) || byUs(command) {
			t.Errorf("%s is called by a script, and counted as if clients sent it", command)
		}
	}
	for command := range sent {
		if !byClients(command) {
			t.Errorf("%s is sent by clients, and counted as if a script called it", command)
		}
	}
	for _, command := range []string{"evalsha", "subscribe"} {
		if !sent[command] {
			t.Errorf("MONITOR shows no %s; it shows %v", command, sent)
		}
	}
	if !scripts["publish"] {
		t.Errorf("MONITOR shows no publish in a script; it shows %v", scripts)
	}
}

// A short run: two commands an acquisition, however many wait.
func TestAnAcquisitionCostsTwoCommands(t *testing.T) {
	b := bench{window: 2 * time.Second, processes: 2, others: 10, hold: time.Millisecond}
	for _, waiters := range []int{1, 32} {
		c, err := b.contended(waiters)
		if err != nil {
			t.Fatal(err)
		}
		if c.acquired == 0 {
			t.Fatalf("%d waiters: no acquisitions", waiters)
		}
		if each := float64(c.stats["evalsha"]-int(c.renewals)) / float64(c.acquired); each > 2.1 {
			t.Errorf("%d waiters: %.3f EVALSHA per acquisition\n%s", waiters, each, c.table("per acquisition", float64(c.acquired)))
		}
	}
}
