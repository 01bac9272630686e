package storeurl

import (
	"fmt"
	"os"
	"strings"
)

// secret is where a password comes from. It is a function so that no way of printing
// a URL, not even %+v of something around it, has the text to print.
type secret struct {
	read func() (string, error)
	env  string // the variable it stands in
	argv bool   // it stands in the URL itself
}

func (s secret) set() bool { return s.read != nil }

func inline(password string) secret {
	return secret{read: func() (string, error) { return password, nil }, argv: true}
}

func fromEnv(name string) secret {
	return secret{env: name, read: func() (string, error) {
		v, ok := os.LookupEnv(name)
		if !ok {
			return "", fmt.Errorf("password_env: the variable %s is not set", name)
		}
		return v, nil
	}}
}

func fromFile(path string) secret {
	return secret{read: func() (string, error) {
		b, err := os.ReadFile(path)
		if err != nil {
			return "", fmt.Errorf("password_file: %w", err)
		}
		return strings.TrimRight(string(b), "\r\n"), nil
	}}
}

// Password reads the password from where it stands; "" if there is none.
func (u URL) Password() (string, error) {
	if !u.password.set() {
		return "", nil
	}
	return u.password.read()
}

// Inline reports whether the password stands in the URL: given as an argument it can
// be seen by everybody on the host.
func (u URL) Inline() bool { return u.password.argv }

// PasswordEnv is the name of the variable that holds the password, or "".
func (u URL) PasswordEnv() string { return u.password.env }
