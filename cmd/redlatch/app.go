package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/redlatch/redlatch/cmd/redlatch/internal/nearest"
)

// app is one invocation of the program.
type app struct {
	*console

	storeFlag, namespaceFlag, configFlag, profileFlag string

	storeGiven bool // --store is there, with whatever

	settings *settings // what files and variables say; nil: not read yet
	ttlSet   bool      // they say how long a lease is
	shared   bool      // every lock is a reader's
	local    bool      // files on this host are what is wanted if no store is configured
	alone    bool      // a store that nobody else sees is of use
	leaves   bool      // locks are left to others: they outlive this process
	code     int       // where a command ends with one that is no failure of ours
}

func newApp(stdout, stderr io.Writer) *app {
	return &app{console: &console{out: &printed{w: stdout}, err: stderr}}
}

// main carries out one command line and returns the exit code.
func (a *app) main(args []string) int {
	root := a.root()
	root.SetArgs(args)
	err := root.Execute()
	if written := a.out.err; err == nil && written != nil {
		err = internal("what was asked for cannot be printed: %v", written)
	}
	if err == nil {
		return a.code
	}
	f := explain(err)
	a.fail(f)
	return f.code
}

func (a *app) root() *cobra.Command {
	var version bool
	cmd := &cobra.Command{
		Use:   "redlatch COMMAND",
		Short: "distributed locks for jobs and scripts",
		Example: `redlatch run nightly -- ./report.sh          run it, unless it runs already, here or on another host
redlatch run -w 10m deploy -- ./deploy.sh    wait up to ten minutes for the lock
redlatch who nightly                         who holds it, since when, and who waits
redlatch ls                                  everything that is locked
token=$(redlatch acquire deploy) || exit     a lock for a script, until redlatch release deploy "$token"`,
		Long:              platformText,
		Annotations:       map[string]string{exitCodes: allCodes},
		SilenceErrors:     true,
		SilenceUsage:      true,
		Args:              cobra.ArbitraryArgs, // or cobra answers for us
		PersistentPreRunE: a.configure,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case version:
				return a.version()
			case len(args) > 0:
				return unknownCommand(cmd, args[0])
			}
			fmt.Fprint(a.err, helpPage(cmd))
			return &failure{code: codeUsage, kind: "usage", msg: "the command is missing", told: true}
		},
	}
	cmd.SetOut(a.out)
	cmd.SetErr(a.err)
	cmd.CompletionOptions.DisableDefaultCmd = true
	cmd.SetHelpFunc(func(cmd *cobra.Command, _ []string) { fmt.Fprint(a.out, helpPage(cmd)) })
	cmd.SetUsageFunc(func(cmd *cobra.Command) error { fmt.Fprint(a.err, helpPage(cmd)); return nil })
	cmd.SetFlagErrorFunc(flagError)

	f := cmd.PersistentFlags()
	f.StringVar(&a.storeFlag, "store", "", "where the locks are kept: a `URL`, or env:NAME for a variable that has one")
	f.StringVar(&a.namespaceFlag, "namespace", "", "`NS` stands before every name: those of another namespace are other locks")
	f.StringVar(&a.configFlag, "config", "", "read `FILE` too, above the system's and the user's")
	f.StringVar(&a.profileFlag, "profile", "", "go by the `NAME` profile of the configuration")
	f.BoolVar(&a.json, "json", false, "print one JSON document")
	f.BoolVarP(&a.quiet, "quiet", "q", false, "print errors only")
	f.BoolVarP(&a.verbose, "verbose", "v", false, "say what is done")
	group(f, "Store", "store", "namespace", "config", "profile")
	group(f, "Output", "json", "quiet", "verbose")
	cmd.Flags().BoolVar(&version, "version", false, "print the version")
	group(cmd.Flags(), "Output", "version")

	cmd.AddCommand(
		a.runCommand(), a.flockCommand(),
		a.acquireCommand(), a.renewCommand(), a.releaseCommand(), a.holdCommand(), a.breakCommand(), a.keepCommand(),
		a.whoCommand(), a.lsCommand(), a.isHeldCommand(), a.waitCommand(), a.keysCommand(),
		a.configCommand(), a.completionCommand(cmd), a.manCommand(cmd), a.versionCommand(),
	)
	return cmd
}

func unknownCommand(root *cobra.Command, word string) error {
	var names []string
	for _, c := range root.Commands() {
		if c.Hidden {
			continue
		}
		names = append(append(names, c.Name()), c.Aliases...)
	}
	f := usage("there is no command %q", word)
	f.next = "redlatch --help lists them"
	if near := nearest.Of(word, names); near != "" {
		f.next = "did you mean redlatch " + near + "?"
	}
	return f
}

// flagError adds to what pflag says about a flag. It never has the value of --store in
// it: that is text to pflag, and read later.
func flagError(cmd *cobra.Command, err error) error {
	f := usage("%v", err)
	f.next = cmd.CommandPath() + " --help lists the flags"
	var wrong *pflag.InvalidValueError
	if errors.As(err, &wrong) {
		f.msg = fmt.Sprintf("--%s: %v", wrong.GetFlag().Name, errors.Unwrap(wrong))
		if errors.Is(err, strconv.ErrSyntax) || errors.Is(err, strconv.ErrRange) {
			f.msg = fmt.Sprintf("--%s: %q is no whole number", wrong.GetFlag().Name, wrong.GetValue())
		}
		return f
	}
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return f
	}
	f.msg = "there is no flag --" + unknown.GetSpecifiedName()
	if short := unknown.GetSpecifiedShortnames(); short != "" {
		f.msg = "there is no flag -" + unknown.GetSpecifiedName()
		return f
	}
	var names []string
	cmd.Flags().VisitAll(func(flag *pflag.Flag) { names = append(names, flag.Name) })
	if near := nearest.Of(unknown.GetSpecifiedName(), names); near != "" {
		f.next = "did you mean --" + near + "?"
	}
	return f
}

// oneName is the Args of commands that are about one lock.
func oneName(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		f := usage("the name of the lock is missing")
		f.next = "for example: " + strings.TrimSuffix(cmd.CommandPath(), " ") + " nightly/report"
		return f
	case len(args) > 1:
		return usage("one name is expected, there are %d; quote a name that has spaces in it", len(args))
	}
	return checkName(args[0])
}
