package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/redlatch/redlatch/cmd/redlatch/internal/storeurl"
	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/filestore"
	"github.com/redlatch/redlatch/lease"
	"github.com/redlatch/redlatch/memstore"
)

// urlVariable says where the locks are kept if --store does not.
const urlVariable = "REDLATCH_URL"

// opened is the store of one command.
type opened struct {
	driver.Store

	raw       string // its URL
	namespace string
	name      string        // the URL without the password, for messages
	ttl       time.Duration // what the URL says, or 0
	hidden    []string      // variables that the command must not see
	local     bool          // nothing was configured
	inline    bool          // the password stands in the URL
	keys      keyed         // nil: it has none
	onClose   func()
}

// full is the name as the store knows it.
func (o *opened) full(name string) string { return o.namespace + name }

// close is the end of the program's use of the store: there is nobody to tell what
// could still go wrong.
func (o *opened) close() {
	_ = o.Store.Close()
	if o.onClose != nil {
		o.onClose()
	}
}

// open opens the store that is configured, or the files on this host.
func (a *app) open() (*opened, error) {
	o, err := a.openConfigured()
	if err != nil || !a.shared {
		return o, err
	}
	if !slices.Contains(o.Features().Modes, lease.Shared) {
		o.close()
		return nil, usage("%s has no shared locks", o.name)
	}
	o.Store = readers{o.Store}
	return o, nil
}

func (a *app) openConfigured() (*opened, error) {
	conf, err := a.loaded()
	if err != nil {
		return nil, err
	}
	raw, hidden, err := a.configured(conf)
	if err != nil {
		return nil, err
	}
	if raw == "" && conf.general(keyRequire) == distributed {
		return nil, badConfig("no store is configured, and %s requires one that excludes other hosts", conf.values[keyRequire].origin)
	}
	namespace := a.namespaceFlag
	if namespace == "" {
		namespace = conf.general(keyNamespace)
	} else if err := lease.CheckName(namespace); err != nil {
		return nil, usage("--namespace: %v", err)
	}
	if raw == "" {
		return a.openLocal(namespace)
	}
	o, err := a.openRaw(raw, namespace)
	if err != nil {
		return nil, err
	}
	if f := o.Features(); conf.general(keyRequire) == distributed && (f.HostOnly || f.ProcessOnly) {
		o.close()
		return nil, badConfig("%s excludes on this host only, and %s requires more", o.name, conf.values[keyRequire].origin)
	}
	if o.inline && a.storeFlag == raw {
		a.info("the password in --store can be seen by everybody on this host; put the URL into %s, or the password into a file (?password_file=)", urlVariable)
	}
	if a.ttlSet {
		o.ttl = 0 // what is said about this program stands above what the URL says about the store
	}
	o.hidden = append(o.hidden, hidden...)
	return o, nil
}

// within makes all names those of a namespace.
func (o *opened) within(namespace string) {
	if namespace == "" {
		return
	}
	o.namespace = namespace + "/"
	o.name += " ns=" + lease.Printable(namespace)
	o.Store = namespaced{o.Store, o.namespace}
}

// openRaw opens the store of a URL.
func (a *app) openRaw(raw, namespace string) (*opened, error) {
	u, err := storeurl.Parse(raw)
	if err != nil {
		return nil, usage("the store's URL: %v", err)
	}
	o, err := a.openURL(u)
	if err != nil {
		return nil, err
	}
	o.raw, o.name, o.ttl, o.inline, o.hidden = raw, u.Redacted(), u.TTL, u.Inline(), []string{urlVariable}
	if u.PasswordEnv() != "" {
		o.hidden = append(o.hidden, u.PasswordEnv())
	}
	o.within(namespace)
	return o, nil
}

