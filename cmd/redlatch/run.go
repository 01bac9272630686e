package main

import (
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/cmd/redlatch/internal/child"
	"github.com/redlatch/redlatch/cmd/redlatch/internal/duration"
)

// reserve is kept between the command's end and the lease's, beyond the grace: at least
// that, and more of a longer lease. A machine under load takes its time to end a process.
const reserve = time.Second

// reserve is what this run keeps. The two renewals that may fail have their time before it.
func (o *runOptions) reserve() time.Duration {
	return max(reserve, min(o.ttl/10, o.ttl/3-o.grace))
}

// last is what is left of the lease, at least, when the command is killed.
func (o *runOptions) last() time.Duration { return o.reserve() / 2 }

// runOptions are the flags of run.
type runOptions struct {
	nonblock bool
	wait     time.Duration // 0: do not; forever
	conflict int           // exit code
	skipOK   bool

	ttl         time.Duration
	holdAtLeast time.Duration
	owner       string
	labels      map[string]string
	note        string

	script     string // -c
	grace      time.Duration
	maxRuntime time.Duration
	onLost     lostAction
	noEnv      bool
	noGuard    bool

	retryStart    time.Duration
	onUnavailable unavailableAction

	resultFile string
	doubts     []string
}

func (a *app) runCommand() *cobra.Command {
	o := runOptions{conflict: codeHeld, ttl: redlatch.DefaultTTL, grace: 5 * time.Second, retryStart: 10 * time.Second}
	if err := o.onLost.Set("term"); err != nil {
		panic(err)
	}
	cmd := &cobra.Command{
		Use:   "run",
		Short: "hold a lock while a command runs",
		Example: `redlatch run nightly -- ./report.sh                      do not wait: another host does it already
redlatch run --skip-ok nightly -- ./report.sh            the same, and that is no failure
redlatch run -w 10m deploy -- ./deploy.sh prod           wait for up to ten minutes
redlatch run -c './fetch && ./load' import               both under the lock
redlatch run --max-runtime 1h --grace 30s backup -- ./backup.sh`,
		Long: strings.TrimSpace(runText + runPlatform),
		Annotations: map[string]string{
			usageOf:   "redlatch run [flags] NAME [--] COMMAND [ARG...]\nredlatch run [flags] -c STRING NAME",
			exitCodes: allCodes,
		},
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, doubt := range o.doubts {
				a.warn("%s", doubt)
			}
			name, argv, err := o.arguments(args)
			if err != nil {
				return err
			}
			return a.run(name, argv, &o, cmd.Flags().Changed)
		},
		ValidArgsFunction: a.completeNames,
	}
	f := cmd.Flags()
	f.SetInterspersed(false) // what follows the name is the command's
	length := func(d *time.Duration) durationValue { return durationValue{d, &o.doubts} }

	f.BoolVarP(&o.nonblock, "nonblock", "n", false, "do not wait for the lock; this is the default")
	f.VarP(waitValue{length(&o.wait)}, "wait", "w", "wait for the lock for `DUR` at most, or forever")
	f.VarP(codeValue{&o.conflict}, "conflict-exit-code", "E", "exit with `N` if the lock cannot be had (75)")
	f.BoolVar(&o.skipOK, "skip-ok", false, "the same as -E 0")
	f.Var(length(&o.retryStart), "retry-start", "try for `DUR` to reach a store that does not answer (10s)")
	f.Var(&o.onUnavailable, "on-unavailable", "`ACTION` when the store does not answer for that long: fail, wait on\n(for as long as -w says, if it does), or run WITHOUT the lock (fail)")
	group(f, "Waiting", "nonblock", "wait", "conflict-exit-code", "skip-ok", "retry-start", "on-unavailable")

	f.Var(length(&o.ttl), "ttl", "the lock lives `DUR` after the last renewal (30s); renewed as long as\nthe command runs; at least 3 x (grace + 1s)")
	f.Var(length(&o.holdAtLeast), "hold-at-least", "keep others out for `DUR` from the start, however soon the command ends")
	f.StringVar(&o.owner, "owner", "", "`WHO` holds it, as others see it (user@host)")
	f.Var(labelsValue{&o.labels}, "label", "`KEY=VALUE` for others to see; may be repeated")
	f.StringVar(&o.note, "note", "", "`TEXT` for others to see")
	group(f, "Lease", "ttl", "hold-at-least", "owner", "label", "note")

	f.StringVarP(&o.script, "command", "c", "", "run `STRING` with the shell instead of COMMAND")
	f.Var(length(&o.grace), "grace", "`DUR` between asking the command to stop and killing it (5s)")
	f.Var(length(&o.maxRuntime), "max-runtime", "stop the command after `DUR`, exit 124")
	f.Var(&o.onLost, "on-lost", "`ACTION` when the lock is lost: term (and kill after the grace), kill at\nonce, a signal's name in place of TERM, or warn: let it run on (term)")
	f.BoolVar(&o.noEnv, "no-env", false, "set no REDLATCH_ variables for the command")
	group(f, "Child", "command", "grace", "max-runtime", "on-lost", "no-env")
	if child.HasGuard {
		f.BoolVar(&o.noGuard, "no-guard", false, "do without the process that stops the command if redlatch is killed")
		group(f, "Child", "no-guard")
	}

	f.StringVar(&o.resultFile, "result-file", "", "write what happened to `FILE`, one line of JSON")
	group(f, "Output", "result-file")
	return cmd
}

