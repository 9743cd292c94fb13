//go:build containers

package containerd_test

import (
	"context"
	"encoding/json"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/virtual-kubelet/virtual-kubelet/test/containerd"
)

const (
	binary = "../../bin/containerd-up"
	images = "../../bin/conformance/images.tar"
	pause  = "localhost/pause:latest"
)

// cgroupParent is above the control groups of this test's containers.
var cgroupParent = "test-containerd-" + strconv.Itoa(os.Getpid())

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start starts a containerd that ends with the test.
func start(t *testing.T) *containerd.Containerd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	begin := time.Now()
	c, err := containerd.Start(ctx, containerd.Options{Binary: binary, SandboxImage: pause, Images: []string{images}, Log: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("started in %v", time.Since(begin))
	t.Cleanup(func() {
		begin := time.Now()
		if err := c.Stop(); err != nil && !strings.Contains(err.Error(), "killed") {
			t.Error(err)
		}
		t.Logf("stopped in %v", time.Since(begin))
	})
	return c
}

// startPod starts a pod with a port of the machine and a container. The port is
// one of the gateway, where nobody else listens: it is taken from any who does. It
// returns the id of the pod's sandbox.
func startPod(t *testing.T, endpoint, gateway string) string {
	t.Helper()
	conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	cri := runtimeapi.NewRuntimeServiceClient(conn)
	sandbox := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "pod", Namespace: "default", Uid: "uid"},
		PortMappings: []*runtimeapi.PortMapping{
			{Protocol: runtimeapi.Protocol_TCP, ContainerPort: 80, HostPort: 80, HostIp: gateway},
		},
		Linux: &runtimeapi.LinuxPodSandboxConfig{CgroupParent: "/" + cgroupParent},
	}
	pod, err := cri.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: sandbox})
	if err != nil {
		t.Fatal(err)
	}
	container, err := cri.CreateContainer(t.Context(), &runtimeapi.CreateContainerRequest{
		PodSandboxId:  pod.PodSandboxId,
		SandboxConfig: sandbox,
		Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "container"},
			Image:    &runtimeapi.ImageSpec{Image: pause},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cri.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: container.ContainerId}); err != nil {
		t.Fatal(err)
	}
	return pod.PodSandboxId
}

func TestStopLeavesNothing(t *testing.T) {
	c := start(t)
	m := tracesOf(t, c.Dir(), c.Gateway())
	m.sandbox = startPod(t, c.Endpoint(), c.Gateway())
	m.assertSeen(t)
	if err := c.Stop(); err != nil {
		t.Fatal(err)
	}
	m.assertGone(t)
}

func TestKilledSupervisorLeavesNothing(t *testing.T) {
	c := start(t)
	m := tracesOf(t, c.Dir(), c.Gateway())
	m.sandbox = startPod(t, c.Endpoint(), c.Gateway())
	killSupervisor(t, c.Dir())
	if err := c.Stop(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Fatalf("got %v, want an error that says: killed", err)
	}
	m.assertGone(t)
}

// TestBridgeGoesLast: its name is free for others then, and what is found by the
// name must not be one of them.
func TestBridgeGoesLast(t *testing.T) {
	c := start(t)
	m := tracesOf(t, c.Dir(), c.Gateway())
	m.sandbox = startPod(t, c.Endpoint(), c.Gateway())
	killSupervisor(t, c.Dir())
	for ; ; time.Sleep(time.Millisecond) {
		if _, err := net.InterfaceByIndex(m.bridge.Index); err != nil {
			break
		}
	}
	found := m.list(t)
	if left := slices.Concat(found["rule"], found["interface"]); len(left) > 0 {
		t.Errorf("these were left when the bridge's name was free:\n%s", strings.Join(left, "\n"))
	}
}

// TestNetworkGoesWithoutTheFolder: people remove directories.
func TestNetworkGoesWithoutTheDirectory(t *testing.T) {
	c := start(t)
	m := tracesOf(t, c.Dir(), c.Gateway())
	m.sandbox = startPod(t, c.Endpoint(), c.Gateway())
	if err := os.Remove(filepath.Join(c.Dir(), "network")); err != nil {
		t.Fatal(err)
	}
	if err := c.Stop(); err != nil {
		t.Fatal(err)
	}
	m.assertGone(t)
}

