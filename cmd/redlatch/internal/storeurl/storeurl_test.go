package storeurl

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		in   string
		want URL
		out  string // Redacted
	}{
		{"redis://redis-1", URL{Scheme: "redis", Addr: "redis-1:6379"}, "redis://redis-1:6379/0"},
		{"REDIS://redis-1:7000/3", URL{Scheme: "redis", Addr: "redis-1:7000", DB: 3}, "redis://redis-1:7000/3"},
		{"redis://[::1]", URL{Scheme: "redis", Addr: "[::1]:6379"}, "redis://[::1]:6379/0"},
		{"valkey://[fe80::1%eth0]:1/", URL{Scheme: "valkey", Addr: "[fe80::1%eth0]:1"}, "valkey://[fe80::1%eth0]:1/0"},
		{"rediss://h?db=2&skip_verify=true&tls_ca=/etc/ca.pem", URL{Scheme: "rediss", Addr: "h:6379", TLS: true, DB: 2, SkipVerify: true, CA: "/etc/ca.pem"}, "rediss://h:6379/2"},
		{"valkeys://app@h", URL{Scheme: "valkeys", Addr: "h:6379", TLS: true, User: "app"}, "valkeys://app@h:6379/0"},
		{"redis://h?prefix=&dial_timeout=2&ttl=1m", URL{Scheme: "redis", Addr: "h:6379", HasPrefix: true, DialTimeout: 2 * time.Second, TTL: time.Minute}, "redis://h:6379/0"},
		{"redis://h?prefix=a%26b+c", URL{Scheme: "redis", Addr: "h:6379", HasPrefix: true, Prefix: "a&b+c"}, "redis://h:6379/0"},
		{"redis://h?plain=true", URL{Scheme: "redis", Addr: "h:6379", Plain: true}, "redis://h:6379/0"},
		{"redis://h?plain=false", URL{Scheme: "redis", Addr: "h:6379"}, "redis://h:6379/0"},
		{"unix:///s?plain=1", URL{Scheme: "unix", Addr: "/s", Socket: true, Plain: true}, "unix:///s?db=0"},
		{"redis+unix:///run/redis.sock?db=1", URL{Scheme: "redis+unix", Addr: "/run/redis.sock", Socket: true, DB: 1}, "redis+unix:///run/redis.sock?db=1"},
		{"unix:///s", URL{Scheme: "unix", Addr: "/s", Socket: true}, "unix:///s?db=0"},
		{"redis-socket:///s%20t", URL{Scheme: "redis-socket", Addr: "/s t", Socket: true}, "redis-socket:///s t?db=0"},
		{"file:/a%b", URL{Kind: File, Scheme: "file", Dir: "/a%b"}, "file:/a%b"},
		{"file:/a", URL{Kind: File, Scheme: "file", Dir: "/a"}, "file:/a"},
		{"file:///a", URL{Kind: File, Scheme: "file", Dir: "/a"}, "file:/a"},
		{"mem:", URL{Kind: Mem, Scheme: "mem"}, "mem:"},
		{"mem://", URL{Kind: Mem, Scheme: "mem"}, "mem:"},
	} {
		got, err := Parse(c.in)
		if err != nil {
			t.Errorf("Parse(%q): %v", c.in, err)
			continue
		}
		if fmt.Sprintf("%+v", plain(got)) != fmt.Sprintf("%+v", plain(c.want)) {
			t.Errorf("Parse(%q) = %+v, want %+v", c.in, plain(got), plain(c.want))
		}
		if got.Redacted() != c.out {
			t.Errorf("Parse(%q).Redacted() = %q, want %q", c.in, got.Redacted(), c.out)
		}
	}
}

// plain loses the String method, and the secret.
func plain(u URL) any {
	type fields URL
	f := fields(u)
	f.password = secret{}
	return f
}

