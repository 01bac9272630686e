//go:build unix

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFlock(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, store string) {
		file := filepath.Join(t.TempDir(), "job")
		p := start(t, store, "flock", file, "echo", "-n", "hi").want(0)
		if p.out.String() != "hi" || p.err.String() != "" {
			t.Errorf("it prints %q and says %q", p.out.String(), p.err.String())
		}
		if _, err := os.Stat(file); err == nil {
			t.Error("the file was made")
		}
		start(t, store, "flock", "-x", file, "-c", "exit 7").want(7)
		has(t, start(t, store, "flock", file, "-c", "echo $REDLATCH_LOCK").want(0).out.String(), "flock/"+strings.TrimPrefix(file, "/"))
		start(t, store, "flock", "-n", file, "/nowhere").want(127)

		holder := start(t, store, "flock", file, "sh", "-c", "echo started; exec sleep 100")
		holder.says(&holder.out, "started")
		for _, c := range []struct {
			code int
			args []string
		}{
			{1, []string{"-n"}},
			{1, []string{"-xn"}},
			{1, []string{"--nb", "-F", "-o"}},
			{1, []string{"-w", "0.1"}},
			{1, []string{"-w0.1"}},
			{1, []string{"--timeout=0.1"}},
			{9, []string{"-nE9"}},
			{0, []string{"-n", "--conflict-exit-code", "0"}},
		} {
			p := start(t, store, append(append([]string{"flock"}, c.args...), file, "echo", "ran")...).want(c.code)
			if p.out.String()+p.err.String() != "" {
				t.Errorf("%q: it prints %q and says %q", c.args, p.out.String(), p.err.String())
			}
		}
		has(t, start(t, store, "flock", "-n", "--verbose", file, "true").want(1).err.String(), "is held by")
		link := filepath.Join(t.TempDir(), "link")
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(file, link); err != nil {
			t.Fatal(err)
		}
		start(t, store, "flock", "-n", link, "true").want(1)
		waiter := start(t, store, "flock", file, "echo", "next")
		_ = holder.cmd.Process.Signal(os.Interrupt)
		holder.want(130)
		has(t, waiter.want(0).out.String(), "next")
	})
}

func TestFlockShared(t *testing.T) {
	t.Parallel()
	store := "file:" + t.TempDir()
	reader := start(t, store, "flock", "-s", "job", "sh", "-c", "echo started; exec sleep 100")
	reader.says(&reader.out, "started")
	start(t, store, "flock", "-sn", "job", "true").want(0)
	start(t, store, "flock", "-n", "job", "true").want(1)
	has(t, start(t, redisURL(t), "flock", "-s", "job", "true").want(codeUsage).err.String(), "has no shared locks")
}

func TestFlockWithoutAStore(t *testing.T) {
	t.Parallel()
	env := environ("TMPDIR="+t.TempDir(), "XDG_RUNTIME_DIR="+t.TempDir())
	if p := startEnv(t, env, "flock", t.TempDir(), "true").want(0); p.err.String() != "" {
		t.Errorf("it says %q", p.err.String())
	}
	startEnv(t, env, "flock", "--store=file:"+t.TempDir(), "/"+strings.Repeat("long/", 100), "true").want(0)
}

func TestFlockRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		says string
	}{
		{nil, "the file is missing"},
		{[]string{"f"}, "the command is missing"},
		{[]string{"-n"}, "the file is missing"},
		{[]string{"9"}, "no locks on file descriptors"},
		{[]string{"-u", "9"}, "no locks on file descriptors"},
		{[]string{"-w"}, "the value of -w is missing"},
		{[]string{"--wait"}, "the value of --wait is missing"},
		{[]string{"-w", "soon", "f", "true"}, "no length of time"},
		{[]string{"-E", "600", "f", "true"}, "from 0 to 255"},
		{[]string{"-Z", "f", "true"}, "no option -Z"},
		{[]string{"--nonblok", "f", "true"}, "did you mean --nonblock?"},
		{[]string{"--shared=1", "f", "true"}, "takes no value"},
		{[]string{"f", "-c", "a", "b"}, "one argument"},
	} {
		has(t, start(t, "mem:", append([]string{"flock"}, c.args...)...).want(codeUsage).err.String(), c.says)
	}
	has(t, start(t, "", "flock", "-V").want(0).out.String(), "redlatch dev")
}
