package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/redlatch/redlatch/cmd/redlatch/internal/nearest"
	"github.com/redlatch/redlatch/cmd/redlatch/internal/storeurl"
	"github.com/redlatch/redlatch/lease"
)

// What can be set besides the flags of a command, which stand below [defaults] and
// [locks."PATTERN"] with _ for - in their names.
const (
	keyStore     = "store"
	keyNamespace = "namespace"
	keyRequire   = "require"
	keyAuditLog  = "audit_log"
)

var general = []string{keyStore, keyNamespace, keyRequire, keyAuditLog}

// variables are the environment's names of what can be set.
var variables = map[string]string{
	keyStore: urlVariable, keyNamespace: "REDLATCH_NAMESPACE", keyAuditLog: "REDLATCH_AUDIT_LOG",
	"ttl": "REDLATCH_TTL", "wait": "REDLATCH_WAIT", "owner": "REDLATCH_OWNER", "label": "REDLATCH_LABELS",
}

const (
	configVariable  = "REDLATCH_CONFIG"
	profileVariable = "REDLATCH_PROFILE"
)

// setting is a value and where it comes from. A flag that may be repeated has several.
type setting struct {
	texts  []string
	origin string
}

func (s setting) text() string { return strings.Join(s.texts, ",") }

// settings is what the files and the environment say; flags stand above it.
type settings struct {
	values map[string]setting
	rules  []rule // in order: the last one that matches wins
	files  []configFile
}

// rule is what a file says about the locks that a pattern matches.
type rule struct {
	pattern string
	values  map[string]setting
}

type configFile struct {
	Path  string `json:"path"`
	Found bool   `json:"found"`
	given bool   // it was named: then it must be there
}

// lookup is what one lock's command is to go by; what all go by, if there is no name.
func (s *settings) lookup(key, name string) (setting, bool) {
	v, ok := s.values[key]
	if ok && v.origin == variables[key] {
		return v, true // the environment stands above the files
	}
	for _, r := range s.rules {
		if hit, err := path.Match(r.pattern, name); err == nil && hit && name != "" {
			if ruled, has := r.values[key]; has {
				v, ok = ruled, true
			}
		}
	}
	return v, ok
}

func (s *settings) general(key string) string { return s.values[key].text() }

func badConfig(format string, args ...any) *failure {
	return &failure{code: codeConfig, kind: "config", msg: fmt.Sprintf(format, args...), next: "redlatch config show --origin says what is read, and from where"}
}

// configure reads the settings and gives them to the flags that were not set.
func (a *app) configure(cmd *cobra.Command, args []string) error {
	a.storeGiven = cmd.Flags().Changed("store")
	switch {
	case !cmd.HasParent(), cmd.Annotations[exitCodes] == "", cmd.Annotations[unconfigured] != "":
		return nil // help, completion: whatever is wrong with a file must not be in their way
	}
	s, err := a.loaded()
	if err != nil {
		return err
	}
	name := ""
	if len(args) > 0 {
		name = args[0]
	}
	taken := func(flag string) bool { return cmd.Flags().Changed(flag) }
	for key, flag := range configurable() {
		target := cmd.Flags().Lookup(flag.Name)
		v, ok := s.lookup(key, name)
		switch {
		case !ok, target == nil, target.Changed, target.Annotations[groupOf] == nil:
			continue
		case key == "wait" && taken("nonblock"), key == "conflict_exit_code" && taken("skip-ok"), key == "skip_ok" && taken("conflict-exit-code"):
			continue // the command line has decided otherwise in other words
		}
		a.ttlSet = a.ttlSet || key == "ttl"
		for _, text := range v.texts {
			if err := target.Value.Set(text); err != nil {
				return badConfig("%s: %s: %v", v.origin, key, err)
			}
		}
	}
	if f := cmd.Flags().Lookup("audit-log"); f != nil && !f.Changed {
		if v, ok := s.values[keyAuditLog]; ok {
			return f.Value.Set(v.text())
		}
	}
	return nil
}

// unconfigured marks commands that no file and no variable says anything to.
const unconfigured = "unconfigured"

// configurable are the flags of run and acquire that have a meaning in a file.
func configurable() map[string]*pflag.Flag {
	scratch := newApp(io.Discard, io.Discard)
	flags := make(map[string]*pflag.Flag)
	for _, cmd := range []*cobra.Command{scratch.acquireCommand(), scratch.runCommand()} {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			of := f.Annotations[groupOf]
			if len(of) == 0 || of[0] == "Output" || slices.Contains([]string{"nonblock", "command", "for-pid"}, f.Name) {
				return
			}
			flags[strings.ReplaceAll(f.Name, "-", "_")] = f
		})
	}
	return flags
}

func (a *app) loaded() (*settings, error) {
	if a.settings == nil {
		s, err := a.load()
		if err != nil {
			return nil, err
		}
		a.settings = s
	}
	return a.settings, nil
}

