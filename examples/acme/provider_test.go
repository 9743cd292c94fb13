package main

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

func newTestProvider() *Provider {
	return &Provider{
		service: &Service{}, node: "acme", hostIPs: func() []string { return []string{"192.0.2.1"} },
		known: corev1listers.NewPodLister(cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})),
	}
}

func newTestPod(containers ...string) *corev1.Pod {
	grace := int64(30)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "1", DeletionGracePeriodSeconds: &grace}}
	for _, name := range containers {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: name, Image: "nginx", Env: []corev1.EnvVar{{Name: "COLOUR", Value: "blue"}}})
	}
	return pod
}

func TestLifeOfAPod(t *testing.T) {
	p, pod := newTestProvider(), newTestPod("main")
	if _, err := p.GetPod(t.Context(), "default", "web"); !errdefs.IsNotFound(err) {
		t.Errorf("before its creation: %v", err)
	}
	if err := p.CreatePod(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	status, err := p.GetPodStatus(t.Context(), "default", "web")
	if err != nil {
		t.Fatal(err)
	}
	if status.Phase != corev1.PodRunning || !status.ContainerStatuses[0].Ready {
		t.Errorf("its status is %+v", status)
	}
	if err := p.DeletePod(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if pods, err := p.GetPods(t.Context()); err != nil || len(pods) > 0 {
		t.Errorf("after its deletion: %v, %v", pods, err)
	}
	if err := p.DeletePod(t.Context(), pod); !errdefs.IsNotFound(err) {
		t.Errorf("a second deletion: %v", err)
	}
}

// A pod that can never run is Failed, and no try is made again; one for which there is no room
// waits.
func TestRefusedPods(t *testing.T) {
	p := newTestProvider()
	initialized := newTestPod("main")
	initialized.Spec.InitContainers = []corev1.Container{{Name: "init"}}
	for _, pod := range []*corev1.Pod{initialized, newTestPod("a", "b", "c", "d", "e", "f", "g", "h", "i")} {
		if err := p.CreatePod(t.Context(), pod); !errdefs.IsPermanent(err) {
			t.Errorf("CreatePod: %v", err)
		}
	}
	p.service.tasks = map[string]Task{}
	for i := range 1000 {
		id := fmt.Sprint("other-", i)
		p.service.tasks[id] = Task{ID: id}
	}
	if _, ok := errdefs.RetryAfter(p.CreatePod(t.Context(), newTestPod("main"))); !ok {
		t.Error("no time is named after which there may be room")
	}
}

// A variable whose value only the service could know is not one without a value: a pod with one
// is refused.
func TestVariablesWithoutValues(t *testing.T) {
	p := newTestProvider()
	for _, from := range []corev1.EnvVarSource{
		{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}, {FileKeyRef: &corev1.FileKeySelector{VolumeName: "config", Path: "env", Key: "COLOUR"}},
	} {
		pod := newTestPod("main", "other")
		pod.Spec.Containers[1].Env = append(pod.Spec.Containers[1].Env, corev1.EnvVar{Name: "THERE", ValueFrom: &from})
		err := p.CreatePod(t.Context(), pod)
		if want := "ProviderNotSupported: container other: acme has no value for variable THERE"; !errdefs.IsPermanent(err) || err.Error() != want {
			t.Errorf("CreatePod: %v, want the permanent error %q", err, want)
		}
	}
	if len(p.service.tasks) > 0 {
		t.Errorf("the service runs %v", p.service.tasks)
	}
}

// end has a task end by itself: the service keeps it.
func (s *Service) end(id string, exitCode int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tasks[id]
	t.Ended, t.ExitCode = time.Now(), exitCode
	s.tasks[id] = t
}

// A task that has ended by itself has the reasons that a kubelet gives, also when its pod is deleted.
func TestEndedPods(t *testing.T) {
	for code, want := range map[int]struct {
		phase  corev1.PodPhase
		reason string
	}{0: {corev1.PodSucceeded, "Completed"}, 3: {corev1.PodFailed, "Error"}} {
		p := newTestProvider()
		if err := p.CreatePod(t.Context(), newTestPod("main")); err != nil {
			t.Fatal(err)
		}
		p.service.end("1", code)
		status, err := p.GetPodStatus(t.Context(), "default", "web")
		if err != nil {
			t.Fatal(err)
		}
		end := status.ContainerStatuses[0].State.Terminated
		if status.Phase != want.phase || end == nil || end.Reason != want.reason || end.ExitCode != int32(code) {
			t.Errorf("after exit code %d its status is %+v, want phase %s and reason %s", code, status, want.phase, want.reason)
		}
		p.service.Watch(func(task Task) { status = &p.pod(task).Status })
		if err := p.DeletePod(t.Context(), newTestPod()); err != nil || status.Phase != want.phase {
			t.Errorf("after its deletion its phase is %s, want %s; error %v", status.Phase, want.phase, err)
		}
	}
}
