package runtime_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/virtual-kubelet/virtual-kubelet/providers/process/runtime"
)

// The tests of this file are pods that attack the machine and each other.

// A pod that swaps a directory of its volume for a link, while mount points are
// made in it for another container, has nothing made or removed outside of it.
func TestHostileSwapWhileMountPointsAreMadeAsRoot(t *testing.T) {
	asRoot(t)
	n := newNode(t)
	shared, inner := n.volume(), n.volume("file", "x")
	outside := filepath.Join(filepath.Dir(n.cfg.Root), "outside")
	must(t, os.MkdirAll(outside+"/there", 0o755))
	must(t, os.MkdirAll(shared+"/swapped/there", 0o777))
	must(t, os.Symlink(outside, shared+"/link"))
	// What the machine has at the paths that become mount points, if they lead outside.
	canary := filepath.Join(outside, "canary")
	must(t, os.Symlink("/vk-no-such/target", canary))
	must(t, os.MkdirAll(shared+"/swapped", 0o777))
	stop, swapping := make(chan struct{}), sync.WaitGroup{}
	swapping.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, shared+"/swapped", unix.AT_FDCWD, shared+"/link", unix.RENAME_EXCHANGE)
			}
		}
	})
	defer func() { close(stop); swapping.Wait() }()
	box, boxConfig := n.sandbox()
	for range 25 {
		config := sh("true")
		config.Mounts = []*runtimeapi.Mount{
			{ContainerPath: "/shared", HostPath: shared},
			{ContainerPath: "/shared/swapped/made/deep", HostPath: inner},
			{ContainerPath: "/shared/swapped/there/made", HostPath: inner},
			{ContainerPath: "/shared/swapped/file", HostPath: inner + "/file"},
			{ContainerPath: "/shared/swapped/canary", HostPath: inner + "/file"},
		}
		id, err := n.CreateContainer(ctx, box, config, boxConfig)
		must(t, err)
		// It may fail: what it asks for is not there all the time.
		if err := n.StartContainer(ctx, id); err == nil {
			n.ended(id)
		}
		must(t, n.RemoveContainer(ctx, id))
		if target, err := os.Readlink(canary); err != nil || target != "/vk-no-such/target" {
			t.Fatalf("a link outside of the volume was removed: %q, %v", target, err)
		}
		if made := namesIn(t, outside, outside+"/there"); len(made) != 2 {
			t.Fatalf("outside of the volume there is %q", made)
		}
	}
}

// namesIn are the names of what is in directories.
func namesIn(t *testing.T, dirs ...string) []string {
	t.Helper()
	var all []string
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		must(t, err)
		for _, e := range entries {
			all = append(all, e.Name())
		}
	}
	return all
}

// attack runs a script in a pod of its own, and returns all that it has written.
func (n *node) attack(config *runtimeapi.ContainerConfig) string {
	n.t.Helper()
	id := n.start(config)
	n.ended(id)
	out, errOut := n.logs(id)
	return out + errOut
}

// Each pod has a user of its own, its containers share it, and it keeps it across
// restarts of the runtime and new sandboxes.
func TestEachPodHasAUserAsRoot(t *testing.T) {
	asRoot(t)
	each(t, func(t *testing.T, n *node) {
		boxConfig := sandboxConfig(filepath.Dir(n.cfg.Root))
		who := func(box string) string {
			id, err := n.CreateContainer(ctx, box, sh("id -u"), boxConfig)
			must(t, err)
			must(t, n.StartContainer(ctx, id))
			n.ended(id)
			out, _ := n.logs(id)
			return out
		}
		n.volumeOf(boxConfig.Metadata.Uid)
		box, err := n.RunPodSandbox(ctx, boxConfig, "")
		must(t, err)
		first := who(box)
		seen := map[string]bool{first: true}
		for range 5 {
			other := n.attack(sh("id -u"))
			if seen[other] {
				t.Errorf("two pods have the user %s", other)
			}
			seen[other] = true
		}
		n.reopen()
		if got := who(box); got != first {
			t.Errorf("after a restart the pod's user is %s, and was %s", got, first)
		}
		must(t, n.RemovePodSandbox(ctx, box))
		n.reopen()
		boxConfig.Metadata.Attempt++
		box, err = n.RunPodSandbox(ctx, boxConfig, "")
		must(t, err)
		if got := who(box); got != first {
			t.Errorf("in a new sandbox the pod's user is %s, and was %s", got, first)
		}
	})
}

