package runtime_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime"
	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime/internal/procfs"
	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime/internal/shim"
)

// outputOf runs a script to its end, and returns its output.
func (n *node) outputOf(config *runtimeapi.ContainerConfig) string {
	n.t.Helper()
	id := n.start(config)
	s := n.ended(id)
	out, errOut := n.logs(id)
	if errOut != "" || s.ExitCode != 0 {
		n.t.Errorf("exit code %d, stderr %q", s.ExitCode, errOut)
	}
	return out
}

// With namespaces volumes are at their mount paths, wherever these are, and nothing
// is made on the machine for it.
func TestMountPathsAsRoot(t *testing.T) {
	asRoot(t)
	n := newNode(t)
	outer := n.volume("a", "in a", "sub", "in sub")
	inner := n.volume("b", "in b")
	file := filepath.Join(n.volume("f", "in f"), "f")
	config := sh(`cat /data/a /data/inner/b /vk-no-such/x/y/b /etc/vk-no-such-file /usr/share/vk-no-such/b /var/run/vk-no-such/b /dev/vk-log /etc/hosts
echo written > /data/c; echo private > /tmp/vk-private; cat /tmp/vk-private; ls /usr/share/vk-no-such; test -e /usr/share/zoneinfo -o -e /usr/share/doc && echo kept`)
	config.Mounts = []*runtimeapi.Mount{
		{ContainerPath: "/data/inner", HostPath: inner},
		{ContainerPath: "/data", HostPath: outer},
		{ContainerPath: "/vk-no-such/x/y", HostPath: inner},
		{ContainerPath: "/etc/vk-no-such-file", HostPath: file},
		{ContainerPath: "/usr/share/vk-no-such", HostPath: inner},
		{ContainerPath: "/var/run/vk-no-such", HostPath: inner},
		{ContainerPath: "/dev/vk-log", HostPath: file},
		{ContainerPath: "/etc/hosts", HostPath: file},
	}
	must(t, os.Mkdir(outer+"/inner", 0o755))
	if got, want := n.outputOf(config), "in ain bin bin fin bin bin fin fprivate\nb\nkept\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if data, _ := os.ReadFile(outer + "/c"); string(data) != "written\n" {
		t.Errorf("%q", data)
	}
	for _, path := range []string{"/data", "/vk-no-such", "/etc/vk-no-such-file", "/usr/share/vk-no-such", "/run/vk-no-such", "/dev/vk-log", "/tmp/vk-private"} {
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s is on the machine", path)
		}
	}
}

// A volume below a directory that all users may write to leaves it as it is.
func TestMountPathsBelowWritableDirectoriesAsRoot(t *testing.T) {
	asRoot(t)
	n := newNode(t)
	volume := n.volume("f", "in f ")
	config, want := sh(""), ""
	for _, dir := range []string{"/tmp", "/var/tmp", "/run/lock"} {
		if _, err := os.Stat(dir); err != nil {
			continue // the machine has none
		}
		config.Command[2] += fmt.Sprintf("cat %[1]s/a/b/f; head -c 4000000 /dev/zero > %[1]s/own && stat -c %%A %[1]s; ", dir)
		config.Mounts = append(config.Mounts, &runtimeapi.Mount{ContainerPath: dir + "/a/b", HostPath: volume})
		want += "in f drwxrwxrwt\n"
	}
	if got := n.outputOf(config); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestReadonlyAsRoot(t *testing.T) {
	asRoot(t)
	n := newNode(t, func(c *runtime.Config) { c.Users = []string{"0"} })
	readonly, writable := n.volume("a", "in a"), n.volume()
	config := sh(`try() { if echo x 2>/dev/null > $1; then echo $1; fi; }
try /ro/b; try /rw/b; try /vk-root; try /tmp/b; try /dev/shm/b; try /dev/null; try /mnt/vk-b`)
	config.Mounts = []*runtimeapi.Mount{{ContainerPath: "/ro", HostPath: readonly, Readonly: true}, {ContainerPath: "/rw", HostPath: writable}}
	config.Linux = &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
		RunAsUser: &runtimeapi.Int64Value{}, ReadonlyRootfs: true, NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER},
	}}
	if got, want := n.outputOf(config), "/rw/b\n/dev/shm/b\n/dev/null\n"; got != want {
		t.Errorf("with a read-only root %q can be written, want %q", got, want)
	}
	config = sh(strings.ReplaceAll(config.Command[2], "try /mnt/vk-b", ""))
	config.Mounts = []*runtimeapi.Mount{{ContainerPath: "/ro", HostPath: readonly, Readonly: true}}
	if got := n.outputOf(config); !strings.Contains(got, "/tmp/b\n") || strings.Contains(got, "/ro/b") {
		t.Errorf("%q can be written", got)
	}
}

// A link in a volume does not lead a mount, or a check, out of the private root.
func TestLinksInVolumesAsRoot(t *testing.T) {
	asRoot(t)
	n := newNode(t)
	evil, harmless := n.volume(), n.volume("passwd", "harmless")
	outside := filepath.Join(filepath.Dir(n.cfg.Root), "outside")
	must(t, os.MkdirAll(outside, 0o755))
	must(t, os.Symlink("../../../../../../.."+outside, evil+"/up"))
	must(t, os.Symlink("/etc", evil+"/link"))
	config := sh(`cat /evil/link/passwd /etc/passwd; ls -d /evil/up/made`)
	config.Mounts = []*runtimeapi.Mount{
		{ContainerPath: "/evil", HostPath: evil},
		{ContainerPath: "/evil/link", HostPath: harmless},
	}
	config.Command[2] = "cat /etc/passwd"
	if got := n.outputOf(config); got != "harmless" {
		t.Errorf("%q", got)
	}
	config.Mounts = []*runtimeapi.Mount{{ContainerPath: "/x", HostPath: evil + "/link"}}
	box, boxConfig := n.sandbox()
	if _, err := n.CreateContainer(ctx, box, config, boxConfig); err == nil || !strings.Contains(err.Error(), "hostPaths") {
		t.Errorf("a link out of the volumes: %v", err)
	}
	if left, _ := os.ReadDir(outside); len(left) > 0 {
		t.Errorf("made outside: %v", left)
	}
}

