package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/cmd/redlatch/internal/duration"
	"github.com/redlatch/redlatch/lease"
)

// acquireOptions are the flags of acquire, and of hold.
type acquireOptions struct {
	nonblock bool
	wait     time.Duration // 0: do not; forever
	conflict int           // exit code
	ttl      time.Duration
	ttlGiven bool
	owner    string
	labels   map[string]string
	note     string
	command  string // as others see it
	forPID   int
	export   bool
	doubts   []string
}

func (o *acquireOptions) length(d *time.Duration) durationValue { return durationValue{d, &o.doubts} }

// flags are those that acquire and hold share.
func (o *acquireOptions) flags(f *pflag.FlagSet) {
	f.BoolVarP(&o.nonblock, "nonblock", "n", false, "do not wait for the lock; this is the default")
	f.VarP(waitValue{o.length(&o.wait)}, "wait", "w", "wait for the lock for `DUR` at most, or forever")
	f.VarP(codeValue{&o.conflict}, "conflict-exit-code", "E", "exit with `N` if the lock cannot be had (75)")
	group(f, "Waiting", "nonblock", "wait", "conflict-exit-code")
	f.StringVar(&o.owner, "owner", "", "`WHO` holds it, as others see it (user@host)")
	f.Var(labelsValue{&o.labels}, "label", "`KEY=VALUE` for others to see; may be repeated")
	f.StringVar(&o.note, "note", "", "`TEXT` for others to see")
	group(f, "Lease", "owner", "label", "note")
}

func (a *app) acquireCommand() *cobra.Command {
	o := acquireOptions{conflict: codeHeld, ttl: redlatch.DefaultTTL, command: parentName()}
	cmd := &cobra.Command{
		Use:   "acquire NAME",
		Short: "take a lock and leave it to the caller, who renews and releases it",
		Example: `token=$(redlatch acquire --ttl 10m deploy) || exit
redlatch release deploy "$token"
eval "$(redlatch acquire --for-pid $$ --export deploy)" || exit     held until this shell ends
redlatch acquire -w 5m --json deploy | jq -r .token`,
		Long: `Prints the token, a secret that proves the hold: redlatch renew and redlatch release
want it. Nobody renews the lock but you, so it ends with its --ttl; with --for-pid a
process in the background renews it until that process has ended, and then releases
it. It stops no command when the lock is lost: redlatch run does.

With --export what is printed sets REDLATCH_LOCK, REDLATCH_LEASE (the token),
REDLATCH_FENCE, REDLATCH_OWNER and REDLATCH_TTL_MS in the shell that evaluates it, and
makes eval fail if the lock was not got.`,
		Annotations:       map[string]string{exitCodes: acquireCodes},
		Args:              oneName,
		ValidArgsFunction: a.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.ttlGiven = cmd.Flags().Changed("ttl")
			err := a.acquire(args[0], &o)
			if err != nil && o.export {
				f := explain(err)
				fmt.Fprintf(a.out, "(exit %d)\n", f.code) // eval of nothing would be success
				return f
			}
			return err
		},
	}
	f := cmd.Flags()
	o.flags(f)
	f.Var(o.length(&o.ttl), "ttl", "the lock ends `DUR` after it was got or last renewed (30s)")
	f.IntVar(&o.forPID, "for-pid", 0, "renew it until process `PID` has ended, then release it")
	group(f, "Lease", "ttl", "for-pid")
	f.BoolVar(&o.export, "export", false, "print commands for a shell to evaluate")
	group(f, "Output", "export")
	return cmd
}

const acquireCodes = `  0  the lock is yours
 64  usage: a flag, the name, the store's URL
 69  the store cannot be reached
 70  internal error
 75  held by somebody else, or the wait was in vain (-E changes it)
 77  the store refuses the user, the password or the right
 78  the configuration is invalid
128+n  signal n ended the wait`

// acquire takes the lock and leaves it in the store.
func (a *app) acquire(name string, o *acquireOptions) error {
	if err := o.check(); err != nil {
		return err
	}
	if a.json && o.export {
		return usage("--json and --export exclude each other")
	}
	if o.forPID != 0 {
		if err := checkProcess(o.forPID); err != nil {
			return err
		}
	}
	return a.detached(redlatch.Config{Owner: o.holder()}, func(locks *redlatch.Locker, store *opened) error {
		o.leaseOf(store)
		began := time.Now()
		held, err := a.obtain(locks, store, name, o)
		if err != nil {
			return o.conflicted(err)
		}
		doc := holdOf(held, o.ttl, store.name)
		doc.WaitMS = time.Since(began).Milliseconds()
		if o.forPID != 0 {
			if doc.KeeperPID, err = a.startKeeper(store, held, o); err != nil {
				_ = held.Unlock() // or it ends with its lease
				return err
			}
		}
		if err := a.hand(doc, o); err != nil {
			_ = held.Unlock() // nobody has the token
			return &failure{code: codeInternal, kind: "internal", msg: "cannot print the token: " + err.Error()}
		}
		return nil
	})
}

func (o *acquireOptions) check() error {
	if o.nonblock && o.wait != 0 {
		return usage("--nonblock and --wait exclude each other")
	}
	return nil
}

