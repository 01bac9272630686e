package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch/cmd/redlatch/internal/nearest"
	"github.com/redlatch/redlatch/driver"
	"github.com/redlatch/redlatch/lease"
)

func (a *app) flockCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "flock",
		Short: "run a command under a lock with the arguments of flock(1)",
		Example: `redlatch flock -n /var/lock/job ./report.sh
redlatch flock -w 10 -E 75 /var/lock/job -c './fetch && ./load'
redlatch flock --store redis://redis-1 /var/lock/job ./report.sh    on one machine only`,
		Long: `For a crontab that changes by one word: it waits unless told, and exits with 1 where
the lock cannot be had. Without a store it uses files on this host.

  -s, --shared              a reader's lock; the store must have them (files do)
  -x, -e, --exclusive       the default
  -n, --nb, --nonblock      do not wait
  -w, --wait, --timeout S   wait for S seconds at most; 0.5 is understood
  -E, --conflict-exit-code N
  -o, --close               always so: the command does not get the lock's file
  -F, --no-fork             taken, and does nothing
      --verbose             say what is done, on standard error
  -c, --command STRING      behind FILE: run STRING with $SHELL, or /bin/sh

It differs from flock(1): FILE is only a name, neither made nor opened, and programs that
lock the file itself are not excluded. What the command leaves running in its group is
stopped when it ends, and not waited for: see redlatch run. A lock that is lost stops the
command, with exit code 79. There are no locks on file descriptors (flock 9, -u): in a
script take redlatch acquire --for-pid $$.`,
		Annotations: map[string]string{
			usageOf: "redlatch flock [options] FILE|DIR COMMAND [ARG...]\nredlatch flock [options] FILE|DIR -c STRING",
			exitCodes: `  1  held by somebody else, or the wait was in vain (-E changes it)
 64  usage: an option, the store's URL
 69  the store cannot be reached; nothing was run
 77  the store refuses the user, the password or the right
 78  the configuration is invalid
 79  the lock was lost while the command ran; it was stopped
126  the command cannot be run; 127: it is not found
any other is the command's own; 128+n: signal n ended it`,
			unconfigured: "run is, which it becomes",
		},
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			o := flockOptions{conflict: "1", wait: "forever"}
			rest, err := o.parse(args)
			switch {
			case err != nil:
				return err
			case o.help:
				return cmd.Help()
			case o.version:
				return a.version()
			}
			words, err := o.run(rest)
			if err != nil {
				return err
			}
			a.shared, a.local = o.shared, true
			root := a.root()
			root.SetArgs(words)
			return root.Execute()
		},
	}
}

// flockOptions are flock's own, and what says where the locks are.
type flockOptions struct {
	shared, verbose, help, version bool
	wait, conflict                 string
	store                          []string // flags of ours, as they go on
}

// flockWords are its options; true: with a value.
var flockWords = map[string]bool{
	"shared": false, "exclusive": false, "nb": false, "nonblock": false, "close": false, "no-fork": false, "verbose": false,
	"help": false, "version": false, "unlock": false, "wait": true, "timeout": true, "conflict-exit-code": true,
	"store": true, "namespace": true, "config": true, "profile": true,
}

var flockLetters = map[byte]string{
	's': "shared", 'x': "exclusive", 'e': "exclusive", 'n': "nonblock", 'o': "close", 'F': "no-fork", 'h': "help", 'V': "version",
	'u': "unlock", 'w': "wait", 'E': "conflict-exit-code",
}

