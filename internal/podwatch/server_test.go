package podwatch_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/virtual-kubelet/virtual-kubelet/internal/podwatch"
)

// server is an API server with pods: it has resource versions, knows the one
// selector, and delivers the events of a test.
type server struct {
	kubernetes.Interface
	corev1client.CoreV1Interface
	corev1client.PodInterface

	mu      sync.Mutex
	version int
	pods    map[string]*corev1.Pod
	lists   []string // selectors
	streams []*stream
	behind  []watch.Event // not delivered while the watch is held
	held    bool
	refuse  error                            // of lists for one node
	onList  func(selector string, made bool) // called before a list is made, and after, unlocked
}

type stream struct {
	selector string
	*watch.RaceFreeFakeWatcher
}

func newServer() *server { return &server{pods: map[string]*corev1.Pod{}, version: 100} }

func (s *server) CoreV1() corev1client.CoreV1Interface  { return s }
func (s *server) Pods(string) corev1client.PodInterface { return s }
func (s *server) IsWatchListSemanticsUnSupported() bool { return true }
func (s *server) List(_ context.Context, o metav1.ListOptions) (*corev1.PodList, error) {
	if s.onList != nil {
		s.onList(o.FieldSelector, false)
		defer s.onList(o.FieldSelector, true)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists = append(s.lists, o.FieldSelector)
	if err := s.refuse; err != nil && strings.HasPrefix(o.FieldSelector, "spec.nodeName=") {
		return nil, err
	}
	list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(s.version)}}
	for _, pod := range s.pods {
		if matches(o.FieldSelector, pod) {
			list.Items = append(list.Items, *pod.DeepCopy())
		}
	}
	return list, nil
}

func (s *server) Watch(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := &stream{o.FieldSelector, watch.NewRaceFreeFake()}
	s.streams = append(s.streams, st)
	return st, nil
}

func matches(selector string, pod *corev1.Pod) bool {
	if name, ok := strings.CutPrefix(selector, "spec.nodeName="); ok {
		return pod.Spec.NodeName == name
	}
	return selector == "spec.nodeName!=" && pod.Spec.NodeName != ""
}

// put creates or changes a pod.
func (s *server) put(name, node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	kind := watch.Modified
	pod := s.pods[name]
	if pod == nil {
		kind = watch.Added
		pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(fmt.Sprint("uid", s.version)),
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}}, Spec: corev1.PodSpec{NodeName: node}}
	}
	pod = pod.DeepCopy()
	pod.ResourceVersion = strconv.Itoa(s.version)
	s.pods[name] = pod
	s.deliver(watch.Event{Type: kind, Object: pod.DeepCopy()})
}

func (s *server) remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	pod := s.pods[name].DeepCopy()
	delete(s.pods, name)
	pod.ResourceVersion = strconv.Itoa(s.version)
	s.deliver(watch.Event{Type: watch.Deleted, Object: pod})
}

func (s *server) deliver(event watch.Event) {
	if s.held {
		s.behind = append(s.behind, event)
		return
	}
	for _, st := range s.streams {
		if !st.IsStopped() && matches(st.selector, event.Object.(*corev1.Pod)) {
			st.Action(event.Type, event.Object.DeepCopyObject())
		}
	}
}

// hold keeps the watch behind, and release has it catch up.
func (s *server) hold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = true
}

func (s *server) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = false
	for _, event := range s.behind {
		s.deliver(event)
	}
	s.behind = nil
}

// breakWatch loses what has happened since, so that there is a new list.
func (s *server) breakWatch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.behind = nil
	s.held = false
	status := apierrors.NewResourceExpired("too old").Status()
	for _, st := range s.streams {
		if !st.IsStopped() {
			st.Action(watch.Error, &status)
		}
	}
}

// restore brings the state back in which there were only these pods.
func (s *server) restore(version int, pods ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version = version
	maps.DeleteFunc(s.pods, func(name string, _ *corev1.Pod) bool { return !slices.Contains(pods, name) })
}

// listed are the selectors of all lists so far.
func (s *server) listed() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.lists)
}

// recorder is a handler that records its calls.
type recorder struct {
	mu       sync.Mutex
	changes  []string
	versions []int // of the pods
}

func (h *recorder) record(verb string, pod *corev1.Pod) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.changes = append(h.changes, verb+" "+pod.Name)
	version, _ := strconv.Atoi(pod.ResourceVersion)
	h.versions = append(h.versions, version)
}

func (h *recorder) handler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { h.record("add", obj.(*corev1.Pod)) },
		UpdateFunc: func(before, after any) { h.record("update", after.(*corev1.Pod)) },
		DeleteFunc: func(obj any) {
			if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = last.Obj
			}
			h.record("delete", obj.(*corev1.Pod))
		},
	}
}

func (h *recorder) drain() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	changes := h.changes
	h.changes, h.versions = nil, nil
	return changes
}

// bubble runs a test in virtual time; the watch runs once start is called.
func bubble(t *testing.T, test func(t *testing.T, s *server, w *podwatch.Watch, start func())) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		w := podwatch.New(s, metav1.NamespaceAll, 0)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		test(t, s, w, func() {
			running.Go(func() { w.Run(ctx) })
			synctest.Wait()
		})
		cancel()
		running.Wait()
	})
}

// join has a node join, and returns its pods and a recorder of their changes.
func join(t *testing.T, w *podwatch.Watch, name string) (*podwatch.Pods, *recorder) {
	t.Helper()
	pods, h := podwatch.NewPods(), &recorder{}
	if _, _, err := pods.Subscribe(h.handler()); err != nil {
		t.Fatal(err)
	}
	if err := w.Join(t.Context(), name, pods); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return pods, h
}

func names(pods *podwatch.Pods) (names []string) {
	for _, pod := range pods.List() {
		names = append(names, pod.Name)
	}
	slices.Sort(names)
	return names
}

func want(t *testing.T, what string, got []string, wanted ...string) {
	t.Helper()
	if !slices.Equal(got, wanted) {
		t.Errorf("%s: got %q, want %q", what, got, wanted)
	}
}
