package storeurl

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/cmd/redlatch/internal/duration"
	"github.com/redlatch/redlatch/cmd/redlatch/internal/nearest"
)

// set gives one parameter its value. The errors do not quote it.
type set func(u *URL, value string) error

var parameters = map[string]set{
	"db":            func(u *URL, v string) error { return u.database(v) },
	"prefix":        func(u *URL, v string) error { u.Prefix, u.HasPrefix = v, true; return nil },
	"plain":         func(u *URL, v string) (err error) { u.Plain, err = yesNo(v); return err },
	"ttl":           func(u *URL, v string) (err error) { u.TTL, err = length(v); return err },
	"dial_timeout":  func(u *URL, v string) (err error) { u.DialTimeout, err = length(v); return err },
	"username":      func(u *URL, v string) error { u.User = v; return nil },
	"password_file": func(u *URL, v string) error { return u.setPassword(fromFile(v)) },
	"password_env":  func(u *URL, v string) error { return u.setPassword(fromEnv(v)) },
	"tls_ca":        func(u *URL, v string) error { u.CA = v; return u.needTLS() },
	"tls_cert":      func(u *URL, v string) error { u.Cert = v; return u.needTLS() },
	"tls_key":       func(u *URL, v string) error { u.Key = v; return u.needTLS() },
	"skip_verify": func(u *URL, v string) (err error) {
		if u.SkipVerify, err = yesNo(v); err != nil {
			return err
		}
		return u.needTLS()
	},
}

// parameters reads what follows the '?'. A name that is not known is an error: a
// mistyped one must not change what is locked where.
func (u *URL) parameters(query string) error {
	seen := make(map[string]bool)
	for _, pair := range strings.FieldsFunc(query, func(r rune) bool { return r == '&' }) {
		name, value, ok := strings.Cut(pair, "=")
		give, known := parameters[name]
		if !known {
			return unknown(name)
		}
		if !ok {
			return fmt.Errorf("the parameter %s has no value", name)
		}
		if seen[name] {
			return fmt.Errorf("the parameter %s stands there twice", name)
		}
		seen[name] = true
		value, err := url.PathUnescape(value)
		if err != nil {
			return fmt.Errorf("the value of %s is not percent-encoded properly", name)
		}
		if err := give(u, value); err != nil {
			return fmt.Errorf("the parameter %s: %w", name, err)
		}
	}
	if (u.Cert == "") != (u.Key == "") {
		return errors.New("tls_cert and tls_key go together")
	}
	return nil
}

func length(v string) (time.Duration, error) {
	d, _, err := duration.Parse(v)
	if err != nil || d == 0 {
		return 0, errors.New("it is a length of time, such as 500ms or 10s")
	}
	return d, nil
}

func yesNo(v string) (bool, error) {
	yes, err := strconv.ParseBool(v)
	if err != nil {
		return false, errors.New("it is true or false")
	}
	return yes, nil
}

func unknown(name string) error {
	names := make([]string, 0, len(parameters))
	for n := range parameters {
		names = append(names, n)
	}
	slices.Sort(names)
	if near := nearest.Of(name, names); near != "" {
		return fmt.Errorf("unknown parameter; did you mean %s?", near)
	}
	return fmt.Errorf("unknown parameter; there are %s", strings.Join(names, ", "))
}

func (u *URL) setPassword(s secret) error {
	if u.password.set() {
		return errors.New("there is a password already")
	}
	u.password = s
	return nil
}

func (u *URL) needTLS() error {
	if !u.TLS {
		return errors.New("this scheme does not use TLS; rediss:// and valkeys:// do")
	}
	return nil
}