// The range may run out, and what is free again is given again.
func TestPodUsersAreUsedAgainAsRoot(t *testing.T) {
	asRoot(t)
	n := newNode(t, func(c *runtime.Config) { c.PodUsers = "2000100000-2000100002" })
	first, _ := n.sandbox()
	n.sandbox()
	if _, err := n.RunPodSandbox(ctx, sandboxConfig(n.cfg.Root), ""); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "podUsers") {
		t.Errorf("a third pod of two users: %v", err)
	}
	must(t, n.RemovePodSandbox(ctx, first))
	n.sandbox()
	// No configuration gives one pod's user to another.
	wide := newNode(t, func(c *runtime.Config) { c.Users, c.Groups = []string{"0-4294967294"}, []string{"0-4294967294"} })
	box, _ := wide.sandbox()
	for _, sc := range []*runtimeapi.LinuxContainerSecurityContext{
		{RunAsUser: number(2000000001)}, {SupplementalGroups: []int64{2000000001}}, {RunAsUser: number(1), RunAsGroup: number(2000000001)},
	} {
		if _, err := wide.CreateContainer(ctx, box, secured(sc), nil); status.Code(err) != codes.PermissionDenied {
			t.Errorf("the user of another pod: %v", err)
		}
	}
	// What images name stands for the pod's own user, which callers of the CRI ask for.
	spec := &runtimeapi.ImageSpec{Image: "example.com/shell:1"}
	if _, err := wide.PullImage(ctx, spec, nil, nil); err != nil {
		t.Fatal(err)
	}
	image, err := wide.ImageStatus(ctx, spec, false)
	must(t, err)
	usual := &runtimeapi.LinuxContainerSecurityContext{RunAsUser: image.GetImage().GetUid()}
	if _, err := wide.CreateContainer(ctx, box, secured(usual), nil); err != nil {
		t.Errorf("the user that images name: %v", err)
	}
}

// A pod can read its own volumes, also as root that may not mount anything, and no
// other pod can.
func TestVolumesAreOfTheirPodAsRoot(t *testing.T) {
	asRoot(t)
	each(t, func(t *testing.T, n *node) {
		owner := sandboxConfig(filepath.Dir(n.cfg.Root))
		dir := n.volumeOf(owner.Metadata.Uid)
		must(t, os.WriteFile(filepath.Join(dir, "file"), []byte("of the pod\n"), 0o644))
		box, err := n.RunPodSandbox(ctx, owner, "")
		must(t, err)
		config := sh("cat ${VIRTUAL_KUBELET_MOUNTS}/data/file; echo more > ${VIRTUAL_KUBELET_MOUNTS}/data/own; cat ${VIRTUAL_KUBELET_MOUNTS}/data/own; exec sleep 1000")
		config.Mounts = []*runtimeapi.Mount{{ContainerPath: "/data", HostPath: dir}}
		id, err := n.CreateContainer(ctx, box, config, owner)
		must(t, err)
		must(t, n.StartContainer(ctx, id))
		if got := n.waitLog(id, "more"); got != "of the pod\nmore\n" {
			t.Errorf("the pod reads %q", got)
		}
		script := fmt.Sprintf("cat %s/file; ls %s; ls -A %s/*; echo x > %s/hostile", dir, n.cfg.Root, filepath.Join(n.cfg.Root, "containers"), dir)
		got := n.attack(sh(script))
		if strings.Contains(got, "of the pod") || strings.Contains(got, id) {
			t.Errorf("another pod reads %q", got)
		}
		if _, err := os.Stat(dir + "/hostile"); err == nil {
			t.Error("another pod writes there")
		}
	})
}

