package main

import (
	"bufio"
	"errors"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

const (
	tokenVariable = "REDLATCH_TOKEN"
	leaseVariable = "REDLATCH_LEASE" // set by run and by acquire --export, beside the lock's name
	lockVariable  = "REDLATCH_LOCK"

	tokenText = `The token is what redlatch acquire has printed. It is a secret, and arguments can be
seen by everybody on the host: better in REDLATCH_TOKEN, or with - on standard input.
Without either it is that of REDLATCH_LEASE, which redlatch run and acquire --export set.
`
)

// nameAndToken is the Args of commands that are about one hold.
func nameAndToken(cmd *cobra.Command, args []string) error {
	if len(args) > 2 {
		return usage("a name and a token are expected, there are %d arguments", len(args))
	}
	return oneName(cmd, args[:min(len(args), 1)])
}

// token is the hold's token, from where it was given. No message has it.
func (a *app) token(args []string) (string, error) {
	token, err := a.givenToken(args)
	if err != nil {
		return "", err
	}
	if token = strings.TrimSpace(token); token == "" {
		f := usage("the token is empty")
		f.next = "it is what redlatch acquire has printed"
		return "", f
	}
	a.hide(token)
	return token, nil
}

func (a *app) givenToken(args []string) (string, error) {
	if len(args) == 2 && args[1] != "-" {
		return args[1], nil
	}
	if len(args) == 2 {
		line, err := bufio.NewReader(io.LimitReader(os.Stdin, 1<<16)).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return "", usage("the token cannot be read from standard input: %v", err)
		}
		return line, nil
	}
	if token, ok := os.LookupEnv(tokenVariable); ok {
		return token, nil
	}
	token, ok := os.LookupEnv(leaseVariable)
	if !ok {
		f := usage("the token is missing")
		f.next = "put what redlatch acquire has printed into " + tokenVariable + ", or give - and write it to standard input"
		return "", f
	}
	// Another lock's token would look like a lost one.
	if lock, ok := os.LookupEnv(lockVariable); ok && lock != args[0] {
		f := usage("%s has the token of %s, not of %s", leaseVariable, quoted(lock), quoted(args[0]))
		f.next = "put the right one into " + tokenVariable
		return "", f
	}
	return token, nil
}