// holder is who holds what is acquired: not this process, which ends.
func (o *acquireOptions) holder() redlatch.Owner {
	pid := o.forPID
	if pid == 0 {
		pid = os.Getppid()
	}
	return redlatch.Owner{Name: o.owner, PID: pid, Command: o.command}
}

// leaseOf goes by what the store's URL says if nothing else is said.
func (o *acquireOptions) leaseOf(store *opened) {
	if store.ttl != 0 && !o.ttlGiven {
		o.ttl = store.ttl
	}
}

// conflicted gives "held by somebody else" the exit code that was asked for.
func (o *acquireOptions) conflicted(err error) error {
	f := explain(err)
	if f.kind == "held" || f.kind == "wait_timeout" {
		f.code = o.conflict
	}
	return f
}

// detached opens the store for locks that outlive this process.
func (a *app) detached(cfg redlatch.Config, f func(locks *redlatch.Locker, store *opened) error) error {
	a.leaves = true
	store, err := a.open()
	if err != nil {
		return err
	}
	defer store.close()
	cfg.KeepOnClose = true
	locks, err := redlatch.New(store, cfg)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = locks.Close(ctx) // what could not be withdrawn ends with its lease
	}()
	return named(f(locks, store), store.name)
}

// named says which store was asked, where that is part of the trouble.
func named(err error, store string) error {
	if err == nil {
		return nil
	}
	f := explain(err)
	if f.code == codeUnavailable || f.code == codeDenied {
		f.msg = store + ": " + f.msg
		f.unanswered(store)
	}
	return f
}

// obtain waits for the lock as long as it may. A signal withdraws the claim.
func (a *app) obtain(locks *redlatch.Locker, store *opened, name string, o *acquireOptions) (*redlatch.Held, error) {
	for _, doubt := range o.doubts {
		a.warn("%s", doubt)
	}
	ctx, stop := untilSignal()
	defer stop()
	options := redlatch.Options{TTL: o.ttl, NoRenew: true, Confirm: true, Labels: o.labels, Note: o.note}
	r := &running{app: a, o: &runOptions{wait: o.wait}, name: name, store: store, locks: locks}
	take := locks.TryLock
	if o.wait != 0 {
		take = locks.Lock
		options.MaxWait = max(o.wait, 0)
		tell := time.AfterFunc(firstProgress, func() { r.progress() })
		defer tell.Stop()
	}
	held, err := take(ctx, name, options)
	if err == nil {
		return held, nil
	}
	if f := explain(err); f.kind != "held" {
		return nil, f
	}
	return nil, r.notAcquired(err)
}

// untilSignal is a context that ends, with a *failure as its cause, when the program is
// told to.
func untilSignal() (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 32)
	catch(signals)
	go func() {
		for {
			select {
			case sig := <-signals:
				if slices.Contains(ending, sig) {
					cancel(interrupted(sig))
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return ctx, func() { cancel(nil) }
}

// holdJSON is a hold for whoever is to renew and release it, redlatch.hold/v1.
type holdJSON struct {
	Schema    string `json:"schema"`
	Name      string `json:"name"`
	Token     string `json:"token,omitempty"`
	Fence     uint64 `json:"fence"`
	Owner     string `json:"owner"`
	TTLMS     int64  `json:"ttl_ms"`
	ExpiresAt stamp  `json:"expires_at"` // by this host's clock
	WaitMS    int64  `json:"wait_ms"`
	KeeperPID int    `json:"keeper_pid,omitempty"`
	Store     string `json:"store"`
}

func holdOf(held *redlatch.Held, ttl time.Duration, store string) holdJSON {
	return holdJSON{
		Schema: "redlatch.hold/v1", Name: held.Name(), Token: held.Token(), Fence: held.Fence(), Owner: ownerOf(held.Token()),
		TTLMS: ttl.Milliseconds(), ExpiresAt: stamp{held.Until()}, Store: store,
	}
}

// hand prints the hold. That must not fail unseen: the token is nowhere else.
func (a *app) hand(doc holdJSON, o *acquireOptions) error {
	text := doc.Token
	switch {
	case a.json:
		text = encode(doc)
	case o.export:
		text = doc.exports()
	}
	if _, err := fmt.Fprintln(a.out, text); err != nil {
		return err
	}
	a.detail("acquired %s, fence %d, until %s unless renewed", lease.Printable(doc.Name), doc.Fence, doc.ExpiresAt.UTC().Format("15:04:05 UTC"))
	return nil
}

// exports are the variables that the command of run has too.
func (doc holdJSON) exports() string {
	text := "export REDLATCH_HELD=1"
	for _, v := range [][2]string{
		{"LOCK", doc.Name}, {"FENCE", strconv.FormatUint(doc.Fence, 10)}, {"LEASE", doc.Token},
		{"OWNER", doc.Owner}, {"TTL_MS", strconv.FormatInt(doc.TTLMS, 10)},
	} {
		text += " REDLATCH_" + v[0] + "=" + quoted(v[1])
	}
	return text
}

// until says when a hold ends that nobody renews.
func until(d time.Duration) string { return "it ends in " + duration.Format(d) + " unless renewed" }