// configured is the URL that is asked for, "" if none is, and the variable it is in.
func (a *app) configured(conf *settings) (raw string, hidden []string, err error) {
	raw, from := a.storeFlag, "--store"
	if a.storeGiven && raw == "" {
		return "", nil, usage("--store is empty; give a store's URL, or leave --store out")
	}
	if raw == "" {
		raw, from = conf.general(keyStore), conf.values[keyStore].origin+":"
	}
	name, ok := strings.CutPrefix(raw, "env:")
	if !ok {
		return raw, nil, nil
	}
	if raw = os.Getenv(name); raw == "" {
		return "", nil, usage("%s env:%s: that variable is not set", from, name)
	}
	return raw, []string{name}, nil
}

func (a *app) openURL(u storeurl.URL) (*opened, error) {
	switch u.Kind {
	case storeurl.Mem:
		if !a.alone {
			f := usage("mem: is the memory of one process, and this command would find its own empty")
			f.next = "use file:DIR for the processes of this host, or a server"
			return nil, f
		}
		a.info("mem: excludes nobody but this process: others run the same at the same time")
		return &opened{Store: memstore.New()}, nil
	case storeurl.File:
		store, err := filestore.New(u.Dir, filestore.Options{Detached: a.leaves})
		if err != nil {
			return nil, unavailable("%s: %v", u.Redacted(), err)
		}
		return &opened{Store: store}, nil
	}
	return a.openRedis(u)
}

// openLocal is for a machine on which nobody has set up anything. It says what that
// is worth, always: nobody shall believe that it excludes other hosts.
func (a *app) openLocal(namespace string) (*opened, error) {
	dir, err := localDir()
	if err != nil {
		return nil, unavailable("no store is configured, and local files cannot be used: %v", err)
	}
	store, err := filestore.New(dir, filestore.Options{Detached: a.leaves})
	if err != nil {
		return nil, unavailable("no store is configured, and local files cannot be used: %s: %v", dir, err)
	}
	if !a.local {
		a.warnLocal(dir)
	}
	o := &opened{Store: store, local: true, raw: "file:" + dir, name: "file:" + dir, hidden: []string{urlVariable}}
	o.within(namespace)
	return o, nil
}

func (a *app) warnLocal(dir string) {
	a.warn("no store configured - using local files in %s; this excludes this user's jobs on THIS HOST only (use --store or %s, or redlatch config init)", dir, urlVariable)
	if os.Getenv("REDIS_URL") != "" {
		// Taking it unasked would put locks into a cache that may evict them.
		a.info("hint: REDIS_URL is set; use --store env:REDIS_URL if the locks belong there")
	}
}

func unavailable(format string, args ...any) *failure {
	return &failure{code: codeUnavailable, kind: "unavailable", msg: fmt.Sprintf(format, args...)}
}

func (a *app) openRedis(u storeurl.URL) (*opened, error) {
	password, err := u.Password()
	if err != nil {
		return nil, usage("the store's URL: %v", err)
	}
	a.hide(password)
	config, err := tlsConfig(u)
	if err != nil {
		return nil, usage("the store's URL: %v", err)
	}
	client := redisClient(u, password, config)
	store, err := redisStore(client, u)
	if err != nil {
		_ = client.Close()
		return nil, usage("%s: %v", u.Redacted(), err)
	}
	return &opened{Store: store, keys: store, onClose: func() { _ = client.Close() }}, nil
}

func tlsConfig(u storeurl.URL) (*tls.Config, error) {
	if !u.TLS {
		return nil, nil
	}
	host, _, _ := strings.Cut(strings.TrimPrefix(u.Addr, "["), "]")
	if !strings.HasPrefix(u.Addr, "[") {
		host, _, _ = strings.Cut(u.Addr, ":")
	}
	host, _, _ = strings.Cut(host, "%") // a zone is this host's, and in no certificate
	config := &tls.Config{ServerName: host, InsecureSkipVerify: u.SkipVerify, MinVersion: tls.VersionTLS12}
	if u.CA != "" {
		pem, err := os.ReadFile(u.CA)
		if err != nil {
			return nil, fmt.Errorf("tls_ca: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("tls_ca: there is no certificate in %s", u.CA)
		}
	}
	if u.Cert != "" {
		pair, err := tls.LoadX509KeyPair(u.Cert, u.Key)
		if err != nil {
			return nil, fmt.Errorf("tls_cert, tls_key: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