func TestPasswords(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pw")
	if err := os.WriteFile(file, []byte("s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("STOREURL_TEST_PW", "s3cret")
	for in, out := range map[string]string{
		"redis://:s3cret@h":                       "redis://:xxxxx@h:6379/0",
		"redis://u:s3cret@h/1":                    "redis://u:xxxxx@h:6379/1",
		"redis://u:%733cret@h":                    "redis://u:xxxxx@h:6379/0",
		"redis+unix://u:s3cret@/s":                "redis+unix://u:xxxxx@/s?db=0",
		"redis://u@h?password_file=" + file:       "redis://u:xxxxx@h:6379/0",
		"redis://h?password_env=STOREURL_TEST_PW": "redis://:xxxxx@h:6379/0",
	} {
		u, err := Parse(in)
		if err != nil {
			t.Errorf("Parse(%q): %v", in, err)
			continue
		}
		pw, err := u.Password()
		if err != nil || pw != "s3cret" {
			t.Errorf("Parse(%q).Password() = %q, %v", in, pw, err)
		}
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
			if s := fmt.Sprintf(verb, u) + fmt.Sprintf(verb, &u) + fmt.Sprintf(verb, struct{ X any }{u}); strings.Contains(s, "s3cret") {
				t.Errorf("%s of Parse(%q) shows the password: %s", verb, in, s)
			}
		}
		if u.Redacted() != out {
			t.Errorf("Parse(%q).Redacted() = %q, want %q", in, u.Redacted(), out)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for in, want := range map[string]string{
		"":                                "is empty",
		"redis-1:6379":                    "not a store's URL",
		"localhost":                       "not a store's URL",
		"mysql://h":                       "there is no store mysql://",
		"redis+sentinel://a,b/m":          "not there yet",
		"redis+cluster://a":               "not there yet",
		"redlock://a,b,c":                 "not there yet",
		"redlocks://a,b,c":                "not there yet",
		"etcd://a":                        "not there yet",
		"etcds://a":                       "not there yet",
		"zk://a":                          "not there yet",
		"postgres://a":                    "not there yet",
		"postgresql://a":                  "not there yet",
		"redis:h":                         "'//' is missing",
		"redis://":                        "the host is missing",
		"redis://:6379":                   "the host is missing",
		"redis://h:0":                     "not a port",
		"redis://h:65536":                 "not a port",
		"redis://h:":                      "not a port",
		"redis://h1,h2":                   "several hosts",
		"redis://::1":                     "IPv6",
		"redis://[::1":                    "IPv6",
		"redis://[x]":                     "IPv6",
		"redis://h/x":                     "database",
		"redis://h/-1":                    "database",
		"redis://h/1/2":                   "database",
		"redis://h?dial_timeot=1":         "did you mean dial_timeout?",
		"redis://h?x=1":                   "unknown parameter",
		"redis://h?db=1&db=2":             "twice",
		"redis://h?db":                    "no value",
		"redis://h?tls_ca=/x":             "does not use TLS",
		"rediss://h?tls_cert=/x":          "go together",
		"rediss://h?skip_verify=maybe":    "true or false",
		"redis://h?plain=maybe":           "true or false",
		"redis://h?plain":                 "no value",
		"redis://:a@h?password_env=X":     "there is a password already",
		"unix://h/s":                      "third '/'",
		"unix://":                         "path is missing",
		"file:":                           "directory is missing",
		"file://":                         "directory is missing",
		"file://host/dir":                 "no files on other hosts",
		"file:locks":                      "is relative",
		"file:./locks":                    "is relative",
		"http://host":                     "there is no HTTP service in this release",
		"file:dir?mode=1":                 "takes no parameters",
		"mem:x":                           "takes nothing",
		"redis://h#frag":                  "'#'",
		"redis://user:pa%zz@h":            "percent-encode it",
		"redis://user:sec/ret@h":          "percent-encode it",
		"redis://user:sec@ret@h":          "percent-encode it",
		"redis://user:sec?ret@h/0":        "percent-encode it",
		"redis://user:sec#ret@h/0":        "percent-encode it",
		"redis://h/0?password_file=/a@b":  "percent-encode it",
		"redis://user:sec?ret=1&db=2@h/0": "percent-encode it",
	} {
		_, err := Parse(in)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Parse(%q): %v, want %q in it", in, err, want)
		}
	}
}

// TestErrorsKeepTheSecret puts a password that breaks the URL in every way into every
// place, and looks for any three characters of it in what is said.
func TestErrorsKeepTheSecret(t *testing.T) {
	for _, pw := range []string{"Q7x/W8y", "Q7x?W8y", "Q7x#W8y", "Q7x%W8y", "Q7x@W8y", "Q7x:W8y", "Q7x&W8y=", "Q7x W8y", "[Q7x]W8y", "Q7x,W8y", "Q7x=W8y", `Q7x\W8y`, "Q7x\nW8y"} {
		for _, in := range []string{
			"redis://u:%s@h:6379/0", "redis://:%s@h", "redis://%s@h", "redis://u:%s", "redis://%s", "redis://h/%s", "redis://h?%s",
			"redis://h?%s=1", "redis://h?db=%s", "rediss://h?skip_verify=%s", "redis://h:%s/", "redis://h?dial_timeout=%s", "redis+unix://u:%s@s",
			"u:%s@h", "%s", "redis:%s@h", "redis+sentinel://u:%s@a,b/m", "mysql://u:%s@h", "mem:%s", "file://%s", "file:%s?",
		} {
			raw := fmt.Sprintf(in, pw)
			u, err := Parse(raw)
			said, pieces := "", []string{"Q7x", "W8y", "q7x", "w8y"}
			if err != nil {
				said = err.Error()
			} else if u.Inline() {
				legal, _ := u.Password() // a URL in which only a part of it, or all, is the password
				said, pieces = u.Redacted(), []string{legal}
			}
			for _, piece := range pieces {
				if strings.Contains(said, piece) {
					t.Errorf("Parse(%q) tells %q: %s", raw, piece, said)
				}
			}
		}
	}
}

func TestBare(t *testing.T) {
	for raw, want := range map[string]string{
		"redis://h":                        "redis://h",
		"redis://:pw@h:1/2":                "redis://h:1/2",
		"rediss://u:p%40w@h/0?tls_ca=/a@b": "rediss://u@h/0?tls_ca=/a@b",
		"redis://u@h?password_file=/p":     "redis://u@h?password_file=/p",
		"redis+unix://:pw@/run/redis.sock": "redis+unix:///run/redis.sock",
		"file:/a:b@c":                      "file:/a:b@c",
	} {
		if got := Bare(raw); got != want {
			t.Errorf("Bare(%q) = %q, want %q", raw, got, want)
		}
	}
}
