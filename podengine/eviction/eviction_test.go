package eviction

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

const mib = 1 << 20

func TestParse(t *testing.T) {
	if got, err := Parse(nil); err != nil || len(got) != 5 || got[NodeFsAvailable].Of(1000) != 100 || got[MemoryAvailable].Of(1<<40) != 100*mib {
		t.Errorf("the defaults are %v (%v)", got, err)
	}
	if got, err := Parse(map[string]string{}); err != nil || len(got) != 0 {
		t.Errorf("turned off they are %v (%v)", got, err)
	}
	if got, err := Parse(map[string]string{"pid.available": "1k", "nodefs.available": "2.5%"}); err != nil || got[PIDAvailable].Of(1) != 1000 || got[NodeFsAvailable].Of(1000) != 25 {
		t.Errorf("they are %v (%v)", got, err)
	}
	for name, value := range map[string]string{"cpu": "1", "memory.available": "much", "nodefs.available": "100%", "imagefs.available": "-1%", "pid.available": "-1"} {
		if _, err := Parse(map[string]string{name: value}); !errdefs.IsInvalidInput(err) {
			t.Errorf("%s=%s: %v", name, value, err)
		}
	}
}

func TestPressure(t *testing.T) {
	thresholds, begin := Defaults(), time.Now()
	plenty := Levels{MemoryAvailable: {200 * mib, 1000 * mib}, NodeFsAvailable: {10, 100}, ImageFsInodesFree: {5, 100}}
	if met := thresholds.Met(plenty); met != nil {
		t.Errorf("met are %v", met)
	}
	little := Levels{MemoryAvailable: {99 * mib, 1000 * mib}, NodeFsAvailable: {9, 100}, ImageFsInodesFree: {4, 100}, PIDAvailable: {0, 100}}
	met := thresholds.Met(little)
	if want := []Signal{MemoryAvailable, ImageFsInodesFree, NodeFsAvailable}; !slices.Equal(met, want) {
		t.Errorf("met are %v, want %v", met, want)
	}
	var p Pressure
	p.Observe(nil, begin)
	if held := p.Conditions(begin); held != nil {
		t.Errorf("held are %v", held)
	}
	p.Observe(met, begin)
	p.Observe([]Signal{NodeFsAvailable}, begin.Add(time.Minute))
	both := []corev1.NodeConditionType{corev1.NodeDiskPressure, corev1.NodeMemoryPressure}
	if held := p.Conditions(begin.Add(TransitionPeriod - 1)); !slices.Equal(held, both) {
		t.Errorf("held are %v", held)
	}
	if held := p.Conditions(begin.Add(TransitionPeriod)); !slices.Equal(held, both[:1]) {
		t.Errorf("held are %v", held)
	}
	if held := p.Conditions(begin.Add(TransitionPeriod + time.Minute)); held != nil {
		t.Errorf("held are %v", held)
	}
}

func limit(bytes string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceEphemeralStorage: resource.MustParse(bytes)}}
}

func TestExceeded(t *testing.T) {
	size := resource.MustParse("10Mi")
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		Volumes: []corev1.Volume{
			{Name: "small", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: &size}}},
			{Name: "free", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			{Name: "memory", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}},
		},
		Containers: []corev1.Container{{Name: "a", Resources: limit("20Mi")}, {Name: "b", Resources: limit("30Mi")}},
	}}
	for _, test := range []struct {
		usage Usage
		want  string
	}{
		{Usage{Volumes: map[string]int64{"small": 10 * mib, "free": 20 * mib}, Storage: map[string]int64{"a": 20 * mib}}, ""},
		{Usage{Volumes: map[string]int64{"small": 10*mib + 1}}, `Usage of EmptyDir volume "small" exceeds the limit "10Mi". `},
		{Usage{Volumes: map[string]int64{"free": 50*mib + 1}}, "Pod ephemeral local storage usage exceeds the total limit of containers 50Mi. "},
		{Usage{Other: 50*mib + 1}, "Pod ephemeral local storage usage exceeds the total limit of containers 50Mi. "},
		{Usage{Volumes: map[string]int64{"memory": 500 * mib}}, ""},
		{Usage{Storage: map[string]int64{"a": 20*mib + 1}}, `Container a exceeded its local ephemeral storage limit "20Mi". `},
	} {
		if got := Exceeded(pod, test.usage); got != test.want {
			t.Errorf("%+v: %q, want %q", test.usage, got, test.want)
		}
	}
	if !Limited(pod) || Limited(&corev1.Pod{Spec: corev1.PodSpec{Volumes: pod.Spec.Volumes[1:]}}) {
		t.Error("which pods have limits is wrong")
	}
}

func TestVictim(t *testing.T) {
	pods, used := []*corev1.Pod{}, map[string]Usage{}
	add := func(name, request string, priority int32, bytes int64) {
		pod := &corev1.Pod{Spec: corev1.PodSpec{Priority: &priority, Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(request), corev1.ResourceEphemeralStorage: resource.MustParse(request)},
		}}}}}
		pod.Name = name
		pods = append(pods, pod)
		used[name] = Usage{Memory: bytes, MemoryOf: map[string]int64{"c": bytes}, Storage: map[string]int64{"c": bytes}}
	}
	usage := func(p *corev1.Pod) Usage { return used[p.Name] }
	add("critical", "0", 2_000_000_000, 900*mib)
	for _, signal := range []Signal{MemoryAvailable, NodeFsAvailable, PIDAvailable} {
		if got := Victim(signal, pods, usage); got != nil {
			t.Errorf("%s: %s is evicted", signal, got.Name)
		}
	}
	for _, step := range []struct {
		name, request string
		priority      int32
		bytes         int64
		victim        string
	}{
		{"within its request", "100Mi", 0, 90 * mib, "within its request"},
		{"beyond it, but important", "10Mi", 10, 500 * mib, "beyond it, but important"},
		{"beyond it by little", "10Mi", 0, 20 * mib, "beyond it by little"},
		{"beyond it by more", "10Mi", 0, 30 * mib, "beyond it by more"},
	} {
		add(step.name, step.request, step.priority, step.bytes)
		for _, signal := range []Signal{MemoryAvailable, NodeFsAvailable} {
			if got := Victim(signal, pods, usage); got.Name != step.victim {
				t.Errorf("%s: %q is evicted, want %q", signal, got.Name, step.victim)
			}
		}
	}
	unmeasured := used["within its request"]
	unmeasured.Unmeasured = true
	used["within its request"] = unmeasured
	for signal, victim := range map[Signal]string{MemoryAvailable: "beyond it by more", NodeFsAvailable: "within its request", ImageFsInodesFree: "within its request"} {
		if got := Victim(signal, pods, usage); got.Name != victim {
			t.Errorf("%s: with one that was never measured %q is evicted, want %q", signal, got.Name, victim)
		}
	}
	got := Message(MemoryAvailable, Defaults()[MemoryAvailable], Level{50 * mib, 1000 * mib}, pods[4], usage(pods[4]))
	if want := "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. Container c was using 30Mi, request is 10Mi, has larger consumption of memory. "; got != want {
		t.Errorf("the message is %q, want %q", got, want)
	}
	got = Message(NodeFsAvailable, Defaults()[NodeFsAvailable], Level{50 * mib, 1000 * mib}, pods[1], usage(pods[1]))
	if want := "The node was low on resource: ephemeral-storage. Threshold quantity: 100Mi, available: 50Mi. "; got != want {
		t.Errorf("the message is %q, want %q", got, want)
	}
}
