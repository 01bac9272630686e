//go:build unix

package child

import (
	"errors"
	"syscall"
)

// family is the command and what it has started: its process group and, if all is set,
// everybody else who descends from root. On systems that do not show who descends from
// whom it is the group alone.
type family struct {
	group int
	root  int
	spare int // descends from root and is no relative: the guard
	all   bool
	gone  bool // the group has: its number may be somebody else's now
}

// signal sends a signal to all of them. Who cannot be reached is seen by alive.
func (f *family) signal(sig syscall.Signal) {
	if !f.gone {
		_ = syscall.Kill(-f.group, sig)
	}
	if f.all {
		for _, p := range f.strays() {
			p.signal(sig)
		}
	}
}

// alive reports whether any of them still runs.
func (f *family) alive() bool {
	if !f.gone && (errors.Is(syscall.Kill(-f.group, 0), syscall.ESRCH) || onlyZombies(f.group)) {
		f.gone = true
	}
	return !f.gone || f.all && len(f.strays()) > 0
}