// What a pod has to itself with namespaces, and what it cannot do.
func TestHostilePodAsRoot(t *testing.T) {
	asRoot(t)
	state := stateDir(t)
	n := newNode(t, func(c *runtime.Config) {
		c.Root, c.Users = filepath.Join(state, "runtime"), []string{"0"} // even root sees nothing
	})
	victim := n.start(sh("echo private content > /tmp/secret; exec sleep 1001"))
	n.waitProcess(victim)
	pid := n.started(victim).PID
	tmp := filepath.Join(n.cfg.Root, "containers", victim, "tmp", "secret")
	if data, err := os.ReadFile(tmp); err != nil || string(data) != "private content\n" {
		t.Fatalf("the victim's /tmp has %q, %v", data, err)
	}
	for name, test := range map[string]struct{ script, not string }{
		"the runtime's state":   {"ls -A " + filepath.Join(state, "runtime"), "containers"},
		"another's /tmp":        {"cat " + tmp + " /proc/1/root" + tmp, "private content"},
		"control groups":        {"ls -R /sys/fs/cgroup; cat /proc/self/cgroup", victim},
		"cgroup writes":         {"for f in $(find /sys/fs/cgroup -name cgroup.procs); do echo 1 > $f && echo written; done", "written\n"},
		"signals":               {fmt.Sprintf("kill -9 %d && echo killed", pid), "killed"},
		"processes":             {"cat /proc/[0-9]*/cmdline", "sleep\x001001"},
		"setuid":                {"su -c id; grep NoNewPrivs:.0 /proc/self/status", "uid=0"},
		"mounts":                {"mount -t tmpfs none /tmp && echo mounted", "mounted\n"},
		"namespaces":            {"unshare -Ur id", "uid=0"},
		"terminals of others":   {"ls /dev/pts | grep -v ptmx | grep . && echo seen", "seen"},
		"the machine's journal": {"dmesg | head -1 | grep . && echo seen", "seen"},
	} {
		root := secured(&runtimeapi.LinuxContainerSecurityContext{RunAsUser: number(0)})
		root.Command = []string{"sh", "-c", test.script}
		configs := map[string]*runtimeapi.ContainerConfig{"": sh(test.script), " as root": root}
		if test.not == "uid=0" {
			delete(configs, " as root") // it is
		}
		for who, config := range configs {
			if got := n.attack(config); strings.Contains(got, test.not) {
				t.Errorf("%s%s: %q", name, who, got)
			}
		}
	}
	if !alive(pid) {
		t.Error("the victim is dead")
	}
	status := n.attack(sh("grep -E '^(NoNewPrivs|Seccomp|CapEff):' /proc/self/status"))
	for _, want := range []string{"NoNewPrivs:\t1", "Seccomp:\t2", "CapEff:\t0000000000000000"} {
		if !strings.Contains(status, want) {
			t.Errorf("%q, want %q", status, want)
		}
	}
}

// stateDir is a directory for state in a place where it usually is: not one of those
// that each container has to itself.
func stateDir(t *testing.T) string {
	t.Helper()
	state, err := os.MkdirTemp("/var/lib", "vk-process-")
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(state)) })
	must(t, os.Chmod(state, 0o711))
	return state
}

// waitProcess waits until a container's command has been running for a moment.
func (n *node) waitProcess(id string) {
	n.t.Helper()
	eventually(n.t, "the command", func() bool {
		data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", n.started(id).PID))
		return strings.HasPrefix(string(data), "sleep")
	})
}

// System V shared memory of the machine, and of other pods, is not there.
func TestHostileSharedMemoryAsRoot(t *testing.T) {
	asRoot(t)
	n := newNode(t)
	key := 0x766b0000 + os.Getpid()%0xffff
	id, err := unix.SysvShmGet(key, 4096, unix.IPC_CREAT|0o666)
	must(t, err)
	defer func() { _, _ = unix.SysvShmCtl(id, unix.IPC_RMID, nil) }()
	if got := n.attack(n.helper("shm", fmt.Sprint(key))); got != "no such file or directory\n" {
		t.Errorf("shared memory of the machine: %q", got)
	}
}

// No file that virtual-kubelet was started with reaches a pod, nor its keyring.
func TestHostileInheritanceAsRoot(t *testing.T) {
	asRoot(t)
	secret, err := os.CreateTemp(tempDir(t), "secret")
	must(t, err)
	defer func() { _ = secret.Close() }()
	fd, err := unix.Dup(int(secret.Fd())) // which is open in all that this process starts
	must(t, err)
	defer func() { _ = unix.Close(fd) }()
	for _, isolation := range isolations() {
		n := newNode(t, func(c *runtime.Config) { c.Isolation, c.AllowUnconfined = isolation, true })
		id := n.start(sh("ls -l /proc/self/fd; exec sleep 1000"))
		if got := n.waitLog(id, "->"); strings.Contains(got, "secret") {
			t.Errorf("%s: a pod has %q", isolation, got)
		}
		links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", n.started(id).ShimPID))
		must(t, err)
		for _, link := range links {
			if target, _ := os.Readlink(link); strings.Contains(target, "secret") {
				t.Errorf("%s: the shim holds on to %s", isolation, target)
			}
		}
		own, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_SESSION_KEYRING, false)
		if err != nil {
			continue // there are none
		}
		if got := n.attack(n.helper("keyring")); got == fmt.Sprintln(own) {
			t.Errorf("%s: a pod has our session keyring", isolation)
		}
	}
}

