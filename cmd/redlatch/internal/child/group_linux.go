package child

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
)

// dieWithUs has the kernel kill the command when we are killed. It reaches the command
// only, not what that has started.
func dieWithUs(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// onlyZombies reports whether all that is left of the group has ended and merely waits
// for a parent that does not look: in a container whose first process reaps nobody,
// waiting for it to go would never end.
func onlyZombies(group int) bool {
	dir, err := os.Open("/proc")
	if err != nil {
		return false
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return false
	}
	found := false
	for _, name := range names {
		if name[0] < '1' || name[0] > '9' {
			continue
		}
		state, its, ok := stat(name)
		if !ok || its != group {
			continue
		}
		if state != 'Z' && state != 'X' {
			return false
		}
		found = true
	}
	return found // if there is nobody, we were not allowed to see them
}

// stat reads what stands behind the command's name, which may have any character in
// it: "4711 (a) b) S 1 4711 …" is state, parent, group.
func stat(pid string) (state byte, group int, ok bool) {
	b, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return 0, 0, false
	}
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) < 3 {
		return 0, 0, false
	}
	group, err = strconv.Atoi(string(fields[2]))
	return fields[0][0], group, err == nil
}
