//go:build containers

package crash

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubelettypes "k8s.io/kubelet/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/test/containerd"
)

// With the relay nothing is broken off, so no container runs more often than it should,
// and nothing is left.
func TestCRI(t *testing.T) { testCrashes(t, newCRI(t, true), usual()) }

// Without the relay, as is the default, containerd 1.6 breaks off the calls of an agent
// that is killed. A start that was broken off shows as a failed run, and containerd keeps
// what it has lost track of: see brokenOff and endLost. Apart from that all holds.
func TestCRIWithoutRelay(t *testing.T) {
	if !*withoutRelay {
		t.Skip("give -crash.without-relay: what containerd makes of broken calls is a matter of luck")
	}
	testCrashes(t, newCRI(t, false), usual())
}

// criMachine is a containerd of the test's own.
type criMachine struct {
	footprint
	relay      bool
	containerd *containerd.Containerd
	log        string // containerd's
	conn       *grpc.ClientConn
	runtime    runtimeapi.RuntimeServiceClient
}

func newCRI(t *testing.T, relay bool) *criMachine {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	log := filepath.Join(t.ArtifactDir(), "containerd.log")
	c, err := containerd.Start(ctx, containerd.Options{
		Binary:       filepath.Join(bin, "containerd-up"),
		SandboxImage: "localhost/pause:latest",
		Images:       []string{filepath.Join(bin, "conformance", "images.tar")},
		LogFile:      log,
		Log:          t.Output(),
	})
	must(t, err)
	t.Cleanup(func() { must(t, c.Stop()) })
	conn, err := grpc.NewClient(c.Endpoint(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return &criMachine{
		footprint: footprintIn(t, filepath.Join(c.Dir(), "node")), relay: relay,
		containerd: c, log: log, conn: conn, runtime: runtimeapi.NewRuntimeServiceClient(conn),
	}
}

func (*criMachine) provider() string { return "cri" }

func (m *criMachine) config() any {
	return map[string]any{
		"endpoint": m.containerd.Endpoint(), "root": m.root, "logRoot": filepath.Join(m.root, "logs"), "cgroupParent": m.cgroup,
		"relay":        m.relay,
		"evictionHard": map[string]string{}, "imageGCHighThresholdPercent": 100, // regardless of the free space of the machine's disk
		"hostPaths": []string{os.TempDir()}, "cpu": "100", "memory": "100Gi",
	}
}

// image is one with a shell.
func (m *criMachine) image(t *testing.T) string {
	t.Helper()
	list, err := runtimeapi.NewImageServiceClient(m.conn).ListImages(t.Context(), &runtimeapi.ListImagesRequest{})
	must(t, err)
	for _, i := range list.Images {
		for _, tag := range i.RepoTags {
			if strings.Contains(tag, "/busybox:") {
				return tag
			}
		}
	}
	t.Fatalf("there is no busybox in %v: run \"make images\"", list.Images)
	return ""
}

func (m *criMachine) running(ctx context.Context) (map[container]sets.Set[string], error) {
	list, err := m.runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
		State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
	}})
	if err != nil {
		return nil, err
	}
	found := map[container]sets.Set[string]{}
	for _, c := range list.Containers {
		key := container{types.UID(kubelettypes.GetPodUID(c.Labels)), kubelettypes.GetContainerName(c.Labels)}
		if found[key] == nil {
			found[key] = sets.New[string]()
		}
		found[key].Insert(c.Id)
	}
	return found, nil
}

// brokenOff are containers of which containerd says that it gave up their start in the
// second of two steps, which runs the command. With a relay nobody asks: none is.
func (m *criMachine) brokenOff(ctx context.Context) (map[string]container, error) {
	if m.relay {
		return nil, nil
	}
	list, err := m.runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
		State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_EXITED},
	}})
	if err != nil {
		return nil, err
	}
	found := map[string]container{}
	for _, c := range list.Containers {
		response, err := m.runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.Id})
		if status.Code(err) == codes.NotFound {
			continue
		}
		if err != nil {
			return nil, err
		}
		s := response.Status
		if s.Reason == "StartError" && strings.HasPrefix(s.Message, "failed to start containerd task") && strings.Contains(s.Message, context.Canceled.Error()) {
			found[c.Id] = container{types.UID(kubelettypes.GetPodUID(c.Labels)), kubelettypes.GetContainerName(c.Labels)}
		}
	}
	return found, nil
}

