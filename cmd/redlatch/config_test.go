//go:build unix

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redlatch/redlatch/internal/servertest"
)

// configured is an environment with the user's configuration.
func configured(t *testing.T, text string, more ...string) []string {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "redlatch", "config.toml")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return environ(append([]string{"XDG_CONFIG_HOME=" + dir}, more...)...)
}

func userFile(env []string) string {
	for _, e := range env {
		if dir, ok := strings.CutPrefix(e, "XDG_CONFIG_HOME="); ok {
			return filepath.Join(dir, "redlatch", "config.toml")
		}
	}
	return ""
}

// set is what config show says about a key.
func set(t *testing.T, env []string, key string, args ...string) (value, origin string) {
	t.Helper()
	doc := document(t, startEnv(t, env, append([]string{"config", "show", "--json"}, args...)...).want(0).out.String())
	for _, v := range doc["values"].([]any) {
		if v := v.(map[string]any); v["key"] == key {
			return v["value"].(string), v["origin"].(string)
		}
	}
	t.Fatalf("config show has no %s: %v", key, doc)
	return "", ""
}

func TestWhatStandsAboveWhat(t *testing.T) {
	t.Parallel()
	text := `
		store = "file:/file"
		namespace = "prod"
		[defaults]
		ttl = "40s"
		grace = 2
		label = ["a=b", "c=d"]
		[locks."*"]
		ttl = "45s"
		[locks."nightly/*"]
		ttl = "49s"
		hold_at_least = "2m"
		[locks."nightly/?"]
		ttl = "50s"
		[profile.staging]
		store = "file:/staging"
		[profile.staging.defaults]
		wait = "10m"`
	env := configured(t, text)
	file := userFile(env)
	more := filepath.Join(t.TempDir(), "more.toml")
	if err := os.WriteFile(more, []byte(`namespace = "more"`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		env                []string
		args               []string
		key, value, origin string
	}{
		{nil, nil, "store", "file:/file", file},
		{nil, nil, "namespace", "prod", file},
		{nil, nil, "ttl", "40s", file},
		{nil, nil, "grace", "2", file},
		{nil, nil, "label", "a=b,c=d", file},
		{nil, nil, "wait", "", "default"},
		{nil, nil, "conflict_exit_code", "75", "default"},
		{nil, []string{"nightly/x"}, "ttl", "50s", file},
		{nil, []string{"nightly/x"}, "hold_at_least", "2m", file},
		{nil, []string{"other"}, "ttl", "45s", file},
		{nil, []string{"--profile", "staging"}, "store", "file:/staging", "profile staging in " + file},
		{nil, []string{"--profile", "staging"}, "wait", "10m", "profile staging in " + file},
		{nil, []string{"--profile", "staging"}, "namespace", "prod", file},
		{[]string{profileVariable + "=staging"}, nil, "store", "file:/staging", "profile staging in " + file},
		{[]string{"REDLATCH_TTL=60s"}, []string{"nightly/x"}, "ttl", "60s", "REDLATCH_TTL"},
		{[]string{urlVariable + "=file:/env"}, []string{"--profile", "staging"}, "store", "file:/env", urlVariable},
		{[]string{urlVariable + "=file:/env"}, []string{"--store", "file:/flag"}, "store", "file:/flag", "--store"},
		{[]string{urlVariable + "=redis://u:Sw0rdfish@h"}, nil, "store", "redis://u:xxxxx@h:6379/0", urlVariable},
		{[]string{urlVariable + "=redis://u:Sw0rd/fish@h"}, nil, "store", "(not a store's URL)", urlVariable},
		{nil, []string{"--config", more}, "namespace", "more", more},
		{[]string{configVariable + "=" + more}, nil, "namespace", "more", more},
		{[]string{configVariable + "=" + more}, []string{"--namespace", "flag"}, "namespace", "flag", "--namespace"},
	} {
		if value, origin := set(t, append(env, c.env...), c.key, c.args...); value != c.value || origin != c.origin {
			t.Errorf("%q, %q: %s is %q from %s, want %q from %s", c.env, c.args, c.key, value, origin, c.value, c.origin)
		}
	}
	table := startEnv(t, env, "config", "show", "--origin").want(0).out.String()
	has(t, table, "namespace ", "prod", file, "default")
	if plain := startEnv(t, env, "config", "show").want(0).out.String(); strings.Contains(plain, file) {
		t.Errorf("without --origin it prints origins: %q", plain)
	}
}

func TestTheConfigurationDecides(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	store := "file:" + dir
	text := `store = "` + store + `"
		namespace = "prod"
		[defaults]
		conflict_exit_code = 3
		owner = "conf"
		[locks."a*"]
		wait = "0.2"
		ttl = "77s"
		[locks."long"]
		hold_at_least = "1h"`
	env := configured(t, text)
	token := strings.TrimSpace(startEnv(t, env, "acquire", "abc").want(0).out.String())
	// The namespace is part of the name in the store, and of no message.
	has(t, start(t, store, "who", "prod/abc").want(0).out.String(), "holder   conf")
	p := startEnv(t, env, "run", "abc", "--", "true").want(3)
	has(t, p.err.String(), "abc is held by conf", "gave up after 200ms")
	if strings.Contains(p.err.String(), "prod/abc") {
		t.Errorf("it says %q", p.err.String())
	}
	startEnv(t, env, "run", "-n", "abc", "--", "true").want(3)
	startEnv(t, env, "run", "-E", "9", "abc", "--", "true").want(9)
	startEnv(t, env, "run", "--skip-ok", "abc", "--", "true").want(0)
	startEnv(t, env, "run", "--namespace", "other", "abc", "--", "true").want(0)
	start(t, store, "run", "abc", "--", "true").want(0)
	doc := document(t, startEnv(t, env, "who", "--json", "abc").want(0).out.String())
	if ttl := doc["holders"].([]any)[0].(map[string]any)["ttl_ms"]; ttl != 77000.0 {
		t.Errorf("the TTL is %v", ttl)
	}
	has(t, doc["store"].(string), "ns=prod")
	has(t, startEnv(t, env, "ls").want(0).out.String(), "\nabc ")
	has(t, startEnv(t, env, "__complete", "who", "a").want(0).out.String(), "abc\n")
	has(t, startEnv(t, env, "keys", "abc").want(0).out.String(), "prod%2fabc")
	startEnv(t, env, "release", "abc", token).want(0)
	startEnv(t, env, "run", "long", "--", "true").want(0)
	startEnv(t, env, "is-held", "long").want(0)
}

func TestANamespaceOnRedis(t *testing.T) {
	t.Parallel()
	store := redisURL(t)
	env := environ(urlVariable+"="+store, "REDLATCH_NAMESPACE=prod")
	holder := startEnv(t, env, "run", "--ttl", "1h", "x", "--", "sh", "-c", "echo started; exec sleep 100")
	holder.says(&holder.out, "started")
	waiter := startEnv(t, env, "run", "-w", "1m", "x", "--", "true")
	waiter.says(&waiter.err, "waiting for x")
	start(t, store, "is-held", "prod/x").want(0)
	start(t, store, "is-held", "x").want(codeFree)
	servertest.Eventually(t, patience, "the name in the list", func() bool {
		return strings.Contains(startEnv(t, env, "ls").want(0).out.String(), "\nx ")
	})
	startEnv(t, env, "break", "--yes", "--reason", "r", "x").want(0)
	holder.want(codeLost) // told at once: its next renewal is in twenty minutes
	waiter.want(0)
}

func TestABadConfiguration(t *testing.T) {
	t.Parallel()
	for text, says := range map[string]string{
		`stor = "mem:"`:                                "did you mean store?",
		`store = 3`:                                    "store is a text",
		`store = ["a", "b"]`:                           "store is a text",
		`require = "much"`:                             `require is "distributed" or nothing`,
		`namespace = "/x"`:                             "namespace",
		"[defaults]\nttl = \"soon\"":                   "no length of time",
		"[defaults]\ntttl = 3":                         "did you mean defaults.ttl?",
		"[defaults]\ncommand = \"rm\"":                 "there is no setting defaults.command",
		"[defaults]\nfor_pid = 3":                      "there is no setting defaults.for_pid",
		"[defaults]\nconflict_exit_code = 600":         "from 0 to 255",
		"[locks.\"a[\"]\nttl = 3":                      "no pattern",
		"[locks.a]\nx = 3":                             "there is no setting",
		"[profile.p]\nlocks = 3":                       "there is no setting",
		"[profile.p.defaults]\nttl = \"x\"":            "no length of time",
		"defaults = 3":                                 "[defaults]",
		"store = \"redis://u:Sw0rdfish@h":              "line 1",
		"store = redis://u:Sw0rdfish@h":                "line 1",
		"store = \"x\"\nnamespace = \"redis:Sw0rdfish": "line 2",
		"store = \"redis://u:Sw0rdfish\\x@h\"":         "line 1",
		"store = \"mem:\"\n[[store]]":                  "line",
		"\x00":                                         "config.toml",
	} {
		env := configured(t, text)
		for _, args := range [][]string{{"who", "x"}, {"run", "x", "--", "true"}, {"config", "show"}} {
			p := startEnv(t, env, args...).want(codeConfig)
			has(t, p.err.String(), says, userFile(env))
			if strings.Contains(p.err.String(), "Sw0rd") {
				t.Errorf("it prints the password: %q", p.err.String())
			}
		}
		startEnv(t, env, "--help").want(0)
		startEnv(t, env, "version").want(0)
		has(t, startEnv(t, env, "config", "path").want(0).out.String(), userFile(env))
		doc := document(t, startEnv(t, env, "who", "--json", "x").want(codeConfig).err.String())
		if e := doc["error"].(map[string]any); e["code"] != "config" {
			t.Errorf("%q: %v", text, doc)
		}
	}
	startEnv(t, environ(), "--config", "/nowhere/x", "who", "x").want(codeConfig)
	has(t, startEnv(t, environ(), "--profile", "x", "who", "x").want(codeConfig).err.String(), `no profile "x"`)
	has(t, startEnv(t, environ("REDLATCH_TTL=soon"), "who", "x").want(codeConfig).err.String(), "REDLATCH_TTL", "no length of time")
	startEnv(t, environ(urlVariable+"=mem:"), "--namespace", "a//b", "who", "x").want(codeUsage)
}

func TestRequireDistributed(t *testing.T) {
	t.Parallel()
	env := configured(t, `require = "distributed"`)
	has(t, startEnv(t, env, "run", "x", "--", "true").want(codeConfig).err.String(), "no store is configured")
	has(t, startEnv(t, env, "--store", "file:"+t.TempDir(), "run", "x", "--", "true").want(codeConfig).err.String(), "on this host only")
	startEnv(t, env, "--store", redisURL(t), "run", "x", "--", "true").want(0)
}

func TestAPasswordThatEverybodyCanRead(t *testing.T) {
	t.Parallel()
	env := configured(t, `store = "redis://u:Sw0rdfish@127.0.0.1:1"`)
	if said := startEnv(t, env, "who", "x").want(codeUnavailable).err.String(); strings.Contains(said, "chmod") || strings.Contains(said, "Sw0rd") {
		t.Errorf("it says %q", said)
	}
	if err := os.Chmod(userFile(env), 0o644); err != nil {
		t.Fatal(err)
	}
	has(t, startEnv(t, env, "who", "x").want(codeUnavailable).err.String(), "chmod 600")
}

func TestConfigInit(t *testing.T) {
	t.Parallel()
	env := environ("XDG_CONFIG_HOME=" + t.TempDir())
	path := strings.TrimSpace(startEnv(t, env, "config", "init").want(0).out.String())
	if path != userFile(env) {
		t.Errorf("it writes %q", path)
	}
	startEnv(t, env, "config", "show").want(0)
	has(t, startEnv(t, env, "config", "init").want(codeConfig).err.String(), "is there already")
	startEnv(t, env, "config").want(codeUsage)
	startEnv(t, env, "config", "shw").want(codeUsage)
}

func TestTheAuditLogOfTheConfiguration(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "audit")
	env := configured(t, `store = "file:`+t.TempDir()+`"
		audit_log = "`+log+`"`)
	startEnv(t, env, "acquire", "x").want(0)
	startEnv(t, env, "break", "--yes", "--now", "--reason", "r", "x").want(0)
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	document(t, string(text))
}

func TestTheURLsTTL(t *testing.T) {
	t.Parallel()
	url := redisURL(t) + "?ttl=5m"
	doc := document(t, start(t, url, "acquire", "--json", "x").want(0).out.String())
	if doc["ttl_ms"] != 300_000.0 {
		t.Errorf("acquire says %v", doc)
	}
	doc = document(t, startEnv(t, environ(urlVariable+"="+url, "REDLATCH_TTL=1m"), "acquire", "--json", "y").want(0).out.String())
	if doc["ttl_ms"] != 60_000.0 {
		t.Errorf("acquire says %v", doc)
	}
}
