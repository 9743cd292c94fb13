package podcgroup

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/virtual-kubelet/virtual-kubelet/podspec"
)

const uid = types.UID("0a1b-2c3d")

// Both drivers get the levels that a kubelet sends, in their own form.
func TestParents(t *testing.T) {
	for _, c := range []struct {
		root       string
		driver     Driver
		class      corev1.PodQOSClass
		wantParent string
	}{
		{"/vkpods", Cgroupfs, corev1.PodQOSGuaranteed, "/vkpods/pod0a1b-2c3d"},
		{"/vkpods", Cgroupfs, corev1.PodQOSBurstable, "/vkpods/burstable/pod0a1b-2c3d"},
		{"/vkpods", Cgroupfs, corev1.PodQOSBestEffort, "/vkpods/besteffort/pod0a1b-2c3d"},
		{"a/b/", Cgroupfs, corev1.PodQOSGuaranteed, "/a/b/pod0a1b-2c3d"},
		{"a-b.slice", Cgroupfs, corev1.PodQOSGuaranteed, "/a/b/pod0a1b-2c3d"},
		{"/vkpods", Systemd, corev1.PodQOSGuaranteed, "/vkpods.slice/vkpods-pod0a1b_2c3d.slice"},
		{"/vkpods", Systemd, corev1.PodQOSBurstable, "/vkpods.slice/vkpods-burstable.slice/vkpods-burstable-pod0a1b_2c3d.slice"},
		{"/my-pods", Systemd, corev1.PodQOSBestEffort, "/my_pods.slice/my_pods-besteffort.slice/my_pods-besteffort-pod0a1b_2c3d.slice"},
		{"a-b.slice", Systemd, corev1.PodQOSGuaranteed, "/a.slice/a-b.slice/a-b-pod0a1b_2c3d.slice"},
	} {
		g := newGroups(t, c.root, c.driver)
		if got, err := g.Parent(t.Context(), podOf(c.class)); got != c.wantParent || err != nil {
			t.Errorf("%s by %s, a pod that is %s: %s, %v, want %s", c.root, c.driver, c.class, got, err, c.wantParent)
		}
	}
}

func TestPodsAndClassesGetWhatTheyAskFor(t *testing.T) {
	g := newGroups(t, "/p", Cgroupfs)
	groups := g.system.(fakeSystem)
	burstable, other, guaranteed, idle := podOf(corev1.PodQOSBurstable), podOf(corev1.PodQOSBurstable), podOf(corev1.PodQOSGuaranteed), podOf(corev1.PodQOSBestEffort)
	other.UID = "other"
	for _, pod := range []*corev1.Pod{burstable, other, guaranteed, idle} {
		if err := g.Set(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	whole := limits{shares: 100, quota: 10, period: 20, memory: 30}
	want := fakeSystem{
		"/p/burstable": {shares: 200}, "/p/burstable/pod" + string(uid): whole, "/p/burstable/podother": whole,
		"/p/besteffort": {shares: 2}, "/p/besteffort/pod" + string(uid): whole, "/p/pod" + string(uid): whole, "/p": {},
	}
	if !reflect.DeepEqual(groups, want) {
		t.Errorf("there are %v, want %v", groups, want)
	}
	for i, pod := range []*corev1.Pod{other, idle, burstable, guaranteed, guaranteed} {
		if err := g.Remove(t.Context(), pod.UID, podspec.QOSClass(pod)); err != nil {
			t.Fatal(err)
		}
		if got := groups["/p/burstable"].shares; i == 0 && got != 100 {
			t.Errorf("with one pod less the class has %d shares", got)
		}
	}
	if len(groups) > 0 {
		t.Errorf("without pods there are %v", groups)
	}
}

// A runtime that is not up yet is asked again; one that has answered is not.
func TestDriverIsAskedUntilItIsKnown(t *testing.T) {
	asked := 0
	g := New(Options{Root: "/p", Driver: func(context.Context) (Driver, error) {
		if asked++; asked == 1 {
			return "", errors.New("not up")
		}
		return Systemd, nil
	}})
	if _, err := g.Parent(t.Context(), podOf(corev1.PodQOSGuaranteed)); err == nil || !strings.Contains(err.Error(), "not up") {
		t.Errorf("of a runtime that does not answer: %v", err)
	}
	for range 2 {
		if parent, err := g.Parent(t.Context(), podOf(corev1.PodQOSGuaranteed)); err != nil || !strings.HasSuffix(parent, ".slice") {
			t.Errorf("%s, %v", parent, err)
		}
	}
	if asked != 2 {
		t.Errorf("it was asked %d times", asked)
	}
}

func TestValidRoot(t *testing.T) {
	for text, want := range map[string]bool{"/pods": true, "a/b": true, "a-b.slice": true, "/": false, "": false, "/x/../..": false, "-.slice": false, "a--b.slice": false} {
		if err := ValidRoot(text); (err == nil) != want {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func newGroups(t *testing.T, root string, driver Driver) *Groups {
	t.Helper()
	g := New(Options{
		Root:   root,
		Driver: func(context.Context) (Driver, error) { return driver, nil },
		Resources: func(*corev1.Pod) *runtimeapi.LinuxContainerResources {
			return &runtimeapi.LinuxContainerResources{CpuShares: 100, CpuQuota: 10, CpuPeriod: 20, MemoryLimitInBytes: 30}
		},
	})
	g.system = fakeSystem{}
	return g
}

// podOf is a pod of a class.
func podOf(class corev1.PodQOSClass) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}, Spec: corev1.PodSpec{Containers: make([]corev1.Container, 1)}}
	some := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Gi")}
	switch resources := &pod.Spec.Containers[0].Resources; class {
	case corev1.PodQOSGuaranteed:
		resources.Requests, resources.Limits = some, some
	case corev1.PodQOSBurstable:
		resources.Requests = some
	}
	return pod
}

// fakeSystem has the groups that were made, by path.
type fakeSystem map[string]limits

func (f fakeSystem) set(driver Driver, group name, l limits) error {
	for i := range group {
		if _, ok := f[group[:i+1].path(driver)]; !ok {
			f[group[:i+1].path(driver)] = limits{}
		}
	}
	f[group.path(driver)] = l
	return nil
}

func (f fakeSystem) remove(driver Driver, group name) error {
	delete(f, group.path(driver))
	return nil
}

func (f fakeSystem) removeEmpty(driver Driver, group name) {
	for path := range f {
		if strings.HasPrefix(path, group.path(driver)+"/") {
			return
		}
	}
	delete(f, group.path(driver))
}