// load reads the files, the profile and the environment, each above the one before.
func (a *app) load() (*settings, error) {
	s := &settings{values: make(map[string]setting), files: configFiles(a.configFlag)}
	profile, wanted := a.profileFlag, a.profileFlag != ""
	if !wanted {
		profile, wanted = os.LookupEnv(profileVariable)
	}
	found := false
	var profiles []func() error
	for i := range s.files {
		doc, patterns, err := s.files[i].read(a)
		if err != nil {
			return nil, err
		}
		origin := s.files[i].Path
		if err := s.take(doc, origin, "profile", "defaults", "locks"); err != nil {
			return nil, err
		}
		if err := s.takeRules(doc, patterns, origin); err != nil {
			return nil, err
		}
		all, err := table(doc, "profile", origin)
		if err != nil {
			return nil, err
		}
		for name := range all {
			p, err := table(all, name, origin)
			if err != nil {
				return nil, err
			}
			where := fmt.Sprintf("profile %s in %s", name, origin)
			scratch := &settings{values: make(map[string]setting)}
			if err := scratch.take(p, where, "defaults"); err != nil { // a mistake in the others is one too
				return nil, err
			}
			if wanted && name == profile {
				found = true
				profiles = append(profiles, func() error { return s.take(p, where, "defaults") })
			}
		}
	}
	if wanted && profile != "" && !found {
		return nil, badConfig("there is no profile %q in the configuration", profile)
	}
	for _, apply := range profiles {
		if err := apply(); err != nil {
			return nil, err
		}
	}
	return s, s.environment()
}

// configFiles are the files that are read, in order; one that was named is the last.
func configFiles(named string) []configFile {
	var files []configFile
	if dir := systemConfigDir(); dir != "" {
		files = append(files, configFile{Path: filepath.Join(dir, "config.toml")})
	}
	if path := userConfigFile(); path != "" {
		files = append(files, configFile{Path: path})
	}
	if named == "" {
		named = os.Getenv(configVariable)
	}
	if named != "" {
		files = append(files, configFile{Path: named, given: true})
	}
	return files
}

func userConfigFile() string {
	dir, err := os.UserConfigDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "redlatch", "config.toml")
}

// read parses one file. What is not there says nothing, unless it was named. patterns
// are those of its rules.
func (f *configFile) read(a *app) (doc map[string]any, patterns []string, err error) {
	text, err := os.ReadFile(f.Path)
	if errors.Is(err, fs.ErrNotExist) && !f.given {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, badConfig("%v", err)
	}
	f.Found = true
	about, err := toml.Decode(string(text), &doc)
	var bad toml.ParseError
	switch {
	case errors.As(err, &bad) && urlNear(string(text), bad.Position.Line):
		// What is wrong with a URL is not shown: it may be the password.
		return nil, nil, badConfig("%s: line %d: this is not TOML; texts stand in quotes", f.Path, bad.Position.Line)
	case errors.As(err, &bad):
		return nil, nil, badConfig("%s: line %d: %s", f.Path, bad.Position.Line, lease.Printable(bad.Message))
	case err != nil:
		return nil, nil, badConfig("%s is not TOML", f.Path)
	}
	f.warn(a, doc)
	for _, key := range about.Keys() { // in the order of the file
		if len(key) > 1 && key[0] == "locks" && !slices.Contains(patterns, key[1]) {
			patterns = append(patterns, key[1])
		}
	}
	return doc, patterns, nil
}

// urlNear reports whether a line, or one beside it, has a URL.
func urlNear(text string, line int) bool {
	lines := strings.Split(text, "\n")
	from, to := max(line-2, 0), min(line+1, len(lines))
	return from >= to || strings.Contains(strings.Join(lines[from:to], ""), ":")
}

// warn tells of a password that everybody on the host can read.
func (f *configFile) warn(a *app, doc map[string]any) {
	info, err := os.Stat(f.Path)
	if err != nil || info.Mode().Perm()&0o004 == 0 || !worldReadable {
		return
	}
	raws := []any{doc[keyStore]}
	if profiles, ok := doc["profile"].(map[string]any); ok {
		for _, p := range profiles {
			if p, ok := p.(map[string]any); ok {
				raws = append(raws, p[keyStore])
			}
		}
	}
	for _, raw := range raws {
		text, _ := raw.(string)
		if u, err := storeurl.Parse(text); err == nil && u.Inline() {
			a.warn("%s has a password in it and everybody on this host can read it: chmod 600, or ?password_file=", f.Path)
			return
		}
	}
}

func table(doc map[string]any, key, origin string) (map[string]any, error) {
	v, ok := doc[key]
	if !ok {
		return nil, nil
	}
	t, ok := v.(map[string]any)
	if !ok {
		return nil, badConfig("%s: %s is a table: write [%s]", origin, key, key)
	}
	return t, nil
}

