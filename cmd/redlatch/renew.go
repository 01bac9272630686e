package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch"
)

func (a *app) renewCommand() *cobra.Command {
	o := acquireOptions{ttl: redlatch.DefaultTTL}
	cmd := &cobra.Command{
		Use:   "renew NAME [TOKEN]",
		Short: "keep a lock for longer that redlatch acquire has taken",
		Example: `redlatch renew --ttl 10m deploy "$token" || exit
redlatch renew deploy                        with the token in REDLATCH_TOKEN
echo "$token" | redlatch renew deploy -`,
		Long: tokenText + `
The lock ends --ttl from now; what it has is never shortened. A lock that is lost is
not taken again: then stop what you do under it.`,
		Annotations:       map[string]string{exitCodes: renewCodes},
		Args:              nameAndToken,
		ValidArgsFunction: a.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.ttlGiven = cmd.Flags().Changed("ttl")
			return a.renew(args, &o)
		},
	}
	cmd.Flags().Var(o.length(&o.ttl), "ttl", "the lock ends `DUR` from now (30s)")
	group(cmd.Flags(), "Lease", "ttl")
	return cmd
}

const renewCodes = `  0  the lock is yours for --ttl from now
 64  usage: a flag, the name, the token, the store's URL
 69  the store cannot be reached; whether it is renewed is not known
 70  internal error
 77  the store refuses the user, the password or the right
 78  the configuration is invalid
 79  the lock is lost: expired, taken by somebody else, or broken`

func (a *app) renew(args []string, o *acquireOptions) error {
	token, err := a.token(args)
	if err != nil {
		return err
	}
	for _, doubt := range o.doubts {
		a.warn("%s", doubt)
	}
	return a.detached(redlatch.Config{}, func(locks *redlatch.Locker, store *opened) error {
		o.leaseOf(store)
		ctx, cancel := context.WithTimeout(context.Background(), queryTimeout)
		defer cancel()
		held, err := locks.Resume(ctx, args[0], token, redlatch.Options{TTL: o.ttl, NoRenew: true})
		if err != nil {
			return lostText(args[0], err)
		}
		if a.json {
			doc := holdOf(held, o.ttl, store.name)
			doc.Token = "" // whoever renews has it
			a.document(a.out, doc)
			return nil
		}
		a.detail("renewed %s, fence %d; %s", args[0], held.Fence(), until(time.Until(held.Until())))
		return nil
	})
}

// lostText says which lock was lost, which explain leaves to who called.
func lostText(name string, err error) error {
	f := explain(err)
	if f.code == codeLost {
		f.next = "stop what is done under it (redlatch who " + quoted(name) + ")"
	}
	return f
}