const runText = `The command gets the lock's name and fence in REDLATCH_LOCK and REDLATCH_FENCE
(also REDLATCH_HELD=1, REDLATCH_OWNER, REDLATCH_TTL_MS and, to release the lock
with, REDLATCH_LEASE), and in REDLATCH_URL the store without its password. What has
the password is taken out of its environment. It has our standard input and output;
where all goes well and nobody had to be waited for, nothing else is printed.

A bare number is seconds: -w 0.25. 30s, 10m, 1h30m and 2d are understood too.
`

// arguments takes NAME [--] COMMAND apart.
func (o *runOptions) arguments(args []string) (name string, argv []string, err error) {
	example := "for example: redlatch run nightly/report -- ./report.sh"
	if len(args) == 0 {
		f := usage("the name of the lock is missing")
		f.next = example
		return "", nil, f
	}
	name, argv = args[0], args[1:]
	if err := checkName(name); err != nil {
		return "", nil, err
	}
	dashes := len(argv) > 0 && argv[0] == "--"
	switch {
	case dashes:
		argv = argv[1:]
	case len(argv) > 0 && strings.HasPrefix(argv[0], "-"):
		f := usage("%s stands behind the name; flags stand before it", argv[0])
		f.next = "redlatch run " + argv[0] + " ... " + quoted(name) + " -- COMMAND"
		return "", nil, f
	}
	switch {
	case o.script != "" && len(argv) > 0:
		return "", nil, usage("both -c and a command are given")
	case o.script != "":
		return name, shell(o.script), nil
	case len(argv) == 0 || argv[0] == "":
		f := usage("the command is missing")
		f.next = example
		return "", nil, f
	}
	return name, argv, nil
}

// check refuses what cannot go together. given tells which flags are set.
func (o *runOptions) check(given func(flag string) bool) error {
	switch {
	case o.nonblock && o.wait != 0:
		return usage("--nonblock and --wait exclude each other")
	case o.skipOK && given("conflict-exit-code") && o.conflict != 0:
		return usage("--skip-ok and --conflict-exit-code %d exclude each other", o.conflict)
	}
	if o.skipOK {
		o.conflict = 0
	}
	// Two renewals may fail and the command still has its grace before the lease ends.
	if least := 3 * (o.grace + reserve); o.ttl < least {
		f := usage("--ttl %s is too short for --grace %s: it takes 3 x (%s + %s) = %s, so that two renewals may fail and the command can still be stopped in time",
			duration.Format(o.ttl), duration.Format(o.grace), duration.Format(o.grace), duration.Format(reserve), duration.Format(least))
		f.next = "raise --ttl to " + duration.Format(least) + " or more"
		if grace := o.ttl/3 - reserve; grace >= 0 {
			f.next += ", or lower --grace to " + duration.Format(grace.Truncate(time.Millisecond)) + " or less"
		}
		return f
	}
	return nil
}

// run is one redlatch run, from the checks to the exit code.
func (a *app) run(name string, argv []string, o *runOptions, given func(flag string) bool) error {
	r := &running{
		terminal: a.err == os.Stderr && child.IsTerminal(2),
		app:      a, o: o, name: name, signals: make(chan os.Signal, 32), renewed: make(chan struct{}, 1),
		command: child.Command{Args: argv},
		result:  resultJSON{Schema: "redlatch.run/v1", Name: name},
	}
	a.err, a.alone = &patient{w: a.err}, true
	return r.finish(r.do(given))
}

// quoted is a word as it is typed into a shell.
func quoted(s string) string {
	safe := "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:@%+=,"
	if s != "" && strings.Trim(s, safe) == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
