package filestore

import (
	"os"
	"strconv"
	"strings"
	"syscall"
)

// elsewhere are the kinds of file systems whose files other hosts may see too, or whose
// locks are not this kernel's. What FUSE stands for nobody can tell: it is sshfs as well
// as a local disk. An overlay is missing on purpose: it is a container's own.
var elsewhere = map[uint32]string{
	0x00006969: "NFS",
	0x0000517b: "SMB",
	0xff534d42: "SMB (CIFS)",
	0xfe534d42: "SMB",
	0x01021997: "9P",
	0x65735546: "FUSE",
	0x5346414f: "AFS",
	0x6b414653: "AFS",
	0x73757245: "Coda",
	0x0000564c: "NCP",
	0x00c36400: "Ceph",
	0x01161970: "GFS2",
	0x7461636f: "OCFS2",
	0x0bd00bd0: "Lustre",
	0x47504653: "GPFS",
	0x19830326: "BeeGFS",
	0xaad7aaea: "PanFS",
	0x013111a8: "IBRIX",
	0x786f4256: "a VirtualBox shared folder",
	0xbacbacbc: "a VMware shared folder",
}

// remote returns what kind of file system the open directory is on, if its locks are
// worth nothing.
func remote(dir *os.File) (kind string, err error) {
	var st syscall.Statfs_t
	for {
		err := syscall.Fstatfs(int(dir.Fd()), &st)
		if err == nil {
			return elsewhere[uint32(st.Type)], nil
		}
		if err != syscall.EINTR {
			return "", os.NewSyscallError("statfs", err)
		}
	}
}

// unmapped reports a user of whom this process's user namespace knows nothing: in a
// container without rights that is, among others, the root of the host.
func unmapped(uid uint32) bool {
	overflow, err := os.ReadFile("/proc/sys/kernel/overflowuid")
	if err != nil || strings.TrimSpace(string(overflow)) != strconv.FormatUint(uint64(uid), 10) {
		return false
	}
	whole, err := os.ReadFile("/proc/self/uid_map")
	return err == nil && strings.Join(strings.Fields(string(whole)), " ") != "0 0 4294967295"
}
