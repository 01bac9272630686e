package main

import (
	"context"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch"
)

func (a *app) completionCommand(root *cobra.Command) *cobra.Command {
	scripts := map[string]func(io.Writer) error{
		"bash":       func(w io.Writer) error { return root.GenBashCompletionV2(w, true) },
		"zsh":        root.GenZshCompletion,
		"fish":       func(w io.Writer) error { return root.GenFishCompletion(w, true) },
		"powershell": root.GenPowerShellCompletionWithDesc,
	}
	return &cobra.Command{
		Use:   "completion SHELL",
		Short: "print the completion script of a shell",
		Example: `source <(redlatch completion bash)
redlatch completion zsh > "${fpath[1]}/_redlatch"
redlatch completion fish | source
redlatch completion powershell | Out-String | Invoke-Expression`,
		Annotations: map[string]string{exitCodes: "  0  printed\n 64  there is no such shell here", unconfigured: "it needs nothing"},
		ValidArgs:   []string{"bash", "zsh", "fish", "powershell"},
		Args:        cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || scripts[args[0]] == nil {
				return usage("name one shell: bash, zsh, fish or powershell")
			}
			return scripts[args[0]](a.out)
		},
	}
}

// completionTimeout is what somebody who pressed the tab key waits for.
const completionTimeout = 300 * time.Millisecond

// completeNames offers the names of locks that are in use. It is silent when the store
// is: whoever types has not asked for an error.
func (a *app) completeNames(_ *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	quiet := *a
	quiet.console = &console{out: &printed{w: io.Discard}, err: io.Discard}
	var names []string
	err := quiet.ask(completionTimeout, func(ctx context.Context, locks *redlatch.Locker, _ string) error {
		for name, err := range locks.Names(ctx, word) {
			if err != nil {
				return err
			}
			if strings.HasPrefix(name, word) {
				names = append(names, name)
			}
		}
		return nil
	})
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
