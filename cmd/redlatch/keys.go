package main

import (
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch/cmd/redlatch/internal/storeurl"
	"github.com/redlatch/redlatch/filestore"
	"github.com/redlatch/redlatch/lease"
)

func (a *app) keysCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "keys NAME",
		Short: "where the store keeps a lock, for those who look with other tools",
		Example: `redlatch keys nightly/report
redlatch keys --json nightly/report | jq -r '.keys[].key'`,
		Long: `It asks no server. Keys have control characters in them so that no lock's key can be
another's; they are shown in quotes as redis-cli reads them at its prompt. A key is there
only while it is needed. Whoever deletes the lock's key takes the lock away from its
holder, who is not told why: redlatch break tells it, and waits for it.`,
		Annotations:       map[string]string{exitCodes: "  0  printed\n 64  usage: a flag, the name, the store's URL\n 78  the configuration is invalid"},
		Args:              oneName,
		ValidArgsFunction: a.completeNames,
		RunE:              func(_ *cobra.Command, args []string) error { return a.keys(args[0]) },
	}
}

// keysJSON is where a lock is kept, redlatch.keys/v1.
type keysJSON struct {
	Schema string    `json:"schema"`
	Name   string    `json:"name"`
	Keys   []keyJSON `json:"keys"`
	Store  string    `json:"store"`
}

type keyJSON struct {
	Key  string `json:"key"`
	Type string `json:"type"`
	What string `json:"what"`
}

func (a *app) keys(name string) error {
	store, err := a.open()
	if err != nil {
		return err
	}
	defer store.close()
	u, err := storeurl.Parse(store.raw)
	if err != nil {
		return usage("the store's URL: %v", err)
	}
	doc := keysJSON{Schema: "redlatch.keys/v1", Name: name, Keys: []keyJSON{}, Store: store.name}
	full := store.full(name)
	switch u.Kind {
	case storeurl.File:
		doc.Keys = append(doc.Keys, keyJSON{filestore.File(u.Dir, full), "file", "the lock: who holds it and who waits"})
	case storeurl.Redis:
		for _, k := range store.keys.Keys(full) {
			doc.Keys = append(doc.Keys, keyJSON(k))
		}
	}
	if a.json {
		a.document(a.out, doc)
		return nil
	}
	if len(doc.Keys) == 0 {
		a.info("%s keeps its locks in the memory of one process", store.name)
		return nil
	}
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "KEY\tTYPE\tWHAT")
	for _, k := range doc.Keys {
		shown := lease.Printable(k.Key)
		if u.Kind == storeurl.Redis {
			shown = strconv.QuoteToASCII(k.Key)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", shown, k.Type, k.What)
	}
	_ = w.Flush() // into a string
	fmt.Fprint(a.out, b.String())
	return nil
}
