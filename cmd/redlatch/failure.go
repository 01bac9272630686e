package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/cmd/redlatch/internal/child"
	"github.com/redlatch/redlatch/lease"
)

// The program's own exit codes. They stand apart from what commands usually use: the
// first are sysexits.h's, 124 is timeout's, 126 to 128+n the shell's.
const (
	codeUsage       = 64
	codeUnavailable = 69
	codeInternal    = 70
	codeHeld        = 75
	codeDenied      = 77
	codeConfig      = 78
	codeLost        = 79
	codeMaxRuntime  = 124
)

// failure is why the program did not do what it was asked for.
type failure struct {
	code int
	kind string // stable, for programs: usage, held, wait_timeout, lost, unavailable, denied, conflict, not_found, internal
	msg  string // what happened
	next string // what to do about it
	told bool   // it has been said already
}

func (f *failure) Error() string { return f.msg }

// errorJSON is a failure for programs.
type errorJSON struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

func (f *failure) json() errorJSON { return errorJSON{f.kind, f.msg, f.next} }

func usage(format string, args ...any) *failure {
	return &failure{code: codeUsage, kind: "usage", msg: fmt.Sprintf(format, args...)}
}

// explain gives an error its exit code. "Held by somebody" and "the store did not
// answer" are different answers, to scripts too.
func explain(err error) *failure {
	var known *failure
	if errors.As(err, &known) {
		return known
	}
	text := err.Error()
	var ours *redlatch.Error
	if errors.As(err, &ours) {
		text = ours.Err.Error() // who called us knows what was tried, and on which lock
	}
	text = scriptNoise.ReplaceAllString(text, "")
	var cannot *child.CannotRunError
	f := &failure{code: codeInternal, kind: "internal", msg: text}
	switch {
	case errors.As(err, &cannot):
		f.code, f.kind = cannot.Code, "not_found"
	case strings.Contains(text, "DB index is out of range"):
		f.code, f.kind = codeUsage, "usage"
		f.next = "the number behind the last / of the store's URL is a database that this server does not have"
	case errors.Is(err, redlatch.ErrInvalid), errors.Is(err, redlatch.ErrUnsupported):
		f.code, f.kind = codeUsage, "usage"
	case errors.Is(err, redlatch.ErrConflict):
		f.code, f.kind = codeUsage, "conflict"
		f.next = "give another name, or another prefix in the store's URL (?prefix=)"
	case errors.Is(err, redlatch.ErrDenied):
		f.code, f.kind = codeDenied, "denied"
		f.next = "check the user and the password in the store's URL, and what that user may do there"
	case errors.Is(err, redlatch.ErrHeld), errors.Is(err, redlatch.ErrSealed), errors.Is(err, redlatch.ErrQueueFull):
		f.code, f.kind = codeHeld, "held"
	case errors.Is(err, redlatch.ErrLost):
		f.code, f.kind = codeLost, "lost"
	case errors.Is(err, redlatch.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		f.code, f.kind = codeUnavailable, "unavailable"
		f.next = remedy(text)
		f.tls(err)
	}
	return f
}

// scriptNoise is what Redis adds to the error of a script. It means nothing to a user.
var scriptNoise = regexp.MustCompile(`\.? script: [0-9a-f]{40}, on @user_script:\d+\.?`)

// remedies are what a server needs that says "not now", by the first word of what it says.
var remedies = []struct{ says, do string }{
	{"OOM ", "the server's memory is full (maxmemory): free some, or raise the limit; locks that are held can still be renewed and released"},
	{"READONLY ", "that server is a replica, or became one: give the master's address"},
	{"MISCONF ", "the server cannot write its disk and refuses changes: see its log"},
	{"BUSY ", "a script hangs on the server: SCRIPT KILL ends it"},
	{"LOADING ", "the server reads its data in, and will answer when it has"},
	{"NOREPLICAS ", "the server wants more replicas than are connected (min-replicas-to-write)"},
	{"MASTERDOWN ", "that server is a replica that has lost its master: give the master's address"},
	{"max number of clients reached", "the server takes no more connections (maxclients)"},
	{"no such host", "check the host's name in the store's URL"},
	{"connection refused", "check the host and the port in the store's URL, and that the server runs"},
}

func remedy(text string) string {
	for _, r := range remedies {
		if strings.Contains(text, r.says) {
			return r.do
		}
	}
	return "check that the server runs and can be reached from here"
}

// tls says what to do about a connection that could not be made safe.
func (f *failure) tls(err error) {
	var distrusted *tls.CertificateVerificationError
	var header tls.RecordHeaderError
	var remote *net.OpError
	switch {
	case errors.As(err, &distrusted):
		f.next = "if that is the right server: name its authority with ?tls_ca=FILE, and the host as its certificate has it"
	case errors.As(err, &header):
		f.next = "the server does not speak TLS there: redis:// in place of rediss://, or its other port"
	case errors.As(err, &remote) && remote.Op == "remote error": // an alert: it knows us, and does not want us
		f.code, f.kind = codeDenied, "denied"
		f.next = "the server refuses the TLS connection: it may want a certificate of its own authority (?tls_cert=FILE&tls_key=FILE)"
	}
}

// unanswered adds what silence may mean behind a URL with TLS.
func (f *failure) unanswered(store string) {
	tls := strings.HasPrefix(store, "rediss:") || strings.HasPrefix(store, "valkeys:")
	if tls && (strings.Contains(f.msg, "no answer") || strings.Contains(f.msg, "deadline exceeded")) {
		f.next += "; a port without TLS is silent too (redis:// is for those)"
	}
}

// checkName is lease's, told as a usage failure.
func checkName(name string) error {
	if err := lease.CheckName(name); err != nil {
		return usage("%v", err)
	}
	return nil
}
