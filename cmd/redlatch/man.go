package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func (a *app) manCommand(root *cobra.Command) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "man [COMMAND]",
		Short: "print the manual",
		Example: `redlatch man run > redlatch-run.1
redlatch man --dir /usr/local/share/man/man1
man <(redlatch man)`,
		Long:        "Prints the page of redlatch or of a command as man reads it; --dir writes all pages there.",
		Annotations: map[string]string{exitCodes: "  0  printed, or written\n 64  there is no such command\n 70  a page cannot be written", unconfigured: "it needs nothing"},
		Args:        cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			if dir != "" {
				if err := noArgs(root, args); err != nil {
					return err
				}
				return writeManuals(root, dir)
			}
			page, err := commandOf(root, args)
			if err != nil {
				return err
			}
			fmt.Fprint(a.out, manual(page))
			return nil
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "write all pages into `DIR`")
	group(cmd.Flags(), "Output", "dir")
	return cmd
}

// commandOf finds the command that words name.
func commandOf(root *cobra.Command, words []string) (*cobra.Command, error) {
	cmd := root
	for _, word := range words {
		var found *cobra.Command
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() && (c.Name() == word || c.HasAlias(word)) {
				found = c
			}
		}
		if found == nil {
			return nil, unknownCommand(cmd, word)
		}
		cmd = found
	}
	return cmd, nil
}

func writeManuals(cmd *cobra.Command, dir string) error {
	path := filepath.Join(dir, strings.ReplaceAll(cmd.CommandPath(), " ", "-")+".1")
	if err := os.WriteFile(path, []byte(manual(cmd)), 0o644); err != nil {
		return err
	}
	for _, c := range cmd.Commands() {
		if !c.IsAvailableCommand() {
			continue
		}
		if err := writeManuals(c, dir); err != nil {
			return err
		}
	}
	return nil
}

// manual is a command's page in roff. It is the help page's text: cobra's generator
// knows nothing of our examples, groups and exit codes, and reads Markdown for it.
func manual(cmd *cobra.Command) string {
	var b strings.Builder
	name := strings.ReplaceAll(cmd.CommandPath(), " ", "-")
	fmt.Fprintf(&b, ".TH %s 1 \"\" \"redlatch %s\"\n", roff(strings.ToUpper(name)), roff(release))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", roff(name), roff(cmd.Short))
	b.WriteString(".SH SYNOPSIS\n")
	verbatim(&b, usageLines(cmd))
	b.WriteString(".SH EXAMPLES\n")
	verbatim(&b, cmd.Example)
	if cmd.Long != "" {
		b.WriteString(".SH DESCRIPTION\n")
		verbatim(&b, cmd.Long) // its lines are set by hand
	}
	if cmd.HasAvailableSubCommands() {
		b.WriteString(".SH COMMANDS\n")
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() {
				fmt.Fprintf(&b, ".TP\n.BR %s (1)\n%s\n", roff(name+"-"+c.Name()), roff(c.Short))
			}
		}
	}
	b.WriteString(".SH OPTIONS\n")
	for _, group := range groups {
		manualFlags(&b, cmd, group)
	}
	if codes := cmd.Annotations[exitCodes]; codes != "" {
		b.WriteString(".SH EXIT STATUS\n")
		verbatim(&b, codes)
	}
	if cmd.HasParent() {
		fmt.Fprintf(&b, ".SH SEE ALSO\n.BR %s (1)\n", roff(strings.ReplaceAll(cmd.Parent().CommandPath(), " ", "-")))
	}
	return b.String()
}

func manualFlags(b *strings.Builder, cmd *cobra.Command, name string) {
	head := fmt.Sprintf(".SS %s\n", roff(name))
	eachFlag(cmd, name, func(f *pflag.Flag) {
		b.WriteString(head)
		head = ""
		value, about := pflag.UnquoteUsage(f)
		term := "\\fB" + roff("--"+f.Name) + "\\fR"
		if f.Shorthand != "" {
			term = "\\fB" + roff("-"+f.Shorthand) + "\\fR, " + term
		}
		if value != "" {
			term += " \\fI" + roff(value) + "\\fR"
		}
		fmt.Fprintf(b, ".TP\n%s\n%s\n", term, roff(strings.ReplaceAll(about, "\n", " ")))
	})
}

// verbatim keeps lines as they are.
func verbatim(b *strings.Builder, text string) {
	b.WriteString(".nf\n")
	for line := range strings.Lines(text) {
		b.WriteString(roff(strings.TrimRight(line, "\n")) + "\n")
	}
	b.WriteString(".fi\n")
}

// roff keeps text from being taken for a request, and hyphens from being typeset: what
// is copied from a page must work when it is pasted.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`).Replace(s)
	if strings.HasPrefix(s, ".") {
		s = `\&` + s
	}
	return s
}
