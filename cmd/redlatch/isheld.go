package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch"
)

const codeFree = 1

func (a *app) isHeldCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "is-held NAME",
		Short: "ask in a script whether a lock is held",
		Example: `redlatch is-held nightly/report && echo busy
redlatch is-held --json nightly/report`,
		Long: `Prints nothing: the exit code is the answer. A lock that nobody holds but that
nobody can have yet (--hold-at-least) counts as held. The answer may be over when it
comes: to do something only while a lock is free, take it.`,
		Annotations: map[string]string{exitCodes: `  0  held
  1  free
 64  usage: a flag, the name, the store's URL
 69  unknown: the store cannot be reached
 70  internal error
 77  unknown: the store refuses the user, the password or the right
 78  unknown: the configuration is invalid`},
		Args:              oneName,
		ValidArgsFunction: a.completeNames,
		RunE: func(_ *cobra.Command, args []string) error {
			return a.ask(queryTimeout, func(ctx context.Context, locks *redlatch.Locker, store string) error {
				q, err := locks.Inspect(ctx, args[0])
				if err != nil {
					return err
				}
				if a.json {
					a.document(a.out, lockOf(args[0], store, &q))
				}
				if stateOf(&q) == stateFree {
					a.code = codeFree
				}
				return nil
			})
		},
	}
}