// A fork bomb stops at its limit.
func TestHostileForkBombAsRoot(t *testing.T) {
	asRoot(t)
	n := newNode(t, func(c *runtime.Config) { c.MaxProcesses = 30 })
	if _, err := os.Stat("/sys/fs/cgroup/pids" + n.cfg.CgroupParent); err != nil {
		data, err := os.ReadFile("/sys/fs/cgroup" + n.cfg.CgroupParent + "/cgroup.subtree_control")
		if err != nil || !strings.Contains(string(data), "pids") {
			t.Fatalf("no control group counts processes here (%v): run this test where some do, as CI does", err)
		}
	}
	got := n.attack(sh("for i in $(seq 100); do sleep 1000 & done 2>&1; set -- $(jobs -p); echo $#"))
	if !strings.Contains(got, "fork") {
		t.Errorf("it can start as many processes as it likes: %q", got)
	}
}

// Pods that do not ask for the machine's network are refused, unless the operator
// gives it to all.
func TestHostNetworkIsAskedFor(t *testing.T) {
	n := newNode(t, func(c *runtime.Config) { c.SharedNetwork = false })
	config := sandboxConfig(n.cfg.Root)
	_, err := n.RunPodSandbox(ctx, config, "")
	if status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "hostNetwork") || !strings.Contains(err.Error(), "sharedNetwork") {
		t.Errorf("%v", err)
	}
	context := &runtimeapi.LinuxSandboxSecurityContext{NamespaceOptions: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE}}
	config.Linux = &runtimeapi.LinuxPodSandboxConfig{SecurityContext: context}
	_, err = n.RunPodSandbox(ctx, config, "")
	must(t, err)
	context.NamespaceOptions.Ipc = runtimeapi.NamespaceMode_NODE
	config.Metadata.Attempt++
	if _, err := n.RunPodSandbox(ctx, config, ""); status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "allowHostIPC") {
		t.Errorf("hostIPC: %v", err)
	}
}

// A link that replaces an allowed path, after it was allowed, is not followed.
func TestHostileSwapOfAHostPathAsRoot(t *testing.T) {
	asRoot(t)
	allowed := tempDir(t)
	n := newNode(t, func(c *runtime.Config) { c.HostPaths = []string{allowed} })
	secret := tempDir(t)
	must(t, os.WriteFile(secret+"/file", []byte("secret"), 0o644))
	must(t, os.Mkdir(allowed+"/dir", 0o755))
	config := sh("cat /data/file")
	config.Mounts = []*runtimeapi.Mount{{ContainerPath: "/data", HostPath: allowed + "/dir"}}
	id := n.create(config)
	must(t, os.Remove(allowed+"/dir"))
	must(t, os.Symlink(secret, allowed+"/dir"))
	if err := n.StartContainer(ctx, id); err == nil || !strings.Contains(err.Error(), "has become a link") {
		t.Errorf("%v", err)
	}
}

// A link in an allowed path that pods may write to leads to no volume of another pod.
func TestHostileLinkToAVolumeOfAnotherPod(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		box, boxConfig := n.sandbox()
		for name, test := range map[string]struct {
			target string
			want   codes.Code
		}{
			"own":     {n.volumeOf(boxConfig.Metadata.Uid), codes.OK},
			"another": {n.volumeOf("victim"), codes.PermissionDenied},
			"similar": {n.volumeOf(boxConfig.Metadata.Uid + "-2"), codes.PermissionDenied},
			"all":     {n.cfg.VolumeDirs[0], codes.PermissionDenied},
		} {
			config := sh("true")
			config.Mounts = []*runtimeapi.Mount{{ContainerPath: "/data", HostPath: filepath.Join(n.volume(), name)}}
			must(t, os.Symlink(test.target, config.Mounts[0].HostPath))
			if _, err := n.CreateContainer(ctx, box, config, boxConfig); status.Code(err) != test.want {
				t.Errorf("%s: %v, want %s", name, err, test.want)
			}
		}
	})
}

// helper is a container that runs this program as a helper.
func (n *node) helper(args ...string) *runtimeapi.ContainerConfig {
	n.t.Helper()
	dir := n.volume()
	program := filepath.Join(dir, "helper")
	self, err := os.Executable()
	must(n.t, err)
	if out, err := exec.Command("cp", self, program).CombinedOutput(); err != nil {
		n.t.Fatalf("%v: %s", err, out)
	}
	must(n.t, os.Chmod(program, 0o755))
	config := containerConfig(append([]string{n.mounted(dir, "/helper") + "/helper", "helper"}, args...)...)
	config.Mounts = []*runtimeapi.Mount{{ContainerPath: "/helper", HostPath: dir, Readonly: true}}
	return config
}