func (m *criMachine) left(t *testing.T) []string {
	t.Helper()
	left := m.footprint.left(t)
	boxes, err := m.runtime.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{})
	must(t, err)
	for _, box := range boxes.Items {
		left = append(left, "sandbox "+box.String())
	}
	containers, err := m.runtime.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{})
	must(t, err)
	for _, c := range containers.Containers {
		left = append(left, "container "+c.String())
	}
	if !m.relay {
		m.endLost(t, containers.Containers)
	}
	return append(left, m.leftInContainerd(t)...)
}

// endLost ends, as an operator has to, the tasks that containerd has lost track of: by the
// CRI the container has ended, by containerd itself its task still runs, so that no client
// of the CRI can remove it ("cannot delete running task").
func (m *criMachine) endLost(t *testing.T, containers []*runtimeapi.Container) {
	t.Helper()
	tasks := m.ctr(t, "tasks", "list", "-q")
	for _, c := range containers {
		if c.State == runtimeapi.ContainerState_CONTAINER_EXITED && slices.Contains(tasks, c.Id) {
			out, err := m.ctrCommand(t, "tasks", "delete", "--force", c.Id).CombinedOutput()
			t.Logf("containerd had lost track of container %s; ending its task: %v %s", c.Id, err, out)
		}
	}
}

// forgotten reports whether containerd has given a shim up: 1.6 leaves the process of
// one behind if the caller goes away just when the shim begins.
func (m *criMachine) forgotten(t *testing.T, command string) bool {
	t.Helper()
	log, err := os.ReadFile(m.log)
	must(t, err)
	_, rest, _ := strings.Cut(command, "-id ")
	id, _, ok := strings.Cut(rest, " ")
	return ok && strings.Contains(string(log), `msg="shim disconnected" id=`+id)
}

// ctr returns the words that containerd's own client prints.
func (m *criMachine) ctr(t *testing.T, args ...string) []string {
	t.Helper()
	cmd := m.ctrCommand(t, args...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", cmd, err, out)
	}
	return strings.Fields(string(out))
}

func (m *criMachine) ctrCommand(t *testing.T, args ...string) *exec.Cmd {
	socket := strings.TrimPrefix(m.containerd.Endpoint(), "unix://")
	return exec.CommandContext(t.Context(), "ctr", append([]string{"-a", socket, "-n", "k8s.io"}, args...)...)
}

// leftInContainerd is what the CRI does not show.
func (m *criMachine) leftInContainerd(t *testing.T) []string {
	t.Helper()
	var left []string
	for _, kind := range []string{"containers", "tasks", "leases"} {
		for _, name := range m.ctr(t, kind, "list", "-q") {
			left = append(left, "containerd's "+kind+" "+name)
		}
	}
	dir := m.containerd.Dir()
	for _, command := range processesWith(t, dir, "containerd-shim") {
		if m.relay || !m.forgotten(t, command) {
			left = append(left, "shim "+command)
		}
	}
	if relays := processesWith(t, dir, "vk-cri-relay"); len(relays) > 1 { // the agent's own is one
		left = append(left, fmt.Sprintf("relays %v", relays))
	}
	addresses, _ := filepath.Glob(filepath.Join(dir, "ipam", "*", "*"))
	for _, path := range addresses {
		if _, err := netip.ParseAddr(filepath.Base(path)); err == nil {
			left = append(left, "address "+filepath.Base(path))
		}
	}
	namespaces, _ := filepath.Glob(filepath.Join(dir, "state", "io.containerd.grpc.v1.cri", "netns", "*"))
	for _, path := range namespaces {
		left = append(left, "network namespace "+path)
	}
	ports, _ := filepath.Glob(filepath.Join("/sys/class/net", m.bridge(t), "brif", "*"))
	for _, port := range ports {
		left = append(left, "interface "+filepath.Base(port))
	}
	return left
}

// bridge is the network interface that the pods' are connected to.
func (m *criMachine) bridge(t *testing.T) string {
	t.Helper()
	interfaces, err := net.Interfaces()
	must(t, err)
	for _, i := range interfaces {
		addresses, _ := i.Addrs() // it may be gone
		for _, address := range addresses {
			if strings.HasPrefix(address.String(), m.containerd.Gateway()+"/") {
				return i.Name
			}
		}
	}
	t.Fatal(fmt.Errorf("no interface has the address %s", m.containerd.Gateway()))
	return ""
}
