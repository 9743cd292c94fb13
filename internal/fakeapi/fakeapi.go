// Package fakeapi is an API server for tests of controllers, in memory and in virtual time.
package fakeapi

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"
)

var (
	Pods   = corev1.SchemeGroupVersion.WithResource("pods")
	Nodes  = corev1.SchemeGroupVersion.WithResource("nodes")
	Leases = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
)

// API is client-go's fake clientset with what matters here of a real API
// server for pods and nodes: UIDs and resource versions, generations, guards of
// Patches, the status as a subresource, graceful deletion, finalizers, and
// watches with gaps.
type API struct {
	*fake.Clientset
	t       *testing.T
	Tracker clienttesting.ObjectTracker

	NoGenerations         bool // as before 1.33
	NoObservedGenerations bool // as before 1.34, where pods have them
	NoDeclaredFeatures    bool // of nodes, as before 1.36

	mu       sync.Mutex
	version  int
	watches  []*cuttable
	failures map[string]error // by "verb resource", or "verb resource/subresource"
	writes   []string         // "verb resource/subresource name"
	Patches  []string         // of pods' and nodes' statuses
	hidden   map[string]bool  // pods that lists do not show
}

// New makes an API without objects.
func New(t *testing.T) *API {
	a := &API{
		Clientset: &fake.Clientset{},
		t:         t,
		Tracker:   clienttesting.NewObjectTracker(scheme.Scheme, scheme.Codecs.UniversalDecoder()),
		version:   1000,
		failures:  map[string]error{},
	}
	a.AddReactor("*", "*", a.react)
	a.AddReactor("*", "*", clienttesting.ObjectReaction(a.Tracker))
	a.AddWatchReactor("*", a.watch)
	return a
}

// Fail has requests fail until err is nil.
func (a *API) Fail(what string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failures[what] = err
}

// Written returns the writes so far, and forgets them.
func (a *API) Written() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	w := a.writes
	a.writes = nil
	return w
}

func (a *API) react(action clienttesting.Action) (bool, runtime.Object, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	resource := action.GetResource()
	what := action.GetVerb() + " " + resource.Resource
	if action.GetSubresource() != "" {
		what += "/" + action.GetSubresource()
	}
	if slices.Contains([]string{"create", "update", "patch", "delete"}, action.GetVerb()) {
		write := what
		if n, ok := action.(interface{ GetName() string }); ok && action.GetVerb() != "create" {
			write += " " + n.GetName()
		}
		a.writes = append(a.writes, write)
	}
	if err := a.failures[what]; err != nil {
		return true, nil, err
	}
	if resource != Pods && resource != Nodes {
		return false, nil, nil
	}
	switch action := action.(type) {
	case clienttesting.ListActionImpl:
		if resource != Pods || len(a.hidden) == 0 {
			return false, nil, nil
		}
		obj, err := a.Tracker.List(resource, action.Kind, action.GetNamespace())
		if err != nil {
			return true, nil, err
		}
		list := obj.DeepCopyObject().(*corev1.PodList)
		list.Items = slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return a.hidden[p.Name] })
		return true, list, nil
	case clienttesting.CreateActionImpl:
		obj, err := a.create(resource, action.GetObject())
		return true, obj, err
	case clienttesting.PatchActionImpl:
		obj, err := a.patch(action)
		return true, obj, err
	case clienttesting.DeleteActionImpl:
		return true, nil, a.delete(resource, action.GetNamespace(), action.GetName(), action.DeleteOptions)
	}
	return false, nil, nil
}

func (a *API) create(resource schema.GroupVersionResource, obj runtime.Object) (runtime.Object, error) {
	obj = obj.DeepCopyObject()
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil, err
	}
	a.version++
	if m.GetUID() == "" {
		m.SetUID(types.UID(fmt.Sprintf("uid-%d", a.version)))
	}
	m.SetResourceVersion(strconv.Itoa(a.version))
	m.SetCreationTimestamp(metav1.Time{Time: time.Now().Truncate(time.Second)})
	if node, ok := obj.(*corev1.Node); ok && a.NoDeclaredFeatures {
		node.Status.DeclaredFeatures = nil
	}
	if pod, ok := obj.(*corev1.Pod); ok {
		if !a.NoGenerations {
			pod.Generation = 1
		}
		if pod.Status.Phase == "" {
			pod.Status.Phase = corev1.PodPending
		}
	}
	return obj, a.Tracker.Create(resource, obj, m.GetNamespace())
}

