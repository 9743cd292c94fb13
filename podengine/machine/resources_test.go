package machine

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/podengine/eviction"
)

func quantities(cpu, memory, storage string) corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse(cpu),
		corev1.ResourceMemory:           resource.MustParse(memory),
		corev1.ResourceEphemeralStorage: resource.MustParse(storage),
	}
}

func TestAllocatable(t *testing.T) {
	capacity := quantities("4", "8Gi", "100Gi")
	for name, test := range map[string]struct {
		cfg  Config
		want corev1.ResourceList
	}{
		"defaults":     {Config{}, quantities("4", "8092Mi", "90Gi")},
		"no evictions": {Config{EvictionHard: map[string]string{}}, capacity},
		"reserved": {
			Config{EvictionHard: map[string]string{}, KubeReserved: quantities("500m", "1Gi", "0"), SystemReserved: quantities("250m", "512Mi", "10Gi")},
			quantities("3250m", "6656Mi", "90Gi"),
		},
		"the operator says what pods have": {Config{Memory: ptr.To(resource.MustParse("8Gi")), KubeReserved: quantities("0", "1Gi", "0")}, quantities("4", "7Gi", "90Gi")},
		"more than there is":               {Config{KubeReserved: quantities("5", "9Gi", "200Gi")}, quantities("0", "0", "0")},
	} {
		thresholds, err := eviction.Parse(test.cfg.EvictionHard)
		if err != nil {
			t.Fatal(err)
		}
		got := test.cfg.allocatable(capacity, thresholds)
		for resourceName, want := range test.want {
			if has := got[resourceName]; has.Cmp(want) != 0 {
				t.Errorf("%s: %s is %s, want %s", name, resourceName, &has, &want)
			}
		}
	}
	for says, bad := range map[string]Config{
		"kubeReserved":        {KubeReserved: corev1.ResourceList{"pods": resource.MustParse("1")}},
		"systemReserved":      {SystemReserved: corev1.ResourceList{"cpu": resource.MustParse("-1")}},
		"nodefs.available":    {EvictionHard: map[string]string{"nodefs.available": "lots"}},
		"evictionHard: \"x\"": {EvictionHard: map[string]string{"x": "1"}},
	} {
		if err := bad.Validate(); !errdefs.IsInvalidInput(err) || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v, want one that says %q", bad, err, says)
		}
	}
}

type imageFs struct {
	internalapi.ImageManagerService
	path string
}

func (f imageFs) ImageFsInfo(context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: []*runtimeapi.FilesystemUsage{{FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: f.path}}}}, nil
}

func TestLevels(t *testing.T) {
	observed, err := levels(t.TempDir(), imageFs{path: t.TempDir()})(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, signal := range []eviction.Signal{eviction.MemoryAvailable, eviction.PIDAvailable, eviction.NodeFsAvailable, eviction.ImageFsAvailable} {
		if level := observed[signal]; level.Available <= 0 || level.Capacity < level.Available {
			t.Errorf("%s: %+v", signal, level)
		}
	}
	if observed, err = levels("/no/such/directory", imageFs{})(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, known := observed[eviction.NodeFsAvailable]; known {
		t.Error("there is a level of what is not there")
	}
}

// Images have a file system of their own unless it is that of the state.
func TestImagesApart(t *testing.T) {
	for path, want := range map[string]bool{t.TempDir(): false, "/proc": true, "/no/such/directory": false} {
		if got := imagesApart(t.TempDir(), imageFs{path: path})(t.Context()); got != want {
			t.Errorf("%s: %t, want %t", path, got, want)
		}
	}
}

// A disk is one for all of its devices, also if somebody writes between two looks at it.
func TestDevicesOfOneDiskAreNotApart(t *testing.T) {
	disk := fileSystem{device: 1, bytes: eviction.Level{Available: 5 << 20, Capacity: 10 << 20}}
	written, other := disk, disk
	written.device, written.bytes.Available = 2, disk.bytes.Available-4096
	other.device, other.bytes.Capacity = 2, 20<<20
	twin := disk
	twin.device, twin.bytes.Available = 2, 1<<20
	if apart(disk, written) || !apart(disk, other) || !apart(disk, twin) {
		t.Errorf("one disk is apart: %t, two are: %t, and two as large as each other: %t", apart(disk, written), apart(disk, other), apart(disk, twin))
	}
}

// The node says what it is short of, and when that has changed last.
func TestPressureIsReported(t *testing.T) {
	source := &corev1.Node{}
	describe(source, Config{Root: t.TempDir(), Pods: ptr.To(resource.MustParse("1"))}, 1<<30, nil)
	before := source.DeepCopy()
	h := &host{source: source, pressure: conditions(nil, nil, metav1.NewTime(time.Now().Add(-time.Hour)))}
	var reported []*corev1.Node
	h.notifyWith(func(n *corev1.Node) { reported = append(reported, n) })
	if len(reported) > 0 {
		t.Errorf("the node was reported, though nothing has changed")
	}
	h.underPressure([]corev1.NodeConditionType{corev1.NodeDiskPressure})
	h.underPressure(nil)
	if len(reported) != 2 {
		t.Fatalf("the node was reported %d times", len(reported))
	}
	for i, want := range []string{"KubeletHasDiskPressure", "KubeletHasNoDiskPressure"} {
		for _, c := range reported[i].Status.Conditions {
			switch {
			case c.Type == corev1.NodeDiskPressure && (c.Reason != want || time.Since(c.LastTransitionTime.Time) > time.Minute):
				t.Errorf("report %d: %+v", i, c)
			case c.Type == corev1.NodeMemoryPressure && (c.Status != corev1.ConditionFalse || time.Since(c.LastTransitionTime.Time) < time.Minute):
				t.Errorf("report %d: %+v", i, c)
			}
		}
		if len(reported[i].Status.Conditions) != len(before.Status.Conditions) {
			t.Errorf("report %d has the conditions %v", i, reported[i].Status.Conditions)
		}
	}
	if _, ok := before.Status.Capacity[corev1.ResourceEphemeralStorage]; !ok {
		t.Error("the capacity has no ephemeral-storage")
	}
}