// parse takes the options off, up to the first word that is none.
func (o *flockOptions) parse(args []string) (rest []string, err error) {
	for len(args) > 0 {
		word := args[0]
		switch {
		case word == "--":
			return args[1:], nil
		case strings.HasPrefix(word, "--"):
			args, err = o.long(word[2:], args[1:])
		case strings.HasPrefix(word, "-") && word != "-":
			args, err = o.short(word[1:], args[1:])
		default:
			return args, nil
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, nil
}

func (o *flockOptions) long(word string, args []string) ([]string, error) {
	word, value, has := strings.Cut(word, "=")
	takes, known := flockWords[word]
	switch {
	case !known:
		f := usage("flock has no option --%s", lease.Printable(word))
		f.next = "redlatch flock --help lists them"
		var words []string
		for w := range flockWords {
			words = append(words, w)
		}
		if near := nearest.Of(word, words); near != "" {
			f.next = "did you mean --" + near + "?"
		}
		return nil, f
	case has && !takes:
		return nil, usage("--%s takes no value", word)
	case takes && !has && len(args) == 0:
		return nil, usage("the value of --%s is missing", word)
	case takes && !has:
		value, args = args[0], args[1:]
	}
	return args, o.set(word, value)
}

// short takes letters that stand together; what follows one that takes a value is it.
func (o *flockOptions) short(letters string, args []string) ([]string, error) {
	for i := range len(letters) {
		word, known := flockLetters[letters[i]]
		if !known {
			f := usage("flock has no option -%s", lease.Printable(letters[i:i+1]))
			f.next = "redlatch flock --help lists them"
			return nil, f
		}
		if !flockWords[word] {
			if err := o.set(word, ""); err != nil {
				return nil, err
			}
			continue
		}
		value := letters[i+1:]
		if value == "" {
			if len(args) == 0 {
				return nil, usage("the value of -%c is missing", letters[i])
			}
			value, args = args[0], args[1:]
		}
		return args, o.set(word, value)
	}
	return args, nil
}

func (o *flockOptions) set(word, value string) error {
	switch word {
	case "shared":
		o.shared = true
	case "exclusive":
		o.shared = false
	case "nb", "nonblock":
		o.wait = "0"
	case "wait", "timeout":
		o.wait = value
	case "conflict-exit-code":
		o.conflict = value
	case "verbose":
		o.verbose = true
	case "help":
		o.help = true
	case "version":
		o.version = true
	case "unlock":
		return noDescriptors()
	case "store", "namespace", "config", "profile":
		o.store = append(o.store, "--"+word+"="+value)
	}
	return nil
}

func noDescriptors() error {
	f := usage("there are no locks on file descriptors here: a lock ends with its lease and not with a descriptor")
	f.next = `in a script: eval "$(redlatch acquire -w forever --for-pid $$ --export NAME)" || exit, and redlatch release NAME`
	return f
}

// run is the command line of redlatch run that does what was asked for.
func (o *flockOptions) run(rest []string) ([]string, error) {
	example := "for example: redlatch flock -n /var/lock/job ./report.sh"
	switch {
	case len(rest) == 0 || rest[0] == "":
		f := usage("the file is missing")
		f.next = example
		return nil, f
	case len(rest) == 1 && strings.Trim(rest[0], "0123456789") == "":
		return nil, noDescriptors()
	case len(rest) == 1:
		f := usage("the command is missing")
		f.next = example
		return nil, f
	}
	name, err := flockName(rest[0])
	if err != nil {
		return nil, err
	}
	argv := rest[1:]
	if argv[0] == "-c" || argv[0] == "--command" {
		if len(argv) != 2 {
			return nil, usage("%s takes one argument, there are %d: quote what belongs together", argv[0], len(argv)-1)
		}
		argv = shell(argv[1])
		if sh := os.Getenv("SHELL"); sh != "" {
			argv[0] = sh
		}
	}
	words := append([]string{"run", "-w", o.wait, "-E", o.conflict}, o.store...)
	if !o.verbose {
		words = append(words, "-q")
	}
	return append(append(words, name, "--"), argv...), nil
}

// flockName is the lock's name for a file: its path, or a hash of one that is no name.
func flockName(file string) (string, error) {
	path, err := filepath.Abs(file)
	if err != nil {
		return "", usage("%s: %v", quoted(file), err)
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real // two names of one file are one lock
	}
	name := "flock/" + strings.Trim(filepath.ToSlash(path), "/")
	if lease.CheckName(name) != nil {
		sum := sha256.Sum256([]byte(path))
		name = fmt.Sprintf("flock/%s", hex.EncodeToString(sum[:]))
	}
	return name, nil
}

// readers is a store in which every claim is a reader's.
type readers struct{ driver.Store }

func (r readers) Join(ctx context.Context, name string, c lease.Claim) (lease.Standing, error) {
	c.Mode = lease.Shared
	return r.Store.Join(ctx, name, c)
}
