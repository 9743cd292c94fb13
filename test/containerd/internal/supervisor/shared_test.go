//go:build containers

package supervisor

import (
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// inNamespaceVariable is set for the process that has a network of its own.
const inNamespaceVariable = "SUPERVISOR_TEST_IN_NAMESPACE"

// Containerds that end at the same moment, as those of several tests, do not get
// in each other's way. The test has firewall and directories of its own.
func TestLastOnesEndAtOnce(t *testing.T) {
	if os.Getenv(inNamespaceVariable) == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), inNamespaceVariable+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v:\n%s", err, out)
		}
		return
	}
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"/run", "/var/lib"} {
		if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		leaveCommonChains(t)
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() {
				if err := removeShared(); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		rules, err := natRules()
		if err != nil {
			t.Fatal(err)
		}
		for _, rule := range rules {
			if strings.Contains(strings.Join(rule, " "), "CNI-") {
				t.Errorf("left behind: %q", rule)
			}
		}
	}
}

// leaveCommonChains makes what the portmap plugin does, and leaves.
func leaveCommonChains(t *testing.T) {
	t.Helper()
	for _, rule := range []string{
		"-N CNI-HOSTPORT-DNAT", "-N CNI-HOSTPORT-SETMARK", "-N CNI-HOSTPORT-MASQ",
		"-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT", "-A OUTPUT -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT",
		"-A POSTROUTING -j CNI-HOSTPORT-MASQ",
		"-A CNI-HOSTPORT-SETMARK -j MARK --set-xmark 0x2000/0x2000", "-A CNI-HOSTPORT-MASQ -m mark --mark 0x2000/0x2000 -j MASQUERADE",
	} {
		if err := nat(strings.Fields(rule)...); err != nil {
			t.Fatal(err)
		}
	}
}