func TestDeadContainerdStopsAllAndIsNamed(t *testing.T) {
	c := start(t)
	m := tracesOf(t, c.Dir(), c.Gateway())
	m.sandbox = startPod(t, c.Endpoint(), c.Gateway())
	for pid, args := range programs(t) {
		if filepath.Base(args[0]) == "containerd" && slices.Contains(args, filepath.Join(c.Dir(), "config.toml")) {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := c.Stop(); err == nil || !strings.Contains(err.Error(), "containerd ended by itself (signal: killed)") {
		t.Fatalf("got %v, want an error that names containerd", err)
	}
	m.assertGone(t)
}

// TestKilledTestLeavesNothing starts the supervisor as Start does, from a
// process that is then killed.
func TestKilledTestLeavesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	parent := exec.Command("sleep", "1000") // stands for the test process
	parent.Stdout = w
	supervisor := exec.Command(binary, "up", "--dir", dir, "--sandbox-image", pause, "--image", images, "--stop-with-stdin")
	supervisor.Stdin, supervisor.Stderr = r, t.Output()
	stdout, err := supervisor.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	for _, cmd := range []*exec.Cmd{parent, supervisor} {
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
	}
	r.Close()
	w.Close() // the other process has the only write end now
	var ready struct{ Endpoint, Gateway string }
	if err := json.NewDecoder(stdout).Decode(&ready); err != nil {
		t.Fatalf("read the line that says: ready: %v", err)
	}
	m := tracesOf(t, dir, ready.Gateway)
	m.sandbox = startPod(t, ready.Endpoint, ready.Gateway)
	m.assertSeen(t)
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // says that it was killed
	_ = supervisor.Wait()
	if err := os.Remove(filepath.Dir(dir)); err != nil { // works on an empty directory only
		t.Fatal(err)
	}
	m.assertGone(t)
}

// What pods know of this machine stays true when others come.
func TestPodsDoNotChangeTheBridge(t *testing.T) {
	c := start(t)
	before := tracesOf(t, c.Dir(), c.Gateway()).bridge
	startPod(t, c.Endpoint(), c.Gateway())
	after, err := net.InterfaceByIndex(before.Index)
	if err != nil {
		t.Fatal(err)
	}
	if after.HardwareAddr.String() != before.HardwareAddr.String() {
		t.Errorf("the bridge has the address %s, and had %s", after.HardwareAddr, before.HardwareAddr)
	}
}

func TestTwoSideBySide(t *testing.T) {
	a, b := start(t), start(t)
	if a.Subnet() == b.Subnet() || a.Endpoint() == b.Endpoint() {
		t.Fatalf("both have %s at %s", a.Subnet(), a.Endpoint())
	}
	if err := b.Stop(); err != nil {
		t.Fatal(err)
	}
	startPod(t, a.Endpoint(), a.Gateway()) // the end of one is nothing to the other
}

func TestDirectoryInUseIsKept(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "mine")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := containerd.Start(t.Context(), containerd.Options{Binary: binary, SandboxImage: pause, Dir: dir})
	if err == nil || !strings.Contains(err.Error(), "is not empty") {
		t.Fatalf("got %v, want an error that says: is not empty", err)
	}
	if _, err := os.Stat(file); err != nil {
		t.Fatal(err)
	}
}

// traces lists what a containerd with a pod has on this machine. Other tests
// may run their own at the same time, and take the bridge's name when it is free.
type traces struct {
	dir     string
	bridge  net.Interface
	sandbox string // the pod's
}

func tracesOf(t *testing.T, dir, gateway string) traces {
	t.Helper()
	interfaces, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range interfaces {
		addresses, _ := i.Addrs() // it may be gone
		for _, address := range addresses {
			if strings.HasPrefix(address.String(), gateway+"/") {
				return traces{dir: dir, bridge: i}
			}
		}
	}
	t.Fatalf("no interface has the address %s", gateway)
	return traces{}
}

// list returns the traces by kind.
func (m traces) list(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	for pid, args := range programs(t) {
		groups, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cgroup"))
		if command := strings.Join(args, " "); strings.Contains(command, m.dir) || strings.Contains(string(groups), cgroupParent) {
			found["process"] = append(found["process"], command)
		}
	}
	if bridge, err := net.InterfaceByIndex(m.bridge.Index); err == nil {
		found["interface"] = append(found["interface"], bridge.Name)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	rules, err := exec.Command("iptables-save", "-t", "nat").Output()
	if err != nil {
		t.Fatal(err)
	}
	for kind, text := range map[string]struct{ lines, mark string }{
		"mount": {string(mounts), m.dir},
		"rule":  {string(rules), `id: \"` + m.sandbox + `\"`},
	} {
		for line := range strings.Lines(text.lines) {
			if strings.Contains(line, text.mark) {
				found[kind] = append(found[kind], line)
			}
		}
	}
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && strings.Contains(path, cgroupParent) {
			found["control group"] = append(found["control group"], path)
		}
		return nil // groups come and go
	})
	for _, pattern := range []string{m.dir, "/var/lib/cni/results/*-" + m.sandbox + "-*"} {
		paths, _ := filepath.Glob(pattern)
		found["file"] = append(found["file"], paths...)
	}
	return found
}

// assertSeen says that this test can see what a containerd with a pod makes.
func (m traces) assertSeen(t *testing.T) {
	t.Helper()
	found := m.list(t)
	for _, kind := range []string{"process", "interface", "mount", "rule", "control group", "file"} {
		if len(found[kind]) == 0 {
			t.Errorf("this test does not see a %s", kind)
		}
	}
}

// assertGone waits a little: the kernel removes interfaces and groups later.
func (m traces) assertGone(t *testing.T) {
	t.Helper()
	var left []string
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		left = nil
		for kind, things := range m.list(t) {
			for _, thing := range things {
				left = append(left, kind+" "+thing)
			}
		}
		if len(left) == 0 {
			return
		}
	}
	t.Errorf("left behind:\n%s", strings.Join(slices.Sorted(slices.Values(left)), "\n"))
}

// killSupervisor leaves all to the cleaner.
func killSupervisor(t *testing.T, dir string) {
	t.Helper()
	for pid, args := range programs(t) {
		if filepath.Base(args[0]) == "containerd-up" && args[1] == "up" && slices.Contains(args, dir) {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// programs returns the command lines of all processes.
func programs(t *testing.T) map[int][]string {
	t.Helper()
	found := map[int][]string{}
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		data, _ := os.ReadFile(path) // it may be gone
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if args := strings.Split(string(data), "\x00"); err == nil && args[0] != "" {
			found[pid] = args
		}
	}
	return found
}
