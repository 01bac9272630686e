//go:build unix

package servertest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// startTimeout is long because a busy machine is not what these tests are about.
const startTimeout = 30 * time.Second

// A RedisConfig says how a Redis server differs from a plain one in memory. The zero value is that plain one.
type RedisConfig struct {
	Args         []string // more flags, as on the command line: "--maxmemory", "1mb"
	Lines        []string // more lines of the configuration file, for what flags cannot say; flags win
	Password     string   // of the default user; none
	TLS          bool     // the port speaks TLS only, and asks clients for a certificate of its own authority
	WhileLoading bool     // a start returns as soon as the server answers, also when that is LOADING
}

// A RedisServer is a running redis-server. Its methods may be called from several goroutines. Those that return no error fail the test
// that started it; after StartRedis they panic, because a run whose faults do not happen proves nothing.
type RedisServer struct {
	config RedisConfig
	dir    string
	port   int
	certs  Certs
	group  *Group
	fail   func(error)

	mu      sync.Mutex
	process *process
}

// Redis starts a server that lives until the test ends.
func Redis(t testing.TB, config RedisConfig) *RedisServer {
	t.Helper()
	s, err := StartRedis(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	s.fail = func(err error) {
		t.Helper()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the log of redis-server at %s ends:\n%s", s.Addr(), s.logTail())
		}
		s.Close()
	})
	return s
}

// StartRedis starts a server that lives until Close, or until this process is gone. The context bounds the start only.
func StartRedis(ctx context.Context, config RedisConfig) (*RedisServer, error) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		return nil, errors.New("redis-server is not installed here: run `make deps`")
	}
	// Not a test's own directory: its long name would not leave room for a socket's path.
	dir, err := os.MkdirTemp("", "redlatch")
	if err != nil {
		return nil, err
	}
	s := &RedisServer{config: config, dir: dir, fail: func(err error) { panic(err) }}
	if err := s.prepare(); err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	// Between choosing a free port and the server's binding it, somebody else may take it: then choose again.
	for range 10 {
		if s.port, err = freePort(); err != nil {
			break
		}
		if err = s.start(ctx); !errors.Is(err, errPortTaken) {
			break
		}
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *RedisServer) prepare() (err error) {
	if s.config.TLS {
		if s.certs, err = WriteCerts(s.dir); err != nil {
			return err
		}
	}
	if err = os.WriteFile(s.file("redis.conf"), []byte(strings.Join(s.config.Lines, "\n")+"\n"), 0o600); err != nil {
		return err
	}
	s.group, err = NewGroup()
	return err
}

// Addr is the host:port that clients connect to.
func (s *RedisServer) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// Socket is the path of the server's Unix socket, which is always there.
func (s *RedisServer) Socket() string { return s.file("redis.sock") }

// Dir is the server's working directory, where it keeps its files.
func (s *RedisServer) Dir() string { return s.dir }

// Certs are the files for TLS, when the server speaks it.
func (s *RedisServer) Certs() Certs { return s.certs }

// URL is the address as clients write it, with the password if there is one.
func (s *RedisServer) URL() string {
	u := url.URL{Scheme: "redis", Host: s.Addr()}
	if s.config.TLS {
		u.Scheme = "rediss"
	}
	if s.config.Password != "" {
		u.User = url.UserPassword("", s.config.Password)
	}
	return u.String()
}

// Do sends one command over a connection of its own and returns the reply as Conn.Receive does. It uses the socket, so it reaches the
// server past whatever a test does to the port.
func (s *RedisServer) Do(args ...string) (any, error) {
	conn, err := Dial(s.Socket())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if s.config.Password != "" {
		if _, err := conn.Do("AUTH", s.config.Password); err != nil {
			return nil, err
		}
	}
	return conn.Do(args...)
}

// Info returns the fields of one section of INFO.
func (s *RedisServer) Info(section string) map[string]string {
	reply, err := s.Do("INFO", section)
	if err != nil {
		s.fail(fmt.Errorf("INFO %s: %w", section, err))
		return nil
	}
	text, _ := reply.(string)
	fields := make(map[string]string)
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[key] = value
		}
	}
	return fields
}

// CommandStats counts the calls of each command since the server's start or CONFIG RESETSTAT, by its name in lower case ("set",
// "config|get"). It counts those inside scripts, and those of this package: PING at the start, and INFO.
func (s *RedisServer) CommandStats() map[string]int {
	calls := make(map[string]int)
	for key, value := range s.Info("commandstats") {
		name, isCommand := strings.CutPrefix(key, "cmdstat_")
		count, _, _ := strings.Cut(strings.TrimPrefix(value, "calls="), ",")
		if n, err := strconv.Atoi(count); err == nil && isCommand {
			calls[name] = n
		}
	}
	return calls
}

