//go:build unix

package main

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/redlatch/redlatch/internal/servertest"
)

// tlsURL is a server that speaks TLS and asks for a client's certificate.
func tlsURL(host string, server *servertest.RedisServer, parameters ...string) string {
	_, port, _ := net.SplitHostPort(server.Addr())
	return "rediss://" + net.JoinHostPort(host, port) + "?" + strings.Join(parameters, "&")
}

func TestTLS(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t, servertest.RedisConfig{TLS: true, Args: []string{"--bind", "127.0.0.1", "127.0.0.2"}})
	stranger, err := servertest.WriteCerts(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	certs := server.Certs()
	ca, client := "tls_ca="+certs.CA, "tls_cert="+certs.ClientCert+"&tls_key="+certs.ClientKey
	nothing := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(nothing, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	plain := servertest.Redis(t, servertest.RedisConfig{})
	for _, c := range []struct {
		what, url string
		code      int
		says      string
	}{
		{"all is right", tlsURL("localhost", server, ca, client), 0, ""},
		{"by its address", tlsURL("127.0.0.1", server, ca, client), 0, ""},
		{"valkeys", strings.Replace(tlsURL("localhost", server, ca, client), "rediss", "valkeys", 1), 0, ""},
		{"the system's authorities", tlsURL("localhost", server, client), codeUnavailable, "tls_ca"},
		{"another authority", tlsURL("localhost", server, "tls_ca="+stranger.CA, client), codeUnavailable, "tls_ca"},
		{"another host", tlsURL("127.0.0.2", server, ca, client), codeUnavailable, "not 127.0.0.2"},
		{"not looked at", tlsURL("127.0.0.2", server, "skip_verify=true", client), 0, ""},
		{"no certificate of the client", tlsURL("localhost", server, ca), codeDenied, "tls_cert"},
		{"a stranger's certificate", tlsURL("localhost", server, ca, "tls_cert="+stranger.ClientCert+"&tls_key="+stranger.ClientKey), codeDenied, "tls_cert"},
		{"no file", tlsURL("localhost", server, "tls_ca=/nowhere", client), codeUsage, "tls_ca"},
		{"an empty file", tlsURL("localhost", server, "tls_ca="+nothing, client), codeUsage, "there is no certificate in"},
		{"a key that is another's", tlsURL("localhost", server, ca, "tls_cert="+certs.ClientCert+"&tls_key="+stranger.ClientKey), codeUsage, "tls_key"},
		{"a server without TLS", "rediss://" + plain.Addr(), codeUnavailable, "rediss://"},
		{"a server with TLS, asked without", strings.Replace(tlsURL("localhost", server), "rediss", "redis", 1), codeUnavailable, ""},
	} {
		for _, args := range [][]string{{"who", "x"}, {"run", "x", "--", "true"}} {
			p := start(t, strings.TrimSuffix(c.url, "?"), args...)
			if p.code() != c.code || !strings.Contains(p.err.String(), c.says) || (c.code == 0) != (p.err.String() == "") {
				t.Errorf("%s: exit code %d, want %d; it says %q, want %q in it", c.what, p.code(), c.code, p.err.String(), c.says)
			}
		}
	}
}

func TestUsersAndSecrets(t *testing.T) {
	t.Parallel()
	const password = `p/w?#@%:& "ü'\`
	server := servertest.Redis(t, servertest.RedisConfig{})
	if _, err := server.Do("ACL", "SETUSER", "app", "on", ">"+password, "~lock:*", "&lock:*", "+@all"); err != nil {
		t.Fatal(err)
	}
	if _, err := server.Do("ACL", "SETUSER", "default", "off"); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "pw")
	if err := os.WriteFile(file, []byte(password+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	whole := "redis://app:" + strings.ReplaceAll(url.QueryEscape(password), "+", "%20") + "@" + server.Addr()
	quiet := func(what string, p *proc) {
		t.Helper()
		for _, piece := range []string{password, url.QueryEscape(password), `p/w?`, "%2Fw"} {
			if said := p.out.String() + p.err.String(); strings.Contains(said, piece) {
				t.Errorf("%s: it prints %q", what, said)
			}
		}
	}
	show := []string{"run", "-v", "x", "--", "sh", "-c", "env; ps -ww -e -o args= | grep '[r]edlatch.* run'"}
	for what, env := range map[string][]string{
		"in the URL":       {urlVariable + "=" + whole},
		"in another":       {"ELSEWHERE=" + whole},
		"in a variable":    {urlVariable + "=redis://app@" + server.Addr() + "?password_env=PW", "PW=" + password},
		"in a file":        {urlVariable + "=redis://app@" + server.Addr() + "?password_file=" + file},
		"name in the file": {urlVariable + "=redis://" + server.Addr() + "?username=app&password_file=" + file},
		"over the socket":  {urlVariable + "=redis+unix://app@" + server.Socket() + "?password_file=" + file},
	} {
		args := show
		if strings.HasPrefix(env[0], "ELSEWHERE") {
			args = append([]string{"--store", "env:ELSEWHERE"}, args...)
		}
		p := startEnv(t, environ(env...), args...).want(0)
		quiet(what, p)
		has(t, p.out.String(), "REDLATCH_LOCK=x\n")
		for _, hidden := range []string{"PW=", "ELSEWHERE="} {
			if strings.Contains("\n"+p.out.String(), "\n"+hidden) {
				t.Errorf("%s: the command sees %s", what, hidden)
			}
		}
		quiet(what, startEnv(t, environ(env...), append(slices.Clone(args[:len(args)-len(show)]), "who", "x")...).want(0))
	}
	for what, c := range map[string]struct {
		url  string
		code int
	}{
		"a wrong password":     {"redis://app:Wr0ng@" + server.Addr(), codeDenied},
		"no password":          {"redis://app@" + server.Addr(), codeDenied},
		"another user":         {"redis://nobody:Wr0ng@" + server.Addr(), codeDenied},
		"no such file":         {"redis://app@" + server.Addr() + "?password_file=/nowhere", codeUsage},
		"no such variable":     {"redis://app@" + server.Addr() + "?password_env=NOTHERE", codeUsage},
		"a right that lacks":   {whole + "?prefix=other:", codeDenied},
		"not encoded":          {"redis://app:" + password + "@" + server.Addr(), codeUsage},
		"a port that is wrong": {"redis://app:" + url.PathEscape("Wr0ng") + "@127.0.0.1:99999", codeUsage},
	} {
		p := start(t, c.url, "acquire", "x").want(c.code)
		quiet(what, p)
		if strings.Contains(p.err.String(), "Wr0ng") {
			t.Errorf("%s: it says %q", what, p.err.String())
		}
	}
}

// TestTheKeeperShowsNoPassword: it is a process of ours for as long as the lock is held.
func TestTheKeeperShowsNoPassword(t *testing.T) {
	t.Parallel()
	const password = "Sw0rdfish-78"
	server := servertest.Redis(t, servertest.RedisConfig{Password: password})
	user := exec.Command("sleep", "1000")
	if err := user.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = user.Process.Kill(); _, _ = user.Process.Wait() }()
	doc := document(t, start(t, server.URL(), "acquire", "--json", "--for-pid", fmt.Sprint(user.Process.Pid), "x").want(0).out.String())
	list, err := exec.Command("ps", "-ww", "-o", "args=", "-p", fmt.Sprint(doc["keeper_pid"])).Output()
	if err != nil || strings.Contains(string(list), password) || strings.Contains(string(list), server.Addr()) {
		t.Errorf("ps shows %q, %v", list, err)
	}
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	for _, host := range []string{"h1,h2", "h1:1,h2:2", "[::1]:1,[::2]:2", "u:Sw0rd@h1,h2"} {
		p := start(t, "redis://"+host+"/0", "who", "x").want(codeUsage)
		has(t, p.err.String(), "several hosts", "not there yet")
		if strings.Contains(p.err.String(), "Sw0rd") {
			t.Errorf("it says %q", p.err.String())
		}
	}
	for scheme, what := range map[string]string{"redis+sentinel://a,b/m": "Sentinel", "redis+cluster://a,b": "Cluster", "redlock://a,b,c": "Redlock", "etcd://a": "etcd"} {
		has(t, start(t, scheme, "who", "x").want(codeUsage).err.String(), what, "not there yet")
	}
	for _, url := range []string{"redis://[::1]:1", "redis://[::1%25lo]:1", "rediss://[fe80::1%25nowhere]:1"} {
		p := start(t, url, "who", "x").want(codeUnavailable)
		has(t, p.err.String(), "]:1")
	}
	if server := servertest.Redis(t, servertest.RedisConfig{Args: []string{"--bind", "127.0.0.1", "-::1"}}); true {
		_, port, _ := net.SplitHostPort(server.Addr())
		if conn, err := net.Dial("tcp", "[::1]:"+port); err == nil { // this machine has IPv6
			conn.Close()
			start(t, "redis://[::1]:"+port, "run", "x", "--", "true").want(0)
		}
	}
}