// Without namespaces volumes are found through links and variables.
func TestLinkedMounts(t *testing.T) {
	n := newNode(t, func(c *runtime.Config) { c.Isolation = runtime.IsolationNone })
	outer, inner := n.volume("a", "in a"), n.volume("b", "in b")
	config := sh(`cat $VIRTUAL_KUBELET_MOUNTS/etc/my-config/a $VIRTUAL_KUBELET_MOUNT_ETC_MY_CONFIG/a $VIRTUAL_KUBELET_MOUNT_ETC_MY_CONFIG_SUB/b; pwd`)
	config.WorkingDir = "/etc/my-config/"
	config.Mounts = []*runtimeapi.Mount{
		{ContainerPath: "/etc/my-config", HostPath: outer}, {ContainerPath: "/etc/my-config/sub", HostPath: inner},
	}
	if got, want := n.outputOf(config), "in ain ain b"+outer+"\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	config = sh("echo x > file; cat file; pwd")
	if got := n.outputOf(config); !strings.HasPrefix(got, "x\n"+n.cfg.Root) {
		t.Errorf("%q", got)
	}
}

// A working directory in a volume, or in the container's own /tmp, is made by its user.
func TestWorkingDirIsMade(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		volume := n.volume()
		config := sh("pwd; echo x > file; stat -c %a .; id -u; stat -c %u ..")
		config.Mounts = []*runtimeapi.Mount{{ContainerPath: "/data", HostPath: volume}}
		dirs := []string{"/data/work", "/data/a/b"}
		if n.cfg.Isolation == runtime.IsolationNamespaces {
			dirs = append(dirs, "/tmp/build/c")
		}
		for _, dir := range dirs {
			config.WorkingDir = dir
			out := strings.Fields(n.outputOf(config))
			if len(out) != 4 || out[0] != strings.Replace(dir, "/data", n.mounted(volume, "/data"), 1) || out[1] != "755" {
				t.Errorf("%s: %q", dir, out)
			}
			if strings.Count(dir, "/") > 2 && out[2] != out[3] {
				t.Errorf("%s: it is user %s's, and its parent is %s's", dir, out[2], out[3])
			}
		}
		must(t, os.Symlink("/root", volume+"/link"))
		must(t, os.Mkdir(volume+"/closed", 0o555))
		for _, dir := range []string{"/data/link/made", "/data/closed/made"} {
			config.WorkingDir = dir
			id := n.create(config)
			if err := n.StartContainer(ctx, id); err == nil || !strings.Contains(err.Error(), "working directory") {
				t.Errorf("%s: %v", dir, err)
			}
		}
	})
}

// Each container sees its own processes, unless it may see more.
func TestProcessesSeenAsRoot(t *testing.T) {
	asRoot(t)
	n := newNode(t, func(c *runtime.Config) { c.AllowHostPID = true })
	count := func(mode runtimeapi.NamespaceMode, target string) string {
		config := sh("set -- /proc/[0-9]*; echo $#; cat /proc/1/comm")
		config.Linux = &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
			NamespaceOptions: &runtimeapi.NamespaceOption{Pid: mode, TargetId: target},
		}}
		if target == "" {
			return n.outputOf(config)
		}
		id, err := n.CreateContainer(ctx, n.sandboxOf(target), config, nil)
		must(t, err)
		must(t, n.StartContainer(ctx, id))
		n.ended(id)
		out, err := os.ReadFile(n.status(id).LogPath)
		must(t, err)
		return string(out)
	}
	if got := count(runtimeapi.NamespaceMode_CONTAINER, ""); got != "1\nsh\n" {
		t.Errorf("its own: %q", got)
	}
	var seen int
	_, err := fmt.Sscan(count(runtimeapi.NamespaceMode_NODE, ""), &seen)
	if err != nil || seen < 6 {
		t.Errorf("the machine's: %d, %v", seen, err)
	}
	target := n.start(sh("exec sleep 1000"))
	if got := count(runtimeapi.NamespaceMode_TARGET, target); !strings.Contains(got, "sleep\n") {
		t.Errorf("those of another: %q", got)
	}
}

// What a container leaves behind in the PID namespace of another ends with it.
func TestNothingIsLeftInTheNamespaceOfAnotherAsRoot(t *testing.T) {
	asRoot(t)
	for _, groups := range []string{"", runtime.CgroupsNone} {
		n := newNode(t, func(c *runtime.Config) {
			if groups != "" {
				c.CgroupParent = groups
			}
		})
		target := n.start(sh("exec sleep 1000"))
		config := sh("sleep 1000 & setsid sh -c 'sleep 1000 & sleep 1000' & exit 0")
		config.Linux = &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
			NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_TARGET, TargetId: target},
		}}
		id, err := n.CreateContainer(ctx, n.sandboxOf(target), config, nil)
		must(t, err)
		must(t, n.StartContainer(ctx, id))
		n.ended(id)
		all, err := procfs.All()
		must(t, err)
		for _, p := range all {
			if !p.Dead() && procfs.HasEnv(p.PID, shim.MarkerEnv+"="+id) {
				t.Errorf("process %d is left", p.PID)
			}
		}
		if s := n.status(target); s.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
			t.Errorf("the other is %v", s)
		}
	}
}
