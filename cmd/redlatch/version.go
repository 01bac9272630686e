package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// release is set when a release is built: -ldflags "-X main.release=1.2.3".
var release = "dev"

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:         "version",
		Short:       "print the version and what is built in",
		Example:     "redlatch version --json",
		Annotations: map[string]string{exitCodes: "  0  always", unconfigured: "it needs nothing"},
		Args:        noArgs,
		RunE:        func(*cobra.Command, []string) error { return a.version() },
	}
}

func (a *app) version() error {
	doc := struct {
		Schema  string   `json:"schema"`
		Version string   `json:"version"`
		Commit  string   `json:"commit,omitempty"`
		Go      string   `json:"go"`
		OS      string   `json:"os"`
		Arch    string   `json:"arch"`
		Stores  []string `json:"stores"`
	}{"redlatch.version/v1", release, commit(), runtime.Version(), runtime.GOOS, runtime.GOARCH, []string{"redis", "file", "mem"}}
	if a.json {
		a.document(a.out, doc)
		return nil
	}
	built := doc.Go + " " + doc.OS + "/" + doc.Arch
	if doc.Commit != "" {
		built = doc.Commit + ", " + built
	}
	fmt.Fprintf(a.out, "redlatch %s (%s)\n", doc.Version, built)
	return nil
}

// commit is what Go found in the repository when it built this; "" if it did not look.
func commit() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value[:min(12, len(s.Value))]
		}
	}
	return ""
}
