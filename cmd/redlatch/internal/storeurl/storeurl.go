// Package storeurl reads the URLs that say where the locks are kept, such as
// redis://user:password@redis-1:6379/0 or file:/var/lock/jobs. It opens nothing.
//
// It does its own splitting. net/url takes a list of hosts apart in the wrong places,
// and its errors print parts of passwords: parse "redis://user:s3cr/et@h": invalid
// port ":s3cr" after host. No error of this package quotes anything that may be part
// of a password: nothing of a user, a host, a path or a value, only schemes, and
// names of parameters that look like names.
package storeurl

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Kind is what sort of store a URL names.
type Kind uint8

const (
	Redis Kind = iota // one server
	File              // a directory on this host
	Mem               // this process
)

// URL says where locks are kept. Printing one never shows the password.
type URL struct {
	Kind   Kind
	Scheme string // as written

	// Of a server.
	Addr        string // host:port, or a socket's path
	Socket      bool
	TLS         bool
	User        string
	DB          int
	DialTimeout time.Duration // 0: the client's own
	CA          string        // files
	Cert, Key   string
	SkipVerify  bool
	password    secret

	Plain bool // no scripts

	Prefix    string // of the keys
	HasPrefix bool   // it was given, possibly empty

	TTL time.Duration // 0: not given

	Dir string // of File
}

const defaultPort = "6379"

// available are the schemes that can be opened, and what each looks like.
var available = map[string]form{
	"redis":        {Redis, "redis://[user:password@]host[:6379][/db]"},
	"rediss":       {Redis, "rediss://[user:password@]host[:6379][/db]"},
	"valkey":       {Redis, "valkey://[user:password@]host[:6379][/db]"},
	"valkeys":      {Redis, "valkeys://[user:password@]host[:6379][/db]"},
	"redis+unix":   {Redis, "redis+unix://[user:password@]/run/redis.sock[?db=0]"},
	"unix":         {Redis, "unix:///run/redis.sock[?db=0]"},
	"redis-socket": {Redis, "redis-socket:///run/redis.sock[?db=0]"},
	"file":         {File, "file:/DIR"},
	"mem":          {Mem, "mem:"},
}

type form struct {
	kind  Kind
	looks string
}

// planned are the schemes that redlatch will have, and what each needs. Saying "not
// yet" is better than "unknown": the reader knows that the URL is right.
var planned = map[string]string{
	"redis+sentinel": "Redis Sentinel", "rediss+sentinel": "Redis Sentinel", "redis-sentinel": "Redis Sentinel",
	"redis+cluster": "Redis Cluster", "rediss+cluster": "Redis Cluster",
	"redlock": "Redlock", "redlocks": "Redlock",
	"etcd": "etcd", "etcds": "etcd",
	"zk":       "ZooKeeper",
	"postgres": "PostgreSQL", "postgresql": "PostgreSQL",
	"http": "HTTP service", "https": "HTTP service",
}

// Available is a line that lists what can be opened.
const Available = "redis://HOST, rediss://HOST, valkey://HOST, valkeys://HOST, redis+unix:///SOCKET, file:DIR, mem:"

var (
	errPassword = errors.New("the password (or another part) contains '/', '#', '?', '@' or '%' as it is: percent-encode it, or use ?password_file= or ?password_env=")
	errPort     = errors.New("what follows the host's ':' is not a port from 1 to 65535")
)

// Parse reads a URL. It looks at no file and at no variable.
func Parse(raw string) (URL, error) {
	scheme, rest, ok := strings.Cut(raw, ":")
	scheme = strings.ToLower(scheme)
	f, known := available[scheme]
	switch {
	case raw == "":
		return URL{}, fmt.Errorf("the store's URL is empty; there are %s", Available)
	case planned[scheme] != "" && ok:
		return URL{}, fmt.Errorf("%s:// is not there yet: there is no %s in this release; there are %s", scheme, planned[scheme], Available)
	case known && ok:
	case ok && strings.HasPrefix(rest, "//") && looksLikeScheme(scheme):
		return URL{}, fmt.Errorf("there is no store %s://; there are %s", scheme, Available)
	default:
		return URL{}, fmt.Errorf("this is not a store's URL, which begins with a scheme; there are %s", Available)
	}
	u := URL{Kind: f.kind, Scheme: scheme}
	var err error
	switch f.kind {
	case File:
		err = u.file(rest)
	case Mem:
		if rest != "" && rest != "//" {
			err = errors.New("mem: takes nothing after it")
		}
	default:
		err = u.redis(rest)
	}
	if err != nil {
		return URL{}, fmt.Errorf("%w (a %s URL looks like %s)", err, scheme, f.looks)
	}
	return u, nil
}

func looksLikeScheme(s string) bool {
	return s != "" && len(s) <= 20 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789+-.") == ""
}

// file takes file:DIR and file:///DIR. The directory is meant literally.
func (u *URL) file(rest string) error {
	dir := strings.TrimPrefix(rest, "//")
	switch {
	case dir == "":
		return errors.New("the directory is missing")
	case strings.ContainsAny(dir, "?#"):
		return errors.New("file: takes no parameters, and its directory no '?' and no '#'")
	case strings.ContainsRune(dir, 0):
		return errors.New("the directory has a zero byte in it")
	case dir != rest && dir[0] != '/':
		return errors.New("file:// is followed by a third '/'; there are no files on other hosts")
	case dir[0] != '/' && !filepath.IsAbs(dir):
		return errors.New("the directory is relative, and another job's working directory may be another one: give it from the root on")
	}
	u.Dir = dir
	return nil
}

