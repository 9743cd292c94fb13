package runtime

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// capabilityNumbers are the kernel's capabilities, in its order.
func capabilityNumbers() []string {
	return []string{
		"CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID",
		"SETPCAP", "LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW",
		"IPC_LOCK", "IPC_OWNER", "SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT",
		"SYS_ADMIN", "SYS_BOOT", "SYS_NICE", "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD",
		"LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP", "MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG",
		"WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ", "PERFMON", "BPF", "CHECKPOINT_RESTORE",
	}
}

// usualCapabilities are what container runtimes leave to root by default, but for
// those that reach the machine here, where its files are the container's: mknod,
// setting file capabilities, and chroot.
func usualCapabilities() []int {
	return []int{
		unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_FSETID, unix.CAP_KILL,
		unix.CAP_SETGID, unix.CAP_SETUID, unix.CAP_SETPCAP, unix.CAP_NET_BIND_SERVICE,
		unix.CAP_NET_RAW, unix.CAP_AUDIT_WRITE,
	}
}

// hasCapabilities reports whether this process has capabilities, by number.
func hasCapabilities(wanted ...int) bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if unix.Capget(&header, &data[0]) != nil {
		return false
	}
	return !slices.ContainsFunc(wanted, func(n int) bool { return data[n/32].Effective&(1<<(n%32)) == 0 })
}

func parseCapabilities(names []string) ([]int, error) {
	var all []int
	for _, name := range names {
		n := slices.Index(capabilityNumbers(), strings.TrimPrefix(strings.ToUpper(name), "CAP_"))
		if n < 0 {
			return nil, fmt.Errorf("capabilities: there is no %q: use names such as NET_ADMIN", name)
		}
		all = append(all, n)
	}
	return all, nil
}

// capabilitiesOf says which capabilities a container may have.
func (p *policy) capabilitiesOf(asked *runtimeapi.Capability) ([]int, error) {
	have := usualCapabilities()
	add := asked.GetAddCapabilities()
	if containsAll(asked.GetDropCapabilities()) {
		have = nil
	} else {
		drop, err := parseCapabilities(asked.GetDropCapabilities())
		if err != nil {
			return nil, invalid("%v", err)
		}
		have = slices.DeleteFunc(have, func(n int) bool { return slices.Contains(drop, n) })
	}
	if containsAll(add) {
		return nil, denied("adding all capabilities is not allowed: name them, and have the node's operator add them to capabilities")
	}
	wanted, err := parseCapabilities(add)
	if err != nil {
		return nil, invalid("%v", err)
	}
	for _, n := range wanted {
		if !slices.Contains(usualCapabilities(), n) && !slices.Contains(p.capabilities, n) {
			return nil, denied("adding the capability %s is not allowed on this node: its operator may add it to capabilities", capabilityNumbers()[n])
		}
		have = append(have, n)
	}
	if have == nil {
		// Nil means no change.
		have = []int{}
	}
	return have, nil
}

func containsAll(names []string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, "ALL") })
}

// givesMore reports whether there is one that containers do not usually have: the
// operator allows it, and the default profile would take its effect.
func givesMore(capabilities []int) bool {
	return slices.ContainsFunc(capabilities, func(n int) bool { return !slices.Contains(usualCapabilities(), n) })
}
