//go:build unix

package servertest

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestAServerAnswersAndCounts(t *testing.T) {
	s := Redis(t, RedisConfig{Args: []string{"--maxmemory", "7mb"}, Lines: []string{"maxclients 33"}})
	if reply, err := s.Do("SET", "k", "v"); reply != "OK" || err != nil {
		t.Errorf("SET answered %v, %v", reply, err)
	}
	reply, err := s.Do("EVAL", "return {1, redis.call('GET', 'k'), false, redis.error_reply('BAD x')}", "0")
	if got := fmt.Sprintf("%v %v", reply, err); got != "[1 v <nil> BAD x] <nil>" {
		t.Errorf("a script answered %s", got)
	}
	if _, err := s.Do("INCR", "k"); !errors.As(err, new(ReplyError)) {
		t.Errorf("INCR of a word gave error %v", err)
	}
	for what, want := range map[string]string{"maxmemory": "7340032", "maxclients": "33", "save": "", "enable-debug-command": "yes"} {
		reply, err := s.Do("CONFIG", "GET", what)
		if got := fmt.Sprint(reply); got != fmt.Sprintf("[%s %s]", what, want) || err != nil {
			t.Errorf("config %s is %s, %v", what, got, err)
		}
	}
	if got := s.CommandStats(); got["set"] != 1 || got["get"] != 1 || got["config|get"] != 4 {
		t.Errorf("command counts %v", got)
	}
	if got := s.Info("server")["tcp_port"]; "127.0.0.1:"+got != s.Addr() {
		t.Errorf("port %s at %s", got, s.Addr())
	}
}

func TestAStoppedServerKeepsWhatIsSent(t *testing.T) {
	s := Redis(t, RedisConfig{})
	c := dial(t, s.Addr())
	s.Stop()
	if err := c.Send("SET", "k", "v"); err != nil {
		t.Fatal(err)
	}
	if reply, err := c.Receive(50 * time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a stopped server answered %v, %v", reply, err)
	}
	s.Continue()
	Eventually(t, 5*time.Second, "the SET to be carried out", func() bool {
		reply, _ := s.Do("GET", "k")
		return reply == "v"
	})
}

func TestAKilledServerComesBackOnItsPortAndDirectory(t *testing.T) {
	s := Redis(t, RedisConfig{Args: []string{"--appendonly", "yes", "--appendfsync", "always"}})
	addr, runID := s.Addr(), s.Info("server")["run_id"]
	if _, err := s.Do("SET", "k", "v"); err != nil {
		t.Fatal(err)
	}
	for what, end := range map[string]func(){"Kill": s.Kill, "Shutdown": s.Shutdown, "Restart alone": func() {}} {
		end()
		if _, err := s.Do("PING"); what != "Restart alone" && err == nil {
			t.Errorf("it answers after %s", what)
		}
		s.Restart()
		if reply, err := s.Do("GET", "k"); reply != "v" || err != nil {
			t.Errorf("after %s and restart: %v, %v", what, reply, err)
		}
	}
	if dial(t, addr); s.Info("server")["run_id"] == runID {
		t.Errorf("the server was not restarted")
	}
}

func TestAPasswordIsForEveryone(t *testing.T) {
	s := Redis(t, RedisConfig{Password: "p w"})
	if reply, err := s.Do("GET", "k"); reply != nil || err != nil {
		t.Errorf("GET answered %v, %v", reply, err)
	}
	if _, err := dial(t, s.Addr()).Do("GET", "k"); err == nil || !strings.HasPrefix(err.Error(), "NOAUTH") {
		t.Errorf("GET without password gave error %v", err)
	}
	if want := "redis://:p%20w@" + s.Addr(); s.URL() != want {
		t.Errorf("URL %s, want %s", s.URL(), want)
	}
}

func TestTLSAsksBothSidesForACertificate(t *testing.T) {
	s := Redis(t, RedisConfig{TLS: true})
	config, err := s.Certs().ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	ping := func(config *tls.Config) error {
		conn, err := tls.Dial("tcp", s.Addr(), config)
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = (&Conn{conn: conn, r: bufio.NewReader(conn)}).Do("PING")
		return err
	}
	if err := ping(config); err != nil {
		t.Errorf("with certificates: %v", err)
	}
	if ping(&tls.Config{RootCAs: config.RootCAs, ServerName: "localhost"}) == nil {
		t.Errorf("the server talks to a client without certificate")
	}
	if ping(&tls.Config{Certificates: config.Certificates, ServerName: "localhost"}) == nil {
		t.Errorf("a client that does not know the authority talks to the server")
	}
	if !strings.HasPrefix(s.URL(), "rediss://") {
		t.Errorf("URL %s", s.URL())
	}
}

func TestATakenPortIsTold(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := Redis(t, RedisConfig{})
	s.Kill()
	s.port = l.Addr().(*net.TCPAddr).Port
	if err := s.start(t.Context()); !errors.Is(err, errPortTaken) {
		t.Errorf("start on a taken port gave error %v", err)
	}
}

func TestAWrongSettingIsToldInTheServersWords(t *testing.T) {
	_, err := StartRedis(t.Context(), RedisConfig{Args: []string{"--no-such-thing", "1"}})
	if err == nil || !strings.Contains(err.Error(), "no-such-thing") {
		t.Errorf("error %v", err)
	}
}

func TestAMissingServerIsToldWithTheCure(t *testing.T) {
	t.Setenv("PATH", "")
	if _, err := StartRedis(t.Context(), RedisConfig{}); err == nil || !strings.Contains(err.Error(), "make deps") {
		t.Errorf("error %v", err)
	}
}

// The test runs itself once more, as the process that is killed.
func TestAServerDiesWithTheProcessThatStartedIt(t *testing.T) {
	const victim = "REDLATCH_SERVERTEST_VICTIM"
	if os.Getenv(victim) != "" {
		s, err := StartRedis(context.Background(), RedisConfig{})
		if err != nil {
			t.Fatal(err)
		}
		s.Stop() // The hardest case: it can notice nothing by itself.
		fmt.Println("socket " + s.Socket())
		select {}
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), victim+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	socket, ok := strings.CutPrefix(strings.TrimSpace(line), "socket ")
	if !ok {
		t.Fatalf("the victim said %q, %v", line, err)
	}
	defer os.RemoveAll(strings.TrimSuffix(socket, "/redis.sock"))
	if conn, err := net.Dial("unix", socket); err != nil {
		t.Fatalf("no server before the kill: %v", err)
	} else {
		conn.Close()
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	Eventually(t, 5*time.Second, "the server to die", func() bool {
		conn, err := net.Dial("unix", socket)
		if err == nil {
			conn.Close()
		}
		return errors.Is(err, syscall.ECONNREFUSED)
	})
}

func dial(t *testing.T, addr string) *Conn {
	t.Helper()
	c, err := Dial(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}
