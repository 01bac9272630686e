package child

import (
	"bytes"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

const systemClock = unix.CLOCK_BOOTTIME

// ownProgram is the program that runs, also when its file has been replaced since.
const ownProgram = "/proc/self/exe"

// adoptive tells that adoptOrphans has an effect.
const adoptive = true

// adoptOrphans makes this process the parent of those of its descendants who lose theirs.
func adoptOrphans() {
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) // a kernel without it is older than Go's oldest
}

// nameProcess gives the process another name than its file's.
func nameProcess(name string) {
	_ = os.WriteFile("/proc/self/comm", []byte(name), 0)
}

// dieWithUs has the kernel kill the command when we are killed. It reaches the command
// only, not what that has started.
func dieWithUs(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

func dup(from, to int) error { return unix.Dup3(from, to, 0) }

// process is one line of what the kernel tells of all.
type process struct {
	pid, parent, group int
	state              byte
	started            string
}

// ended: it only waits for a parent that looks.
func (p process) ended() bool { return p.state == 'Z' || p.state == 'X' }

// processes are all that we may see. There are none if /proc tells of another container:
// its numbers are not ours.
func processes() []process {
	if self, err := os.Readlink("/proc/self"); err != nil || self != strconv.Itoa(os.Getpid()) {
		return nil
	}
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil
	}
	all := make([]process, 0, len(names))
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			if p, ok := stat(pid); ok {
				all = append(all, p)
			}
		}
	}
	return all
}

// stat reads what stands behind the command's name, which may have any character in
// it: "4711 (a) b) S 1 4711 …" is state, parent, group; the twentieth is when it started.
func stat(pid int) (process, bool) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return process{}, false
	}
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) < 20 {
		return process{}, false
	}
	parent, err1 := strconv.Atoi(string(fields[1]))
	group, err2 := strconv.Atoi(string(fields[2]))
	return process{pid: pid, parent: parent, group: group, state: fields[0][0], started: string(fields[19])}, err1 == nil && err2 == nil
}

// onlyZombies reports whether all that is left of the group has ended and merely waits
// for a parent that does not look: in a container whose first process reaps nobody,
// waiting for it to go would never end.
func onlyZombies(group int) bool {
	if leader, ok := stat(group); ok && leader.group == group && !leader.ended() {
		return false // as it is for most of the time, and to look at all of them takes milliseconds
	}
	found := false
	for _, p := range processes() {
		if p.group == group {
			if !p.ended() {
				return false
			}
			found = true
		}
	}
	return found // if there is nobody, we were not allowed to see them
}

// strays are those of the family who run outside of its group.
func (f *family) strays() []process {
	all := processes()
	children := make(map[int][]process)
	for _, p := range all {
		children[p.parent] = append(children[p.parent], p)
	}
	var found []process
	for next := []int{f.root}; len(next) > 0; {
		parent := next[0]
		next = next[1:]
		for _, p := range children[parent] {
			next = append(next, p.pid)
			if p.pid != f.spare && p.group != f.group && !p.ended() {
				found = append(found, p)
			}
		}
	}
	return found
}

// signal sends a signal to the process, and not to another one that has its number by
// now: the handle is one's for good, and if the start is still the same then it is his.
func (p process) signal(sig syscall.Signal) {
	handle, err := os.FindProcess(p.pid)
	if err != nil {
		return
	}
	defer func() { _ = handle.Release() }()
	if now, ok := stat(p.pid); ok && now.started == p.started {
		_ = handle.Signal(sig)
	}
}
