package nodetest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Backend runs pods in a test: it reports a pod Running at once, and forgets it when it is
// deleted. All methods may be called at any time from any goroutine.
type Backend struct {
	mu    sync.Mutex
	pods  map[string]*corev1.Pod // by key
	byUID bool
	calls []string

	// inside are the calls that are under way, by the key of their pod; overlaps are
	// those that met there. Reading a status counts for none.
	inside   map[string]string
	overlaps []string

	s Script

	notifier func(*corev1.Pod)
}

// Script is what a Backend does when it is called. The zero value lets every call succeed.
type Script struct {
	// These run before the Backend acts. They may change the pod, block, panic, or
	// return an error, which is the call's answer then.
	OnCreate, OnUpdate, OnDelete func(ctx context.Context, pod *corev1.Pod) error
	OnGet, OnStatus              func(name string) error
	OnList                       func() error

	// Lingers has deleted pods run on, until Forget.
	Lingers bool
	// Show changes the copies of pods that the Backend shows. nil: none are changed.
	Show func(*corev1.Pod) *corev1.Pod
	// List is the answer to GetPods. nil: all pods, in the order of their names or UIDs.
	List func() []*corev1.Pod
}

// New returns a Backend without pods.
func New() *Backend {
	return &Backend{pods: map[string]*corev1.Pod{}, inside: map[string]string{}}
}

// Script changes the script, also while the Backend is in use.
func (b *Backend) Script(change func(*Script)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(&b.s)
}

// TakeCalls returns the calls so far that begin with one of the prefixes (all without
// any), in order, and forgets all calls. They are "create NAME UID", "update NAME UID",
// "delete NAME UID grace SECONDS", "get NAME", "status NAME", "list" and "notify".
func (b *Backend) TakeCalls(prefixes ...string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	calls := b.calls
	b.calls = nil
	if len(prefixes) == 0 {
		return calls
	}
	return slices.DeleteFunc(calls, func(call string) bool {
		return !slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(call, p) })
	})
}

// Overlaps returns the pairs of calls that were about one pod at the same time. The
// controllers of package node make none.
func (b *Backend) Overlaps() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.overlaps)
}

// Hold has the Backend have a copy of a pod, in a phase (see StatusOf), which is returned.
// Nobody is notified.
func (b *Backend) Hold(pod *corev1.Pod, phase corev1.PodPhase) *corev1.Pod {
	pod = pod.DeepCopy()
	pod.Status = StatusOf(pod, phase)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pods[b.key(pod)] = pod
	return pod
}

// SetPhase gives the pods of a name a phase (see StatusOf), and notifies of it.
func (b *Backend) SetPhase(name string, phase corev1.PodPhase) {
	b.ChangePod(name, func(pod *corev1.Pod) { pod.Status = StatusOf(pod, phase) })
}

// ChangePod changes the pods of a name, in any namespace, and notifies of it.
func (b *Backend) ChangePod(name string, change func(*corev1.Pod)) {
	b.mu.Lock()
	var changed []*corev1.Pod
	for key, pod := range b.pods {
		if pod.Name == name {
			pod = pod.DeepCopy()
			change(pod)
			b.pods[key] = pod
			changed = append(changed, pod)
		}
	}
	b.mu.Unlock()
	for _, pod := range changed {
		b.Notify(pod)
	}
}

// Forget has the Backend lose the pods of a name, in any namespace, without a notification,
// and returns one of them, or nil.
func (b *Backend) Forget(name string) (lost *corev1.Pod) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, pod := range b.pods {
		if pod.Name == name {
			delete(b.pods, key)
			lost = pod
		}
	}
	return lost
}

// Empty has the Backend answer as if it had no pods, as one does that has just started,
// until back is called.
func (b *Backend) Empty() (back func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	pods := b.pods
	b.pods = map[string]*corev1.Pod{}
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.pods = pods
	}
}

// Holds returns the UIDs of the pods of a name, in any namespace.
func (b *Backend) Holds(name string) (uids []types.UID) {
	for _, pod := range b.Pods() {
		if pod.Name == name {
			uids = append(uids, pod.UID)
		}
	}
	return uids
}

// Pod returns a copy of a pod of a name, in any namespace, or nil.
func (b *Backend) Pod(name string) *corev1.Pod {
	for _, pod := range b.Pods() {
		if pod.Name == name {
			return pod.DeepCopy()
		}
	}
	return nil
}

// Pods returns the pods that the Backend holds, in the order of their names or UIDs. They
// are not to be changed.
func (b *Backend) Pods() (pods []*corev1.Pod) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(b.pods)) {
		pods = append(pods, b.pods[key])
	}
	return pods
}

// Notify notifies of a pod, if the provider can and somebody has asked for that.
func (b *Backend) Notify(pod *corev1.Pod) {
	if notify := b.Notifier(); notify != nil {
		notify(pod)
	}
}

// Notifier returns the function that NotifyPods was last called with, or nil.
func (b *Backend) Notifier() func(*corev1.Pod) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.notifier
}

// StatusOf returns what a simple provider reports of a pod in a phase: its containers run,
// wait or have ended with it.
func StatusOf(pod *corev1.Pod, phase corev1.PodPhase) corev1.PodStatus {
	status := corev1.PodStatus{Phase: phase}
	for _, c := range pod.Spec.Containers {
		state := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
		switch phase {
		case corev1.PodPending:
			state = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}
		case corev1.PodSucceeded:
			state = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
		case corev1.PodFailed:
			state = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}}
		}
		status.ContainerStatuses = append(status.ContainerStatuses, corev1.ContainerStatus{Name: c.Name, State: state})
	}
	return status
}

// key is what the Backend knows a pod by.
func (b *Backend) key(pod *corev1.Pod) string {
	if b.byUID {
		return string(pod.UID)
	}
	return pod.Namespace + "/" + pod.Name
}

// enter records that a call about a pod begins, and returns what ends it.
func (b *Backend) enter(call, key string) (leave func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if other := b.inside[key]; other != "" {
		b.overlaps = append(b.overlaps, other+" and "+call)
		return func() {}
	}
	b.inside[key] = call
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.inside, key)
	}
}

// called records a call, and returns the script for it.
func (b *Backend) called(format string, args ...any) Script {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls = append(b.calls, fmt.Sprintf(format, args...))
	return b.s
}

// find returns what the Backend shows of a pod, or nil.
func (b *Backend) find(key string) *corev1.Pod {
	b.mu.Lock()
	defer b.mu.Unlock()
	pod := b.pods[key].DeepCopy()
	if pod != nil && b.s.Show != nil {
		return b.s.Show(pod)
	}
	return pod
}