// Stop freezes the server (SIGSTOP): connections stay, and nothing is answered until Continue. What is sent meanwhile is then carried out.
func (s *RedisServer) Stop() { s.signal(syscall.SIGSTOP) }

// Continue ends a Stop.
func (s *RedisServer) Continue() { s.signal(syscall.SIGCONT) }

// Kill ends the server at once (SIGKILL) and returns when it is gone. One that is gone already is left so.
func (s *RedisServer) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.process.kill()
}

// Shutdown lets the server end in order, saving what it was told to save, and returns when it is gone.
func (s *RedisServer) Shutdown() {
	s.mu.Lock()
	defer s.mu.Unlock()

	_ = s.process.signal(syscall.SIGTERM) // One that is gone already is left so.
	select {
	case <-s.process.exited:
	case <-time.After(startTimeout):
		s.process.kill()
		s.fail(fmt.Errorf("redis-server at %s did not shut down within %v and was killed; its log ends:\n%s", s.Addr(), startTimeout, s.logTail()))
	}
}

// Restart starts the server again on the same port and in the same directory, with more flags if given. One that still runs is killed.
func (s *RedisServer) Restart(args ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.process.kill()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	err := s.start(ctx, args...)
	for errors.Is(err, errPortTaken) && ctx.Err() == nil {
		// An outgoing connection of somebody may have the port for a moment.
		time.Sleep(50 * time.Millisecond)
		err = s.start(ctx, args...)
	}
	if err != nil {
		s.fail(err)
	}
}

// Close kills the server and removes its directory. A second Close does nothing.
func (s *RedisServer) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.process != nil {
		s.process.kill()
	}
	if s.group != nil {
		s.group.End()
		s.group = nil // Its number may soon be somebody else's.
	}
	os.RemoveAll(s.dir)
}

func (s *RedisServer) signal(sig syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if err := s.process.signal(sig); err != nil {
		s.fail(fmt.Errorf("redis-server at %s: %w", s.Addr(), err))
	}
}

var errPortTaken = errors.New("the port is taken")

// start runs the server and returns when it answers. Readiness is asked over the socket, which is in our own directory: on the port
// it could be somebody else's server that answers.
func (s *RedisServer) start(ctx context.Context, more ...string) error {
	output, err := os.OpenFile(s.file("log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer output.Close()
	before, err := output.Stat()
	if err != nil {
		return err
	}
	p, err := s.group.start(output, s.dir, "redis-server", append(s.args(), more...)...)
	if err != nil {
		return err
	}
	s.process = p
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		if err = s.ping(); err == nil {
			return nil
		}
		select {
		case <-p.exited:
			log, _ := os.ReadFile(s.file("log"))
			said := string(log[before.Size():])
			if strings.Contains(said, "Address already in use") {
				return errPortTaken
			}
			return fmt.Errorf("redis-server does not start; it says:\n%s", said)
		case <-ctx.Done():
			p.kill()
			return fmt.Errorf("redis-server at %s does not get ready: %w (last answer: %w); its log ends:\n%s", s.Addr(), context.Cause(ctx), err, s.logTail())
		case <-time.After(2 * time.Millisecond):
		}
	}
}

func (s *RedisServer) ping() error {
	_, err := s.Do("PING")
	if answer, ok := errors.AsType[ReplyError](err); ok {
		loading := strings.HasPrefix(string(answer), "LOADING ")
		// No password, or no right: whoever set that up knows, and the server is there.
		refused := strings.HasPrefix(string(answer), "NOAUTH ") || strings.HasPrefix(string(answer), "NOPERM ")
		if refused || loading && s.config.WhileLoading {
			return nil
		}
	}
	return err
}

func (s *RedisServer) args() []string {
	args := []string{
		s.file("redis.conf"),
		"--bind", "127.0.0.1",
		"--dir", s.dir,
		"--unixsocket", s.Socket(),
		"--save", "",
		"--appendonly", "no",
		"--enable-debug-command", "yes",
		"--port",
	}
	port := strconv.Itoa(s.port)
	if s.config.TLS {
		args = append(args, "0", "--tls-port", port, "--tls-ca-cert-file", s.certs.CA,
			"--tls-cert-file", s.certs.ServerCert, "--tls-key-file", s.certs.ServerKey)
	} else {
		args = append(args, port)
	}
	if s.config.Password != "" {
		args = append(args, "--requirepass", s.config.Password)
	}
	return append(args, s.config.Args...)
}

func (s *RedisServer) file(name string) string { return filepath.Join(s.dir, name) }

func (s *RedisServer) logTail() string {
	log, _ := os.ReadFile(s.file("log"))
	return string(log[max(0, len(log)-2000):])
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
