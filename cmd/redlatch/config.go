package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch/cmd/redlatch/internal/storeurl"
	"github.com/redlatch/redlatch/lease"
)

func (a *app) configCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config show|path|init",
		Short: "show, find or begin the configuration",
		Example: `redlatch config show --origin               what is set, and where
redlatch config show --origin nightly/x     for that lock
redlatch config init                        write a file to begin with`,
		Long: `Flags stand above the environment, that above the profile, that above the files, of
which the last one read counts: the system's, the user's, and that of --config. In a file:

  store     = "redis://redis-1:6379/0?password_file=/etc/redlatch/pw"
  namespace = "prod"             # stands before every name; names without it are others
  require   = "distributed"      # refuse to lock in files on this host
  audit_log = "/var/log/redlatch-audit"
  [defaults]                     # flags of run and acquire, with _ for -
  ttl = "30s"
  [locks."nightly/*"]            # for the locks that match; the last one that does wins
  hold_at_least = "2m"
  [profile.staging]              # with --profile staging
  store = "redis://staging:6379/2"

Variables: REDLATCH_URL, REDLATCH_NAMESPACE, REDLATCH_TTL, REDLATCH_WAIT, REDLATCH_OWNER,
REDLATCH_LABELS (a=b,c=d), REDLATCH_AUDIT_LOG, REDLATCH_CONFIG, REDLATCH_PROFILE.`,
		Annotations: map[string]string{
			exitCodes: "  0  printed, or written\n 64  usage: a flag\n 70  internal error\n 78  the configuration is invalid",
		},
		Args: cobra.ArbitraryArgs,
		RunE: func(*cobra.Command, []string) error {
			f := usage("say what of the configuration: show, path or init")
			f.next = "redlatch config show --origin"
			return f
		},
	}
	var origin bool
	codes := map[string]string{exitCodes: cmd.Annotations[exitCodes]}
	show := &cobra.Command{
		Use: "show [NAME]", Short: "print what is set", Example: "redlatch config show --origin nightly/report", Annotations: codes,
		Long: "Passwords are not shown. With NAME it is what holds for that lock.",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return oneName(cmd, args)
		},
		RunE: func(_ *cobra.Command, args []string) error { return a.showConfig(strings.Join(args, ""), origin) },
	}
	show.Flags().BoolVar(&origin, "origin", false, "print where each value comes from")
	group(show.Flags(), "Output", "origin")
	path := &cobra.Command{
		Use: "path", Short: "print which files are read", Example: "redlatch config path", Args: noArgs,
		Annotations: map[string]string{exitCodes: "  0  printed\n 64  usage: a flag", unconfigured: "a file that is wrong must be found"},
		RunE:        func(*cobra.Command, []string) error { return a.configPaths() },
	}
	init := &cobra.Command{
		Use: "init", Short: "write a file to begin with", Example: "redlatch config init\nredlatch config init --config /etc/redlatch/config.toml", Args: noArgs,
		Long:        "Writes the user's file, or that of --config. One that is there is left alone.",
		Annotations: map[string]string{exitCodes: "  0  written\n 64  usage: a flag\n 78  there is one, or it cannot be written", unconfigured: "there is none yet"},
		RunE:        func(*cobra.Command, []string) error { return a.initConfig() },
	}
	cmd.AddCommand(show, path, init)
	return cmd
}

// noArgs is the Args of commands that take none.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage("%s takes no arguments, there is %q", cmd.CommandPath(), args[0])
	}
	return nil
}

// configJSON is the configuration, redlatch.config/v1.
type configJSON struct {
	Schema string              `json:"schema"`
	Name   string              `json:"name,omitempty"`
	Files  []configFile        `json:"files"`
	Values []configuredSetting `json:"values"`
}

type configuredSetting struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Origin string `json:"origin"`
}

func (a *app) showConfig(name string, origin bool) error {
	s, err := a.loaded()
	if err != nil {
		return err
	}
	doc := configJSON{Schema: "redlatch.config/v1", Name: name, Files: s.files, Values: a.effective(s, name)}
	if a.json {
		a.document(a.out, doc)
		return nil
	}
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, v := range doc.Values {
		line := v.Key + "\t" + dash(lease.Printable(v.Value))
		if origin {
			line += "\t" + lease.Printable(v.Origin)
		}
		fmt.Fprintln(w, line)
	}
	_ = w.Flush() // into a string
	fmt.Fprint(a.out, b.String())
	return nil
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// effective is everything that can be set, as it holds for that name.
func (a *app) effective(s *settings, name string) []configuredSetting {
	given := map[string]string{keyStore: a.storeFlag, keyNamespace: a.namespaceFlag}
	flags := configurable()
	keys := append(slices.Clone(general), slices.Sorted(maps.Keys(flags))...)
	var out []configuredSetting
	for _, key := range keys {
		v := configuredSetting{Key: key, Origin: "default"}
		if flag := flags[key]; flag != nil {
			v.Value = flag.DefValue
		}
		set, ok := s.lookup(key, name)
		switch {
		case given[key] != "":
			v.Value, v.Origin = given[key], "--"+key
		case ok:
			v.Value, v.Origin = set.text(), set.origin
		}
		if key == keyStore {
			v.Value = redacted(v.Value)
		}
		out = append(out, v)
	}
	return out
}

// redacted is a store as it may be shown.
func redacted(raw string) string {
	if raw == "" || strings.HasPrefix(raw, "env:") {
		return raw
	}
	u, err := storeurl.Parse(raw)
	if err != nil {
		return "(not a store's URL)"
	}
	return u.Redacted()
}

func (a *app) configPaths() error {
	files := configFiles(a.configFlag)
	for i := range files {
		_, err := os.Stat(files[i].Path)
		files[i].Found = err == nil
	}
	if a.json {
		a.document(a.out, configJSON{Schema: "redlatch.config/v1", Files: files, Values: []configuredSetting{}})
		return nil
	}
	for _, f := range files {
		line := f.Path
		if !f.Found {
			line += "  (not there)"
		}
		fmt.Fprintln(a.out, line)
	}
	return nil
}

const firstConfig = `# The configuration of redlatch: redlatch config --help says what can stand here,
# redlatch config show --origin what is read.

# store = "redis://redis-1:6379/0?password_file=/etc/redlatch/pw"
# namespace = "prod"
# require = "distributed"

[defaults]
# ttl = "30s"
`

func (a *app) initConfig() error {
	path := a.configFlag
	if path == "" {
		path = userConfigFile()
	}
	if path == "" {
		return badConfig("there is no directory for the user's configuration; name a file with --config")
	}
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	var f *os.File
	if err == nil {
		f, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	}
	if errors.Is(err, fs.ErrExist) {
		return badConfig("%s is there already", path)
	}
	if err == nil {
		_, err = f.WriteString(firstConfig)
		if closed := f.Close(); err == nil {
			err = closed
		}
	}
	if err != nil {
		return badConfig("%v", err)
	}
	fmt.Fprintln(a.out, path)
	return nil
}
