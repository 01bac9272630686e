//go:build unix

package main

import (
	"os"
	"os/exec"
	"testing"
)

// What is given wrongly is said, with what is right, before anything is done.
func TestWrongInput(t *testing.T) {
	t.Parallel()
	store := redisURL(t)
	for _, c := range []struct {
		args []string
		says string
	}{
		{nil, "Usage:"},
		{[]string{"version", "extra"}, `"extra"`},
		{[]string{"ls", "--limit", "abc"}, `--limit: "abc" is no whole number`},
		{[]string{"run", "-w", "soon", "x", "--", "true"}, "1w or a number of seconds, or forever"},
		{[]string{"run", "--ttl", "forever", "x", "--", "true"}, "--ttl: \"forever\" is no length of time"},
		{[]string{"run", "--store", "", "x", "--", "true"}, "--store is empty"},
		{[]string{"who", "--store", "", "x"}, "--store is empty"},
		{[]string{"run", "--store", "file:here", "x", "--", "true"}, "from the root on"},
	} {
		has(t, start(t, store, c.args...).want(codeUsage).err.String(), c.says)
	}
	has(t, startEnv(t, environ(urlVariable+"="), "run", "x", "--", "true").want(codeConfig).err.String(), "is set and empty")
}

// A data base that the server does not have is in the URL, and comes with no outage.
func TestADatabaseThatIsNotThere(t *testing.T) {
	t.Parallel()
	store := redisURL(t)
	for _, args := range [][]string{{"run", "x", "--", "true"}, {"who", "x"}, {"acquire", "x"}} {
		p := start(t, store+"/99", args...).want(codeUsage)
		has(t, p.err.String(), "a database that this server does not have")
	}
}

// Whoever reads "done" believes that the output is there.
func TestOutputThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	store := redisURL(t)
	for _, args := range [][]string{
		{"version"}, {"--help"}, {"who", "x"}, {"who", "--json", "x"}, {"ls", "--json"}, {"keys", "x"}, {"completion", "bash"}, {"config", "show"},
		{"config", "path"}, {"man"},
	} {
		p := exec.Command(binary, args...)
		p.Env, p.Stdout = environ(urlVariable+"="+store), full
		if _ = p.Run(); p.ProcessState.ExitCode() != codeInternal {
			t.Errorf("%q > /dev/full ended with %d, want %d", args, p.ProcessState.ExitCode(), codeInternal)
		}
	}
}
