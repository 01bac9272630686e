package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/lease"
)

func (a *app) releaseCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "release NAME [TOKEN]",
		Short: "give a lock back that redlatch acquire has taken",
		Example: `redlatch release deploy "$token"
trap 'redlatch release deploy' EXIT          with the token in REDLATCH_TOKEN
echo "$token" | redlatch release deploy -`,
		Long: tokenText + `
Releasing again is no error. A lock that ended by itself and that nobody has is none
either, but it is said: others may have had it while you thought it yours.`,
		Annotations: map[string]string{exitCodes: `  0  released, or not held any more
 64  usage: a flag, the name, the token, the store's URL
 69  the store cannot be reached; whether it is released is not known
 70  internal error
 75  somebody else has it: yours was lost, or this is not its token
 77  the store refuses the user, the password or the right
 78  the configuration is invalid`},
		Args:              nameAndToken,
		ValidArgsFunction: a.completeNames,
		RunE:              func(_ *cobra.Command, args []string) error { return a.release(args) },
	}
}

// releaseJSON is what became of a release, redlatch.release/v1.
type releaseJSON struct {
	Schema  string `json:"schema"`
	Name    string `json:"name"`
	Outcome string `json:"outcome"` // released, not_held
	Store   string `json:"store"`
}

func (a *app) release(args []string) error {
	name := args[0]
	token, err := a.token(args)
	if err != nil {
		return err
	}
	return a.ask(queryTimeout, func(ctx context.Context, locks *redlatch.Locker, store string) error {
		doc := releaseJSON{"redlatch.release/v1", name, "released", store}
		err := locks.Release(ctx, name, token)
		var held *redlatch.HeldError
		switch {
		case errors.As(err, &held):
			return notOurs(name, held)
		case errors.Is(err, redlatch.ErrNotHeld):
			doc.Outcome = "not_held"
			a.info("%s was not held any more with this token, and nobody has it", lease.Printable(name))
		case err != nil:
			return err
		default:
			a.detail("released %s", name)
		}
		if a.json {
			a.document(a.out, doc)
		}
		return nil
	})
}

func notOurs(name string, held *redlatch.HeldError) *failure {
	return &failure{
		code: codeHeld, kind: "held",
		msg:  lease.Printable(name) + " is not held with this token, but by " + whoText(held.Holder.Owner, held.Holder.Foreign) + "; nothing was released",
		next: "redlatch who " + quoted(name),
	}
}
