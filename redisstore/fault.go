package redisstore

import (
	"errors"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/lease"
)

// fault says what sort of trouble an error is. Redis says it in the first word of its
// answer; what is only ERR says it in words: that a script was denied something inside (up
// to Redis 7.0), that a password is not what the server asks for or is missing behind what
// is too long from somebody who has not logged in, or that it has no such command or
// database and will not have it the next time either. DENIED is how a server in protected
// mode greets who comes from another host. What is not an answer of the server at all is a
// network that failed or a time that ran out.
//
// Whatever is not known is Unavailable: READONLY, OOM, MISCONF, BUSY, LOADING,
// NOREPLICAS, MASTERDOWN, CLUSTERDOWN, too many clients. All of them say "not now",
// and none of them that nothing happened: a script can fail half way, and a client
// library may report the second of two tries.
func fault(err error) error {
	if err == nil {
		return nil
	}
	var known *driver.Fault
	if errors.As(err, &known) {
		return err
	}
	return &driver.Fault{Kind: kindOf(err), Err: err}
}

func kindOf(err error) driver.Kind {
	if errors.Is(err, lease.ErrNewer) {
		return driver.Misplaced
	}
	code := serverCode(err)
	says := func(texts ...string) bool {
		return slices.ContainsFunc(texts, func(text string) bool { return strings.HasPrefix(code, text) })
	}
	switch {
	case code == "NOPERM", code == "NOAUTH", code == "WRONGPASS", code == "DENIED",
		says("ERR The user executing the script can't", protocolError+": unauthenticated",
			"ERR AUTH <password> called without", "ERR invalid password", "ERR Client sent AUTH"):
		return driver.Denied
	case code == "WRONGTYPE":
		return driver.Misplaced
	case says(unknownCommand, "ERR Unknown Redis command called from script", "ERR DB index is out of range", "ERR SELECT is not allowed"):
		return driver.Refused // renamed away, or a proxy does not have it
	}
	return driver.Unavailable
}

// serverCode is the code that a server's error begins with; the whole text, if that
// is only ERR; "" if the error is not an answer of the server.
func serverCode(err error) string {
	var answer redis.Error
	if !errors.As(err, &answer) {
		return ""
	}
	text := strings.TrimPrefix(answer.Error(), "EXECABORT Transaction discarded because of: ") // EXEC itself was refused
	code, _, _ := strings.Cut(text, " ")
	if code == "ERR" {
		return text
	}
	return code
}

const (
	unknownCommand = "ERR unknown command"
	protocolError  = "ERR Protocol error"
)

// refusedCommand reports that the server refuses one of those commands as such, whatever
// it would have been about. Which one it is stands in the text only.
func refusedCommand(err error, commands ...string) bool {
	code := serverCode(err)
	if code != "NOPERM" && !strings.HasPrefix(code, unknownCommand) {
		return false
	}
	for _, word := range strings.FieldsFunc(err.Error(), func(r rune) bool { return strings.ContainsRune(" '`,", r) }) {
		if slices.Contains(commands, strings.ToLower(word)) {
			return true
		}
	}
	return false
}

// refusal says of commands that are refused what they are for, and what to do.
type refusal struct {
	what, remedy string
	err          error
}

func (e *refusal) Error() string {
	return "the server refuses " + e.what + " (" + e.err.Error() + "): " + e.remedy
}

func (e *refusal) Unwrap() error { return e.err }

// otherFormat names what was found under a lock key that is not a string.
type otherFormat struct {
	key string
	err error
}

func (e *otherFormat) Error() string {
	return "the key " + lease.Printable(e.key) + " belongs to another lock format: " + e.err.Error()
}

func (e *otherFormat) Unwrap() error { return e.err }
