package podlifecycle

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

// fakeProvider is a provider with a script: what it is asked is recorded, and
// the hooks, where set, come before its own doing. It reports a pod Running at
// once, and forgets it when it is deleted.
type fakeProvider struct {
	mu    sync.Mutex
	pods  map[string]*corev1.Pod
	calls []string

	// inside are the calls that are under way by the key of their pod; those which
	// met there are overlaps. GetPodStatus, with which pods are polled, is none.
	inside   map[string]string
	overlaps []string

	s script

	// byUID keys the pods by UID.
	byUID bool

	notifier func(*corev1.Pod)
}

// script is what a fakeProvider does. Change it with script.
type script struct {
	// A hook for each method. It may change the pod, return an error (then
	// nothing else happens), panic, or block.
	onCreate, onUpdate, onDelete func(context.Context, *corev1.Pod) error
	onGet, onStatus              func(name string) error
	onList                       func() error

	// lingers has deleted pods run on, until they are finished with finish.
	lingers bool
	// show changes what the provider shows of its pods.
	show func(*corev1.Pod) *corev1.Pod
	// list, if set, is the answer to GetPods.
	list func() []*corev1.Pod
}

// script changes the script, also of a provider that is in use.
func (f *fakeProvider) script(change func(*script)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.s)
}

func (f *fakeProvider) scripted() script {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.s
}

func newFakeProvider() *fakeProvider {
	return &fakeProvider{pods: map[string]*corev1.Pod{}, inside: map[string]string{}}
}

// enter records that a call about a pod begins, and returns what ends it. key is what the
// provider knows the pod by.
func (f *fakeProvider) enter(call, key string) (leave func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if other := f.inside[key]; other != "" {
		f.overlaps = append(f.overlaps, other+" and "+call)
		return func() {}
	}
	f.inside[key] = call
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.inside, key)
	}
}

// polled, notifying and uidKeyed are the kinds of providers.
type polled struct{ f *fakeProvider }

type notifying struct{ polled }

type uidKeyed struct{ polled }

func (f *fakeProvider) key(pod *corev1.Pod) string {
	if f.byUID {
		return string(pod.UID)
	}
	return nameOf(pod).String()
}

func (f *fakeProvider) called(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, fmt.Sprintf(format, args...))
}

// took returns the calls so far that begin with one of the prefixes (all
// without any), and forgets all calls.
func (f *fakeProvider) took(prefixes ...string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	calls := f.calls
	f.calls = nil
	if len(prefixes) == 0 {
		return calls
	}
	return slices.DeleteFunc(calls, func(call string) bool {
		return !slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(call, p) })
	})
}

func (f *fakeProvider) hold(pod *corev1.Pod, phase corev1.PodPhase) *corev1.Pod {
	pod = pod.DeepCopy()
	pod.Status = statusOf(pod, phase)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pods[f.key(pod)] = pod
	return pod
}

