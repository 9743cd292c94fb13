package podcgroup

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/fs2"

	"github.com/virtual-kubelet/virtual-kubelet/podspec"
)

// The machine's own control groups, with its file system.
func TestControlGroupsOfTheMachine(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test makes control groups: run it as root")
	}
	root := "vkpods-test-" + strings.ToLower(t.Name()) + "-" + filepath.Base(t.TempDir())
	if err := os.MkdirAll(memoryGroup(root), 0o755); err != nil {
		t.Fatalf("this machine has no control groups that can be written: %v", err)
	}
	g := New(Options{
		Root:   root,
		Driver: func(context.Context) (Driver, error) { return Cgroupfs, nil },
		Resources: func(*corev1.Pod) *runtimeapi.LinuxContainerResources {
			return &runtimeapi.LinuxContainerResources{CpuShares: 512, CpuQuota: 50_000, CpuPeriod: 100_000, MemoryLimitInBytes: 64 << 20}
		},
	})
	one, two := podOf(corev1.PodQOSBurstable), podOf(corev1.PodQOSBestEffort)
	two.UID = types.UID("two")
	for _, pod := range []*corev1.Pod{one, two, one} {
		if err := g.Set(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	file := "memory.limit_in_bytes"
	if cgroups.IsCgroup2UnifiedMode() {
		file = "memory.max"
	}
	limit, err := os.ReadFile(filepath.Join(memoryGroup(root), "burstable", "pod"+string(one.UID), file))
	if err != nil || strings.TrimSpace(string(limit)) != "67108864" {
		t.Errorf("the pod may use %q, %v", limit, err)
	}
	for _, pod := range []*corev1.Pod{one, two, one} {
		if err := g.Remove(t.Context(), pod.UID, podspec.QOSClass(pod)); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(memoryGroup(root)); !os.IsNotExist(err) {
		t.Errorf("%s is left behind: %v", memoryGroup(root), err)
	}
}

// A group is not limited to less memory than is used in it, of which some may be of no
// container: with version 2 the kernel would kill for that.
func TestMemoryInUseIsNotTaken(t *testing.T) {
	cgroups.TestMode = true // a directory will do
	defer func() { cgroups.TestMode = false }()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "memory.current"), []byte("700\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for memory, refused := range map[int64]bool{256: true, 700: true, 701: false, 0: false} {
		r := resourcesOf(limits{period: 1, memory: memory})
		if err := fs2.CheckMemoryUsage(dir, &r); (err != nil) != refused {
			t.Errorf("a limit of %d: %v", memory, err)
		}
	}
}

// Where the memory is in use, the group has the other resources all the same.
func TestOtherResourcesHoldWhereMemoryIsInUse(t *testing.T) {
	root := "vkpods-test-" + strings.ToLower(t.Name()) + "-" + filepath.Base(t.TempDir())
	wanted := &runtimeapi.LinuxContainerResources{CpuShares: 512, CpuQuota: 50_000, CpuPeriod: 100_000, MemoryLimitInBytes: 256 << 20}
	g := New(Options{
		Root:      root,
		Driver:    func(context.Context) (Driver, error) { return Cgroupfs, nil },
		Resources: func(*corev1.Pod) *runtimeapi.LinuxContainerResources { return wanted },
	})
	if err := os.MkdirAll(memoryGroup(root), 0o755); err != nil {
		t.Fatalf("this machine has no control groups that can be written: %v", err)
	}
	pod := podOf(corev1.PodQOSBurstable)
	set := func() error { return g.Set(t.Context(), pod) }
	if err := set(); err != nil {
		t.Fatal(err)
	}
	group := filepath.Join(root, "burstable", "pod"+string(pod.UID))
	user := exec.Command("sh", "-c", `read go; x=$(head -c 30000000 /dev/zero | tr '\0' x); echo; read go`)
	in, err := user.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := user.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := user.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = in.Close()
		_ = user.Wait()
		if err := g.Remove(t.Context(), pod.UID, corev1.PodQOSBurstable); err != nil {
			t.Error(err)
		}
	}()
	if err := os.WriteFile(filepath.Join(memoryGroup(group), "cgroup.procs"), strconv.AppendInt(nil, int64(user.Process.Pid), 10), 0o600); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(in)
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	wanted.MemoryLimitInBytes, wanted.CpuShares = 1<<20, 1024
	if err := set(); err == nil {
		t.Error("the group has less memory than is used in it")
	}
	file, want := filepath.Join("/sys/fs/cgroup/cpu", group, "cpu.shares"), "1024"
	if cgroups.IsCgroup2UnifiedMode() {
		file, want = filepath.Join(memoryGroup(group), "cpu.weight"), strconv.FormatUint(cgroups.ConvertCPUSharesToCgroupV2Value(1024), 10)
	}
	if text, err := os.ReadFile(file); err != nil || strings.TrimSpace(string(text)) != want {
		t.Errorf("the group's part of the CPU is %q, %v, want %s", text, err, want)
	}
}

func memoryGroup(name string) string {
	if cgroups.IsCgroup2UnifiedMode() {
		return filepath.Join("/sys/fs/cgroup", name)
	}
	return filepath.Join("/sys/fs/cgroup/memory", name)
}
