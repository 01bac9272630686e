package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/lease"
)

// keeperOrder is what a keeper is told on its standard input: arguments and variables
// can be seen by others.
type keeperOrder struct {
	Store     string
	Namespace string
	Name      string
	Token     string
	TTL       time.Duration
	PID       int
}

// ready is what a keeper answers when it renews; anything else is why it does not.
const ready = "ready"

// startKeeper starts the process that renews a hold until another one has ended, and
// returns when it does.
func (a *app) startKeeper(store *opened, held *redlatch.Held, o *acquireOptions) (pid int, err error) {
	order, err := json.Marshal(keeperOrder{
		Store: store.raw, Namespace: strings.TrimSuffix(store.namespace, "/"), Name: held.Name(), Token: held.Token(), TTL: o.ttl, PID: o.forPID,
	})
	if err != nil {
		return 0, err
	}
	self, err := os.Executable()
	if err != nil {
		return 0, keeperFailed(err)
	}
	cmd := exec.Command(self, "keep")
	cmd.Stdin = strings.NewReader(string(order))
	if isTerminal(os.Stderr) { // a pipe would not end before the keeper does
		cmd.Stderr = os.Stderr
	}
	cmd.SysProcAttr = apart()
	answer, theirs, err := os.Pipe()
	if err != nil {
		return 0, keeperFailed(err)
	}
	defer answer.Close()
	cmd.Stdout = theirs
	err = cmd.Start()
	_ = theirs.Close()
	if err != nil {
		return 0, keeperFailed(err)
	}
	_ = answer.SetReadDeadline(time.Now().Add(queryTimeout))
	said, err := io.ReadAll(io.LimitReader(answer, 1<<12))
	if string(said) == ready && err == nil {
		pid = cmd.Process.Pid
		return pid, cmd.Process.Release()
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if err == nil {
		err = errors.New(string(said))
	}
	return 0, keeperFailed(err)
}

func keeperFailed(err error) *failure {
	return &failure{code: codeInternal, kind: "internal", msg: "the process that was to renew the lock does not: " + err.Error()}
}

// keepCommand is the keeper.
func (a *app) keepCommand() *cobra.Command {
	return &cobra.Command{
		Use:         "keep",
		Hidden:      true,
		Short:       "renew a lock for redlatch acquire --for-pid, which starts this",
		Args:        noArgs,
		Annotations: map[string]string{unconfigured: "it is told everything"},
		RunE: func(*cobra.Command, []string) error {
			var order keeperOrder
			if err := json.NewDecoder(os.Stdin).Decode(&order); err != nil {
				return usage("this is not for people: it is what acquire --for-pid starts")
			}
			return a.keep(order)
		},
	}
}

func (a *app) keep(order keeperOrder) error {
	a.leaves = true
	a.hide(order.Token)
	err := a.keepUntil(order)
	if err != nil {
		f := explain(err)
		_, _ = os.Stdout.WriteString(a.scrub(f.msg)) // nobody reads it once we are ready
	}
	return err
}

func (a *app) keepUntil(order keeperOrder) error {
	ended, err := processEnd(order.PID)
	if err != nil {
		return err
	}
	store, err := a.openRaw(order.Store, order.Namespace)
	if err != nil {
		return err
	}
	defer store.close()
	locks, err := redlatch.New(store, redlatch.Config{})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), queryTimeout)
	defer cancel()
	held, err := locks.Resume(ctx, order.Name, order.Token, redlatch.Options{TTL: order.TTL})
	if err != nil {
		return err
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, ending...) // whoever ends us wants the lock to be released
	if _, err := os.Stdout.WriteString(ready); err != nil {
		return held.Unlock()
	}
	_ = os.Stdout.Close() // the end of the answer
	select {
	case <-ended:
	case <-signals:
	case <-held.Context().Done():
		var lost *redlatch.LostError
		if errors.As(context.Cause(held.Context()), &lost) {
			a.warn("%s is not held any more for process %d: %s", lease.Printable(order.Name), order.PID, lost.Loss.String())
		}
		return nil // released by its user, most likely
	}
	return held.Unlock()
}