func (a *API) patch(action clienttesting.PatchActionImpl) (runtime.Object, error) {
	resource := action.GetResource()
	if action.GetSubresource() == "status" {
		a.Patches = append(a.Patches, string(action.GetPatch()))
	}
	before, err := a.Tracker.Get(resource, action.GetNamespace(), action.GetName())
	if err != nil {
		return nil, err
	}
	was, err := json.Marshal(before)
	if err != nil {
		return nil, err
	}
	merged, err := strategicpatch.StrategicMergePatch(was, action.GetPatch(), before)
	if err != nil {
		return nil, err
	}
	after := before.DeepCopyObject()
	switch after := after.(type) {
	case *corev1.Pod:
		*after = corev1.Pod{}
	case *corev1.Node:
		*after = corev1.Node{}
	}
	if err := json.Unmarshal(merged, after); err != nil {
		return nil, err
	}
	return a.replace(resource, before, after, action.GetSubresource() == "status")
}

// replace stores after in the place of before, as far as the request may.
func (a *API) replace(resource schema.GroupVersionResource, before, after runtime.Object, status bool) (runtime.Object, error) {
	was, err := meta.Accessor(before)
	if err != nil {
		return nil, err
	}
	is, err := meta.Accessor(after)
	if err != nil {
		return nil, err
	}
	if is.GetUID() != was.GetUID() || is.GetResourceVersion() != was.GetResourceVersion() {
		return nil, apierrors.NewConflict(resource.GroupResource(), was.GetName(), fmt.Errorf("precondition failed"))
	}
	switch after := after.(type) {
	case *corev1.Pod:
		before := before.(*corev1.Pod)
		if status {
			before = before.DeepCopy()
			before.Status = after.Status
			if a.NoObservedGenerations {
				before.Status.ObservedGeneration = 0
				for i := range before.Status.Conditions {
					before.Status.Conditions[i].ObservedGeneration = 0
				}
			}
			*after = *before
			break
		}
		after.Status = before.Status
		if !equality.Semantic.DeepEqual(before.Spec, after.Spec) {
			if !a.NoGenerations {
				after.Generation++
			}
		}
	case *corev1.Node:
		before := before.(*corev1.Node)
		if status {
			before = before.DeepCopy()
			before.Status = after.Status
			if a.NoDeclaredFeatures {
				before.Status.DeclaredFeatures = nil
			}
			*after = *before
			break
		}
		after.Status = before.Status
	}
	if equality.Semantic.DeepEqual(before, after) {
		return before, nil
	}
	a.version++
	is.SetResourceVersion(strconv.Itoa(a.version))
	return after, a.Tracker.Update(resource, after, is.GetNamespace())
}

func (a *API) delete(resource schema.GroupVersionResource, namespace, name string, options metav1.DeleteOptions) error {
	obj, err := a.Tracker.Get(resource, namespace, name)
	if err != nil {
		return err
	}
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return a.Tracker.Delete(resource, namespace, name)
	}
	if p := options.Preconditions; p != nil && p.UID != nil && *p.UID != pod.UID {
		return apierrors.NewConflict(resource.GroupResource(), name, fmt.Errorf("precondition failed"))
	}
	grace := ptr.Deref(options.GracePeriodSeconds, ptr.Deref(pod.Spec.TerminationGracePeriodSeconds, 30))
	if pod.Spec.NodeName == "" || ended(pod.Status.Phase) {
		grace = 0
	}
	if grace == 0 && len(pod.Finalizers) == 0 {
		return a.Tracker.Delete(resource, namespace, name)
	}
	if pod.DeletionTimestamp != nil && *pod.DeletionGracePeriodSeconds <= grace {
		return nil
	}
	pod = pod.DeepCopy()
	if pod.DeletionTimestamp == nil && !a.NoGenerations {
		pod.Generation++ // with the first deletion only
	}
	pod.DeletionTimestamp = &metav1.Time{Time: time.Now().Add(time.Duration(grace) * time.Second).Truncate(time.Second)}
	pod.DeletionGracePeriodSeconds = &grace
	a.version++
	pod.ResourceVersion = strconv.Itoa(a.version)
	return a.Tracker.Update(resource, pod, namespace)
}

// The rest is what others do to the API; no write of the controllers.

func (a *API) AddPod(pod *corev1.Pod) *corev1.Pod {
	a.t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	obj, err := a.create(Pods, pod)
	if err != nil {
		a.t.Fatal(err)
	}
	return obj.(*corev1.Pod)
}