func (u *URL) redis(rest string) error {
	rest, ok := strings.CutPrefix(rest, "//")
	if !ok {
		return errors.New("'//' is missing after the scheme")
	}
	authority, rest := cutAny(rest, "/?#")
	// An '@' behind the authority is the end of a password that has one of / ? # in it.
	if strings.Contains(rest, "@") {
		return errPassword
	}
	path, query := rest, ""
	if i := strings.IndexAny(rest, "?#"); i >= 0 {
		if rest[i] == '#' || strings.Contains(rest, "#") {
			return errors.New("it has a '#' in it, which nothing in a store's URL uses; percent-encode it if it belongs to the password")
		}
		path, query = rest[:i], rest[i+1:]
	}
	if i := strings.LastIndex(authority, "@"); i >= 0 {
		if err := u.userinfo(authority[:i]); err != nil {
			return err
		}
		authority = authority[i+1:]
	}
	switch u.Scheme {
	case "redis+unix", "unix", "redis-socket":
		u.Socket = true
		return u.socket(authority, path, query)
	case "rediss", "valkeys":
		u.TLS = true
	}
	if err := u.address(authority); err != nil {
		return err
	}
	if err := u.database(strings.TrimPrefix(path, "/")); err != nil {
		return err
	}
	return u.parameters(query)
}

func cutAny(s, chars string) (before, from string) {
	if i := strings.IndexAny(s, chars); i >= 0 {
		return s[:i], s[i:]
	}
	return s, ""
}

func (u *URL) userinfo(s string) error {
	user, password, has := strings.Cut(s, ":")
	var err, err2 error
	u.User, err = url.PathUnescape(user)
	password, err2 = url.PathUnescape(password)
	if err != nil || err2 != nil || strings.Contains(s, "@") {
		return errPassword
	}
	if has {
		u.password = inline(password)
	}
	return nil
}

func (u *URL) socket(authority, path, query string) error {
	if authority != "" {
		return errors.New("a socket's path begins with a third '/'")
	}
	p, err := url.PathUnescape(path)
	if err != nil || len(p) < 2 {
		return errors.New("the socket's path is missing, or its percent-encoding is wrong")
	}
	u.Addr = p
	return u.parameters(query)
}

// address takes host, host:port, [v6] and [v6]:port.
func (u *URL) address(s string) error {
	if strings.Contains(s, ",") {
		return errors.New("several hosts in one URL need redis+sentinel, redis+cluster or redlock, which are not there yet")
	}
	host, port, v6 := s, defaultPort, false
	switch {
	case strings.HasPrefix(s, "["):
		inside, after, ok := strings.Cut(s[1:], "]")
		if !ok || net.ParseIP(strings.SplitN(inside, "%", 2)[0]) == nil || after != "" && after[0] != ':' {
			return errors.New("what stands in [ ] is not an IPv6 address")
		}
		host, v6 = inside, true
		if after != "" {
			port = after[1:]
		}
	case strings.Count(s, ":") > 1:
		return errors.New("an IPv6 address stands in [ ]; or a password lacks its '@'")
	case strings.Contains(s, ":"):
		host, port, _ = strings.Cut(s, ":")
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return errPort
	}
	switch {
	case host == "":
		return errors.New("the host is missing")
	case !v6 && strings.ContainsAny(host, "%\\\"[] \t\r\n"):
		return errors.New("the host has characters that no host has")
	}
	u.Addr = net.JoinHostPort(host, strconv.FormatUint(n, 10))
	return nil
}

func (u *URL) database(s string) error {
	if s == "" {
		return nil
	}
	n, err := strconv.ParseUint(s, 10, 31)
	if err != nil {
		return errors.New("what follows the host's '/' is not the number of a database")
	}
	u.DB = int(n)
	return nil
}

// Redacted is the URL without its password, for messages.
func (u URL) Redacted() string {
	switch u.Kind {
	case File:
		return "file:" + u.Dir
	case Mem:
		return "mem:"
	}
	var b strings.Builder
	b.WriteString(u.Scheme + "://")
	if u.User != "" || u.password.set() {
		b.WriteString(url.PathEscape(u.User))
		if u.password.set() {
			b.WriteString(":xxxxx")
		}
		b.WriteString("@")
	}
	b.WriteString(u.Addr)
	if u.Socket {
		fmt.Fprintf(&b, "?db=%d", u.DB)
	} else {
		fmt.Fprintf(&b, "/%d", u.DB)
	}
	return b.String()
}

// Bare is a URL that Parse has taken, without the password that stands in it: for others,
// who may have it from elsewhere.
func Bare(raw string) string {
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok {
		return raw
	}
	authority, rest := cutAny(rest, "/?#")
	i := strings.LastIndex(authority, "@")
	if i < 0 {
		return raw
	}
	user, _, _ := strings.Cut(authority[:i], ":")
	if user != "" {
		user += "@"
	}
	return scheme + "://" + user + authority[i+1:] + rest
}

// String and GoString are Redacted: no verb of fmt shows the password.
func (u URL) String() string   { return u.Redacted() }
func (u URL) GoString() string { return u.Redacted() }