// take takes a file's or a profile's values in. tables are the keys that are tables.
func (s *settings) take(doc map[string]any, origin string, tables ...string) error {
	for _, key := range slices.Sorted(maps.Keys(doc)) {
		switch {
		case slices.Contains(tables, key):
		case slices.Contains(general, key):
			text, ok := doc[key].(string)
			if !ok {
				return badConfig("%s: %s is a text, in quotes", origin, key)
			}
			if err := s.check(key, text, origin); err != nil {
				return err
			}
			s.values[key] = setting{[]string{text}, origin}
		default:
			return unknownKey(origin, key, append(slices.Clone(tables), general...))
		}
	}
	defaults, err := table(doc, "defaults", origin)
	if err != nil {
		return err
	}
	return takeFlags(s.values, defaults, origin, "defaults")
}

// takeRules takes what a file says about certain locks, in the file's order.
func (s *settings) takeRules(doc map[string]any, patterns []string, origin string) error {
	rules, err := table(doc, "locks", origin)
	if err != nil {
		return err
	}
	for _, pattern := range patterns {
		if _, err := path.Match(pattern, ""); err != nil {
			return badConfig("%s: locks.%q is no pattern", origin, pattern)
		}
		t, err := table(rules, pattern, origin)
		if err != nil {
			return err
		}
		r := rule{pattern, make(map[string]setting)}
		if err := takeFlags(r.values, t, origin, fmt.Sprintf("locks.%q", pattern)); err != nil {
			return err
		}
		s.rules = append(s.rules, r)
	}
	return nil
}

// takeFlags takes values for flags in, each as if it were typed.
func takeFlags(into map[string]setting, t map[string]any, origin, where string) error {
	flags := configurable()
	for _, key := range slices.Sorted(maps.Keys(t)) {
		flag := flags[key]
		if flag == nil {
			return unknownKey(origin, where+"."+key, prefixed(where+".", slices.Sorted(maps.Keys(flags))))
		}
		texts, err := textsOf(t[key])
		if err != nil {
			return badConfig("%s: %s.%s: %v", origin, where, key, err)
		}
		for _, text := range texts {
			if err := flag.Value.Set(text); err != nil {
				return badConfig("%s: %s.%s: %v", origin, where, key, err)
			}
		}
		into[key] = setting{texts, origin}
	}
	return nil
}

func prefixed(prefix string, words []string) []string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = prefix + w
	}
	return out
}

func unknownKey(origin, key string, known []string) error {
	f := badConfig("%s: there is no setting %s", origin, lease.Printable(key))
	if near := nearest.Of(key, known); near != "" {
		f.next = "did you mean " + near + "?"
	}
	return f
}

// textsOf is a value as it would be typed.
func textsOf(v any) ([]string, error) {
	switch v := v.(type) {
	case string:
		return []string{v}, nil
	case int64:
		return []string{strconv.FormatInt(v, 10)}, nil
	case float64:
		return []string{strconv.FormatFloat(v, 'f', -1, 64)}, nil
	case bool:
		return []string{strconv.FormatBool(v)}, nil
	case []any:
		var texts []string
		for _, one := range v {
			text, ok := one.(string)
			if !ok {
				return nil, errors.New("a list has texts in it, in quotes")
			}
			texts = append(texts, text)
		}
		return texts, nil
	}
	return nil, errors.New("it is a text, a number, true or false, or a list of texts")
}

// check refuses what no command could go by. It never quotes a URL.
func (s *settings) check(key, text, origin string) error {
	switch key {
	case keyRequire:
		if text != "" && text != distributed {
			return badConfig("%s: require is %q or nothing", origin, distributed)
		}
	case keyNamespace:
		if text == "" {
			return nil
		}
		if err := lease.CheckName(text); err != nil {
			return badConfig("%s: namespace: %v", origin, err)
		}
	}
	return nil
}

// distributed is what require can ask for: a store that excludes other hosts.
const distributed = "distributed"

// environment takes the variables in.
func (s *settings) environment() error {
	flags := configurable()
	for key, variable := range variables {
		text, ok := os.LookupEnv(variable)
		switch {
		case ok && text == "" && key == keyStore: // a script whose own variable was empty would exclude on this host only
			return badConfig("%s is set and empty; unset it, or give it a store's URL", variable)
		case text == "":
			continue
		}
		texts := []string{text}
		if key == "label" {
			texts = strings.Split(text, ",")
		}
		if err := s.check(key, text, variable); err != nil {
			return err
		}
		for _, text := range texts {
			if flag := flags[key]; flag != nil {
				if err := flag.Value.Set(text); err != nil {
					return badConfig("%s: %v", variable, err)
				}
			}
		}
		s.values[key] = setting{texts, variable}
	}
	return nil
}