func (a *API) DeletePod(name string, grace ...int64) {
	a.t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	var options metav1.DeleteOptions
	if len(grace) > 0 {
		options.GracePeriodSeconds = &grace[0]
	}
	if err := a.delete(Pods, "default", name, options); err != nil {
		a.t.Fatal(err)
	}
}

// Pod returns the API's pod, or nil.
func (a *API) Pod(name string) *corev1.Pod {
	a.t.Helper()
	obj, err := a.Tracker.Get(Pods, "default", name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		a.t.Fatal(err)
	}
	return obj.(*corev1.Pod)
}

func (a *API) ChangePod(name string, change func(*corev1.Pod)) {
	a.t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	before := a.Pod(name)
	after := before.DeepCopy()
	change(after)
	status := after.Status
	obj, err := a.replace(Pods, before, after, false)
	if err == nil {
		after = obj.(*corev1.Pod).DeepCopy()
		after.Status = status
		_, err = a.replace(Pods, obj, after, true)
	}
	if err != nil {
		a.t.Fatal(err)
	}
}

// RestorePod has a pod be as it was, as of then, which is what a restored backup of the API's data does.
func (a *API) RestorePod(was *corev1.Pod) {
	a.t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.Tracker.Update(Pods, was, was.Namespace); err != nil {
		a.t.Fatal(err)
	}
}

func (a *API) Node(name string) *corev1.Node {
	a.t.Helper()
	obj, err := a.Tracker.Get(Nodes, "", name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		a.t.Fatal(err)
	}
	return obj.(*corev1.Node)
}

func (a *API) ChangeNode(name string, change func(*corev1.Node)) {
	a.t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	before := a.Node(name)
	after := before.DeepCopy()
	change(after)
	status := after.Status
	obj, err := a.replace(Nodes, before, after, false)
	if err == nil {
		after = obj.(*corev1.Node).DeepCopy()
		after.Status = status
		_, err = a.replace(Nodes, obj, after, true)
	}
	if err != nil {
		a.t.Fatal(err)
	}
}

func (a *API) watch(action clienttesting.Action) (bool, watch.Interface, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	resource := action.GetResource()
	if err := a.failures["watch "+resource.Resource]; err != nil {
		return true, nil, err
	}
	w, err := a.Tracker.Watch(resource, action.GetNamespace(), action.(clienttesting.WatchActionImpl).ListOptions)
	if err != nil {
		return true, nil, err
	}
	c := &cuttable{inner: w, out: make(chan watch.Event), stop: make(chan struct{}), cut: make(chan struct{})}
	go c.run() // ends with the watch
	a.watches = append(a.watches, c)
	return true, c, nil
}

// Watches returns how many watches have begun and were not cut.
func (a *API) Watches() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.watches)
}

// Gap makes changes that no watch shows: those that run end as expired.
func (a *API) Gap(changes func()) {
	a.mu.Lock()
	watches := a.watches
	a.watches = nil
	a.mu.Unlock()
	for _, w := range watches {
		w.inner.Stop()
	}
	changes()
	for _, w := range watches {
		close(w.cut)
	}
}

// Hide has lists show a pod of that name, or not.
func (a *API) Hide(name string, hidden bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.hidden = map[string]bool{name: true}; !hidden {
		a.hidden = nil
	}
}

// cuttable is a watch that can be ended by the server.
type cuttable struct {
	inner     watch.Interface
	out       chan watch.Event
	stop, cut chan struct{}
	once      sync.Once
}

func (c *cuttable) ResultChan() <-chan watch.Event { return c.out }

func (c *cuttable) Stop() { c.once.Do(func() { close(c.stop); c.inner.Stop() }) }

func (c *cuttable) run() {
	defer close(c.out)
	in := c.inner.ResultChan()
	for {
		var event watch.Event
		select {
		case <-c.stop:
			return
		case <-c.cut:
			status := apierrors.NewResourceExpired("too old resource version").Status()
			event = watch.Event{Type: watch.Error, Object: &status}
		case e, ok := <-in:
			if !ok {
				in = nil
				continue
			}
			event = e
		}
		select {
		case <-c.stop:
			return
		case c.out <- event:
		}
		if event.Type == watch.Error {
			return
		}
	}
}

func ended(phase corev1.PodPhase) bool {
	return phase == corev1.PodSucceeded || phase == corev1.PodFailed
}