// statusOf is what a simple provider reports of a pod.
func statusOf(pod *corev1.Pod, phase corev1.PodPhase) corev1.PodStatus {
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

// set changes the status of a pod, and notifies of it if it can.
func (f *fakeProvider) set(name string, phase corev1.PodPhase) {
	f.change(name, func(pod *corev1.Pod) { pod.Status = statusOf(pod, phase) })
}

func (f *fakeProvider) change(name string, change func(*corev1.Pod)) {
	f.mu.Lock()
	var changed *corev1.Pod
	for key, pod := range f.pods {
		if pod.Name == name {
			changed = pod.DeepCopy()
			change(changed)
			f.pods[key] = changed
		}
	}
	f.mu.Unlock()
	if changed != nil {
		f.notify(changed)
	}
}

func (f *fakeProvider) notify(pod *corev1.Pod) {
	f.mu.Lock()
	notify := f.notifier
	f.mu.Unlock()
	if notify != nil {
		notify(pod)
	}
}

// forget loses a pod, silently.
func (f *fakeProvider) forget(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for key, pod := range f.pods {
		if pod.Name == name {
			delete(f.pods, key)
		}
	}
}

func (f *fakeProvider) holds(name string) (uids []types.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, pod := range f.pods {
		if pod.Name == name {
			uids = append(uids, pod.UID)
		}
	}
	return uids
}

func (p polled) CreatePod(ctx context.Context, pod *corev1.Pod) error {
	f := p.f
	f.called("create %s %s", pod.Name, pod.UID)
	defer f.enter("create "+string(pod.UID), f.key(pod))()
	if hook := f.scripted().onCreate; hook != nil {
		if err := hook(ctx, pod); err != nil {
			return err
		}
	}
	f.notify(f.hold(pod, corev1.PodRunning))
	return nil
}

func (p polled) UpdatePod(ctx context.Context, pod *corev1.Pod) error {
	f := p.f
	f.called("update %s %s", pod.Name, pod.UID)
	defer f.enter("update "+string(pod.UID), f.key(pod))()
	if hook := f.scripted().onUpdate; hook != nil {
		return hook(ctx, pod)
	}
	return nil
}

func (p polled) DeletePod(ctx context.Context, pod *corev1.Pod) error {
	f := p.f
	f.called("delete %s %s grace %d", pod.Name, pod.UID, *pod.DeletionGracePeriodSeconds)
	defer f.enter("delete "+string(pod.UID), f.key(pod))()
	if hook := f.scripted().onDelete; hook != nil {
		if err := hook(ctx, pod); err != nil {
			return err
		}
	}
	f.mu.Lock()
	held, ok := f.pods[f.key(pod)]
	lingers := f.s.lingers
	if ok && !lingers {
		delete(f.pods, f.key(pod))
	}
	f.mu.Unlock()
	if !ok {
		return errdefs.NotFoundf("no pod %s", pod.Name)
	}
	if !lingers {
		held = held.DeepCopy()
		held.Status = statusOf(held, corev1.PodSucceeded)
		held.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		f.notify(held)
	}
	return nil
}

func (f *fakeProvider) find(key string) *corev1.Pod {
	f.mu.Lock()
	defer f.mu.Unlock()
	pod := f.pods[key]
	if pod != nil && f.s.show != nil {
		return f.s.show(pod.DeepCopy())
	}
	return pod.DeepCopy()
}

func (f *fakeProvider) get(what, name, key string) (*corev1.Pod, error) {
	f.called("%s %s", what, name)
	hook := f.scripted().onGet
	if what == "status" {
		hook = f.scripted().onStatus
	} else {
		defer f.enter(what, key)()
	}
	if hook != nil {
		if err := hook(name); err != nil {
			return nil, err
		}
	}
	if pod := f.find(key); pod != nil {
		return pod, nil
	}
	return nil, errdefs.NotFoundf("no pod %s", name)
}

func (p polled) GetPod(_ context.Context, namespace, name string) (*corev1.Pod, error) {
	return p.f.get("get", name, namespace+"/"+name)
}

func (p polled) GetPodStatus(_ context.Context, namespace, name string) (*corev1.PodStatus, error) {
	pod, err := p.f.get("status", name, namespace+"/"+name)
	if err != nil {
		return nil, err
	}
	return &pod.Status, nil
}

func (p polled) GetPods(context.Context) ([]*corev1.Pod, error) {
	f := p.f
	f.called("list")
	s := f.scripted()
	if s.onList != nil {
		if err := s.onList(); err != nil {
			return nil, err
		}
	}
	if s.list != nil {
		return s.list(), nil
	}
	f.mu.Lock()
	keys := make([]string, 0, len(f.pods))
	for key := range f.pods {
		keys = append(keys, key)
	}
	f.mu.Unlock()
	slices.Sort(keys)
	var pods []*corev1.Pod
	for _, key := range keys {
		if pod := f.find(key); pod != nil {
			pods = append(pods, pod)
		}
	}
	return pods, nil
}

func (p notifying) NotifyPods(_ context.Context, notify func(*corev1.Pod)) {
	p.f.called("notify")
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	p.f.notifier = notify
}

func (p uidKeyed) GetPod(context.Context, string, string) (*corev1.Pod, error) {
	p.f.called("get by name")
	return nil, errdefs.InvalidInput("ask by UID")
}

func (p uidKeyed) GetPodStatus(context.Context, string, string) (*corev1.PodStatus, error) {
	p.f.called("status by name")
	return nil, errdefs.InvalidInput("ask by UID")
}

func (p uidKeyed) GetPodByUID(_ context.Context, _, name string, uid types.UID) (*corev1.Pod, error) {
	return p.f.get("get", name, string(uid))
}

func (p uidKeyed) GetPodStatusByUID(_ context.Context, _, name string, uid types.UID) (*corev1.PodStatus, error) {
	pod, err := p.f.get("status", name, string(uid))
	if err != nil {
		return nil, err
	}
	return &pod.Status, nil
}

var (
	_ Provider    = polled{}
	_ notifier    = notifying{}
	_ UIDProvider = uidKeyed{}
)

// take has the provider forget a pod, and returns it.
func (f *fakeProvider) take(name string) *corev1.Pod {
	f.mu.Lock()
	defer f.mu.Unlock()
	for key, pod := range f.pods {
		if pod.Name == name {
			delete(f.pods, key)
			return pod
		}
	}
	return nil
}
