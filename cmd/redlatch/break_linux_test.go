package main

import (
	"strings"
	"testing"
)

func TestBreakAsksAtATerminal(t *testing.T) {
	t.Parallel()
	store := "file:" + t.TempDir()
	holder := start(t, store, "run", "--owner", evil, "jobs/x", "--", "sh", "-c", "echo started; exec sleep 100")
	holder.says(&holder.out, "started")

	person, printed, _ := atTerminal(t, store, `"$REDLATCH" break jobs/x; echo "code $?"; read end`)
	shows(t, printed, "Type the lock name to break it: ")
	for _, part := range []string{"jobs/x is held by me", "THE HOLDER LOOKS ALIVE", "must refuse its writes with fence"} {
		shows(t, printed, part)
	}
	typed(t, person, "y\n")
	shows(t, printed, "that is not the name; nothing was done")
	shows(t, printed, "code 64")
	start(t, store, "is-held", "jobs/x").want(0)

	person, again, _ := atTerminal(t, store, `"$REDLATCH" break jobs/x; echo "code $?"; read end`)
	shows(t, again, "Type the lock name to break it: ")
	typed(t, person, "jobs/x\n")
	shows(t, again, "Reason (for the holder and the audit log): ")
	typed(t, person, "stuck on a dead mount\n")
	shows(t, again, "broken: jobs/x, fence ")
	shows(t, again, "code 0")
	holder.want(codeLost)
	has(t, holder.err.String(), "stuck on a dead mount")
	if text := printed.String() + again.String(); strings.ContainsAny(text, "\x1b\u202e") {
		t.Errorf("what a stranger wrote is printed as it is: %q", text)
	}
}
