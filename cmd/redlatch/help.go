package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Help is rendered here because cobra's templates pull in text/template, whose use of
// reflection makes the linker keep every method of every type: twice the binary.

// groups are the headings that flags stand under, in this order.
var groups = []string{"Waiting", "Lease", "Child", "Output", "Store"}

const (
	groupOf   = "group" // annotation of a flag
	exitCodes = "exit"  // annotation of a command: what stands at the end of its help
	usageOf   = "usage" // annotation of a command: its usage lines
)

func group(f *pflag.FlagSet, name string, flags ...string) {
	for _, flag := range flags {
		if err := f.SetAnnotation(flag, groupOf, []string{name}); err != nil {
			panic(err) // there is no such flag
		}
	}
}

// helpPage is what --help prints: what for, examples, flags, exit codes.
func helpPage(cmd *cobra.Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s - %s\n\n", cmd.CommandPath(), cmd.Short)
	indented(&b, cmd.Example)
	b.WriteString("\nUsage:\n")
	indented(&b, usageLines(cmd))
	if len(cmd.Aliases) > 0 {
		fmt.Fprintf(&b, "\nAlso called: %s\n", strings.Join(cmd.Aliases, ", "))
	}
	if cmd.Long != "" {
		fmt.Fprintf(&b, "\n%s\n", cmd.Long)
	}
	if cmd.HasSubCommands() {
		b.WriteString("\nCommands:\n")
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() {
				fmt.Fprintf(&b, "  %-12s %s\n", c.Name(), c.Short)
			}
		}
	}
	for _, name := range groups {
		flagGroup(&b, cmd, name)
	}
	if codes := cmd.Annotations[exitCodes]; codes != "" {
		b.WriteString("\nExit codes:\n")
		indented(&b, codes)
	}
	return b.String()
}

func usageLines(cmd *cobra.Command) string {
	if lines := cmd.Annotations[usageOf]; lines != "" {
		return lines
	}
	// UseLine knows the flags of all commands only once a command line was read.
	return strings.TrimSuffix(cmd.UseLine(), " [flags]") + " [flags]"
}

func indented(b *strings.Builder, lines string) {
	for line := range strings.Lines(lines) {
		b.WriteString("  " + line)
	}
	b.WriteString("\n")
}

func flagGroup(b *strings.Builder, cmd *cobra.Command, name string) {
	head := "\n" + name + ":\n"
	eachFlag(cmd, name, func(f *pflag.Flag) {
		b.WriteString(head)
		head = ""
		value, about := pflag.UnquoteUsage(f)
		left := "      --" + f.Name
		if f.Shorthand != "" {
			left = "  -" + f.Shorthand + ", --" + f.Name
		}
		if value != "" {
			left += " " + value
		}
		for line := range strings.Lines(about) {
			fmt.Fprintf(b, "%-31s %s\n", left, strings.TrimSuffix(line, "\n"))
			left = ""
		}
	})
}

// eachFlag visits the flags under one heading. A command that reads its arguments
// itself knows none of ours but those that say where the locks are.
func eachFlag(cmd *cobra.Command, heading string, visit func(f *pflag.Flag)) {
	if cmd.DisableFlagParsing && heading != "Store" {
		return
	}
	see := func(f *pflag.Flag) {
		if of := f.Annotations[groupOf]; !f.Hidden && len(of) > 0 && of[0] == heading {
			visit(f)
		}
	}
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	all.AddFlagSet(cmd.LocalFlags())
	all.AddFlagSet(cmd.InheritedFlags()) // which are there only once a command line was read
	all.VisitAll(see)
}

// What stands at the end of each help page.
const (
	queryCodes = `  0  the store has answered
 64  usage: a flag, the name, the store's URL
 69  the store cannot be reached
 70  internal error
 77  the store refuses the user, the password or the right
 78  the configuration is invalid`

	allCodes = `  0  done; any other code that is not in this list is the command's own
 64  usage: a flag, the name, the store's URL
 69  the store cannot be reached; nothing was run
 70  internal error
 75  held by somebody else, or the wait was in vain (-E changes it)
 77  the store refuses the user, the password or the right
 78  the configuration is invalid
 79  the lock was lost while the command ran; it was stopped
124  --max-runtime is over
126  the command cannot be run; 127: it is not found (the lock is not taken then)
128+n  signal n ended the command, or redlatch while it waited`
)
