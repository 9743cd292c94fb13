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
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubelettypes "k8s.io/kubelet/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/test/containerd"
)

func TestCRI(t *testing.T) { testCrashes(t, newCRI(t)) }

// criMachine is a containerd of the test's own.
type criMachine struct {
	footprint
	containerd *containerd.Containerd
	conn       *grpc.ClientConn
	runtime    runtimeapi.RuntimeServiceClient
}

func newCRI(t *testing.T) *criMachine {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c, err := containerd.Start(ctx, containerd.Options{
		Binary:       filepath.Join(bin, "containerd-up"),
		SandboxImage: "localhost/pause:latest",
		Images:       []string{filepath.Join(bin, "conformance", "images.tar")},
		LogFile:      filepath.Join(t.ArtifactDir(), "containerd.log"),
		Log:          t.Output(),
	})
	must(t, err)
	t.Cleanup(func() { must(t, c.Stop()) })
	conn, err := grpc.NewClient(c.Endpoint(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return &criMachine{footprintIn(t, filepath.Join(c.Dir(), "node")), c, conn, runtimeapi.NewRuntimeServiceClient(conn)}
}

func (*criMachine) provider() string { return "cri" }

func (m *criMachine) config() any {
	return map[string]any{
		"endpoint": m.containerd.Endpoint(), "root": m.root, "logRoot": filepath.Join(m.root, "logs"), "cgroupParent": m.cgroup,
		"relay":     true, // containerd 1.6 needs it
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
	return append(left, m.leftInContainerd(t)...)
}

// leftInContainerd is what the CRI does not show.
func (m *criMachine) leftInContainerd(t *testing.T) []string {
	t.Helper()
	var left []string
	for _, kind := range []string{"containers", "tasks", "leases"} {
		socket := strings.TrimPrefix(m.containerd.Endpoint(), "unix://")
		out, err := exec.CommandContext(t.Context(), "ctr", "-a", socket, "-n", "k8s.io", kind, "list", "-q").CombinedOutput()
		if err != nil {
			t.Fatalf("ctr %s list: %v: %s", kind, err, out)
		}
		for line := range strings.Lines(string(out)) {
			left = append(left, "containerd's "+kind+" "+line)
		}
	}
	dir := m.containerd.Dir()
	for _, command := range processesWith(t, dir, "containerd-shim") {
		left = append(left, "shim "+command)
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