// A pod that sees processes of the machine can neither trace nor signal nor read
// virtual-kubelet, shims and other pods, also as root of a container.
func TestHostileTracingAsRoot(t *testing.T) {
	asRoot(t)
	for _, isolation := range isolations() {
		t.Run(isolation, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, func(c *runtime.Config) { c.Isolation, c.SharedPIDs, c.Users = isolation, true, []string{"0"} })
			victim := n.start(sh("exec sleep 1002"))
			n.waitProcess(victim)
			started := n.started(victim)
			pids := []string{strconv.Itoa(started.PID), strconv.Itoa(started.ShimPID), strconv.Itoa(os.Getpid()), "1"}
			if got := n.attack(n.helper(append([]string{"attack-processes"}, pids...)...)); got != "" {
				t.Errorf("a pod can do to others (%v): %s", pids, got)
			}
			// Root of a container may signal what is root's: it has to be allowed by
			// the operator, and has CAP_KILL unless it is dropped.
			root := n.helper(append([]string{"attack-processes"}, pids...)...)
			root.Linux = &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
				RunAsUser: number(0), Capabilities: &runtimeapi.Capability{DropCapabilities: []string{"KILL"}},
				NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER},
			}}
			for line := range strings.Lines(n.attack(root)) {
				if !strings.HasPrefix(line, "signals") && !strings.HasPrefix(line, "reads the limits") || strings.HasSuffix(line, " "+pids[0]+"\n") {
					t.Errorf("root of a container: %s", line)
				}
			}
			if !alive(started.PID) || !alive(started.ShimPID) {
				t.Error("the victim is dead")
			}
		})
	}
}

// A pod reaches no socket of another pod, of the shims and of virtual-kubelet that
// has a path. Sockets with abstract names are of the network, which is the machine's:
// those it does reach, as it does ports on the loopback address.
func TestHostileSocketsAsRoot(t *testing.T) {
	asRoot(t)
	for _, isolation := range isolations() {
		t.Run(isolation, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, func(c *runtime.Config) { c.Isolation, c.SharedPIDs = isolation, true })
			name := fmt.Sprintf("vk-test-%d-%d", os.Getpid(), names.Add(1))
			boxConfig := sandboxConfig(filepath.Dir(n.cfg.Root))
			volume := n.volumeOf(boxConfig.Metadata.Uid)
			inVolume := filepath.Join(n.mounted(volume, "/data"), name)
			box, err := n.RunPodSandbox(ctx, boxConfig, "")
			must(t, err)
			config := n.helper("listen-unix", inVolume, "/tmp/"+name, "/var/tmp/"+name, "@"+name)
			config.Mounts = append(config.Mounts, &runtimeapi.Mount{ContainerPath: "/data", HostPath: volume})
			victim := n.in(box, config)
			n.waitLog(victim, "listening")
			for _, dir := range []string{"/tmp/", "/var/tmp/"} {
				t.Cleanup(func() { _ = os.Remove(dir + name) }) // of the machine, without namespaces
			}
			root := fmt.Sprintf("/proc/%d/root", n.started(victim).PID)
			targets := []string{
				filepath.Join(volume, name), "/data/" + name, "/tmp/" + name, "/var/tmp/" + name, root + "/tmp/" + name, root + "/data/" + name,
				filepath.Join(n.cfg.Root, "containers", victim, "shim.sock"), root + filepath.Join(n.cfg.Root, "containers", victim, "shim.sock"), "@" + name,
			}
			got := n.attack(n.helper(append([]string{"dial-unix"}, targets...)...))
			if want := "connected to @" + name + "\n"; got != want {
				t.Errorf("a pod is %q, want only %q", got, want)
			}
		})
	}
}

// A pod that makes terminals leaves enough of them for others.
func TestHostileTerminalsRunOutAsRoot(t *testing.T) {
	asRoot(t)
	n := newNode(t, func(c *runtime.Config) {
		c.Isolation, c.Rlimits = runtime.IsolationNamespaces, map[string]runtime.Rlimit{"nofile": {Soft: 2000, Hard: 2000}}
	})
	got := n.attack(n.helper("terminals"))
	if count, err := strconv.Atoi(strings.TrimSpace(got)); err != nil || count < 50 || count > 300 {
		t.Errorf("a container can make %q terminals", got)
	}
}
