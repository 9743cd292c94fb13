package faults

import (
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// What must hold at every step is checked with each request. The locks are
// taken in this order: the API server's or the model's, the fault provider's, the
// world's.

// auditPatch sees an agent write to a pod.
func (w *world) auditPatch(before, after *corev1.Pod, subresource string, patch []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if before.Spec.NodeName != w.node {
		w.breaksLocked("invariant 3: the agent wrote to pod %s of node %s", before.Name, before.Spec.NodeName)
	}
	if subresource != "status" {
		w.breaksLocked("invariant 7: the agent wrote to pod %s beside its status", before.Name)
	}
	var parts map[string]json.RawMessage
	_ = json.Unmarshal(patch, &parts) // it was applied before
	var meta map[string]any
	_ = json.Unmarshal(parts["metadata"], &meta)
	delete(parts, "metadata")
	delete(parts, "status")
	if len(parts) > 0 || len(meta) != 1 || meta["uid"] != string(before.UID) {
		w.breaksLocked("invariant 7: a patch of pod %s (%s) has more than its UID and status: %s", before.Name, before.UID, patch)
	}
	was, is := before.Status.Phase, after.Status.Phase
	if isTerminal(was) && is != was || rank[is] < rank[was] {
		w.breaksLocked("invariant 6: the phase of pod %s (%s) went from %s to %s", before.Name, before.UID, was, is)
	}
}

var rank = map[corev1.PodPhase]int{"": -1, corev1.PodPending: 0, corev1.PodRunning: 1, corev1.PodSucceeded: 2, corev1.PodFailed: 2}

// auditDelete sees an agent remove a pod.
func (w *world) auditDelete(pod *corev1.Pod, options *metav1.DeleteOptions) {
	running := w.model.holds(pod.UID)
	excused := w.excused(pod)
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case pod.Spec.NodeName != w.node:
		w.breaksLocked("invariant 3: the agent removed pod %s of node %s", pod.Name, pod.Spec.NodeName)
	case options.Preconditions == nil || options.Preconditions.UID == nil:
		w.breaksLocked("invariant 1: the agent removed pod %s (%s) without its UID", pod.Name, pod.UID)
	case pod.DeletionTimestamp == nil:
		w.breaksLocked("invariant 4: the agent removed pod %s (%s) that is to stay", pod.Name, pod.UID)
	case running != nil && !isTerminal(running.Status.Phase) && !excused && !w.isEmpty():
		w.breaksLocked("invariant 4: the agent removed pod %s (%s) that is %s in the provider", pod.Name, pod.UID, running.Status.Phase)
	}
}

// auditEnd sees a pod leave the API.
func (w *world) auditEnd(pod *corev1.Pod) {
	held := w.model.holds(pod.UID) != nil
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.pods[pod.UID]
	f.gone = true
	if held && w.blind {
		w.estrange(f)
	}
}

// auditCall sees the provider being called. What is done about a pod follows each other,
// and where the provider goes by names, about all the pods that have had the name.
// GetPodStatus is exempt, with which pods are polled.
func (w *world) auditCall(method string, name types.NamespacedName, uid types.UID) (ends func()) {
	if name.Name == "" || method == "GetPodStatus" {
		return func() {}
	}
	pod := w.callKey(name, uid)
	w.mu.Lock()
	defer w.mu.Unlock()
	if other, ok := w.calls[pod]; ok {
		w.breaksLocked("%s of pod %s was called within %s", method, name.Name, other.method)
		return func() {}
	}
	f := w.pods[uid]
	w.calls[pod] = beganCall{method, w.isEmpty(), f != nil && f.terminal}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.calls, pod)
	}
}

func (w *world) callKey(name types.NamespacedName, uid types.UID) callKey {
	if !w.model.shape.byUID {
		uid = ""
	}
	return callKey{name, uid}
}

// auditCreate sees the provider being asked to take a pod on.
func (w *world) auditCreate(m *model, pod *corev1.Pod) {
	if w.look != nil {
		w.look(pod)
	}
	excused := w.excused(pod)
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.pods[pod.UID]
	began := w.calls[w.callKey(types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, pod.UID)]
	switch {
	case f == nil || f.node != w.node:
		w.breaksLocked("invariant 3: pod %s (%s) was created, which is not this node's", pod.Name, pod.UID)
	case (w.isEmpty() || began.empty) && !began.terminal: // nobody can know what it holds
	case m.pods[pod.UID] != nil && !excused:
		w.breaksLocked("invariant 2: pod %s (%s) was created while it is held", pod.Name, pod.UID)
	case m.ran[pod.UID] > 0 && !excused && !w.mayForget(f):
		w.breaksLocked("invariant 2: pod %s (%s) was created again after it had run", pod.Name, pod.UID)
	case m.pods[pod.UID] == nil && m.occupied(pod) && !excused && !w.strange(pod.Name):
		w.breaksLocked("invariant 1: pod %s (%s) was created while another one of its name is held", pod.Name, pod.UID)
	case pod.Annotations[reads] != "" && !hasSettings(pod.Spec.Containers[0].Env):
		w.breaksLocked("invariant 9: pod %s (%s) was created without optional objects that there are: it has %v", pod.Name, pod.UID, pod.Spec.Containers[0].Env)
	case f.terminal:
		w.breaksLocked("invariant 6: pod %s (%s) was created although it has ended", pod.Name, pod.UID)
	}
}

// auditEndOf sees the provider being asked to end a pod that it holds.
func (w *world) auditEndOf(m *model, asked, held *corev1.Pod) {
	if w.look != nil {
		w.look(held)
	}
	excused := w.excused(held) || w.excused(asked)
	kill := ptr.Deref(asked.DeletionGracePeriodSeconds, 0) == 0
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.pods[held.UID]
	stopped, asks := w.stops[held.UID]
	if !kill && !asks {
		w.stops[held.UID] = time.Now()
	}
	switch {
	case kill && !excused && !isTerminal(held.Status.Phase) && (!asks || time.Since(stopped) < time.Second):
		w.breaksLocked("invariant 4: pod %s (%s) was killed before it could stop", held.Name, held.UID)
	case held.Spec.NodeName != w.node && !excused:
		w.breaksLocked("invariant 3: pod %s of node %s was deleted in the provider", held.Name, held.Spec.NodeName)
	case excused || f == nil || f.gone || f.terminal:
	case asked.UID != held.UID:
		w.breaksLocked("invariant 1: pod %s (%s) was deleted in the provider in place of %s", held.Name, held.UID, asked.UID)
	case !f.deleted && w.mayLose(f.created): // it was given up, which the API may not have yet
	case !f.deleted:
		w.breaksLocked("invariant 3: pod %s (%s) was deleted in the provider, which the API has", held.Name, held.UID)
	case kill && time.Now().Before(f.deadline) && !isTerminal(held.Status.Phase):
		w.breaksLocked("invariant 4: pod %s (%s) was killed %v before its grace period ends", held.Name, held.UID, time.Until(f.deadline))
	}
}
