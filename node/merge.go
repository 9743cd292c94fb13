package node

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// annotationOwned remembers, across restarts, what of the node came from its
// provider, so that what the provider takes back is taken back, and what others
// wrote is not.
const annotationOwned = "virtual-kubelet.io/owned"

// owned are the names of what a provider has put on a node.
type owned struct {
	Labels      []string `json:"labels,omitempty"`
	Annotations []string `json:"annotations,omitempty"`
	Taints      []string `json:"taints,omitempty"`
	Capacity    []string `json:"capacity,omitempty"`
	Allocatable []string `json:"allocatable,omitempty"`
}

// ownedOf reads the annotation. What cannot be read was not ours: then nothing
// is taken back.
func ownedOf(n *corev1.Node) (before owned) {
	if text := n.Annotations[annotationOwned]; text != "" {
		_ = json.Unmarshal([]byte(text), &before)
	}
	return before
}

// The reasons of the Ready condition.
const (
	nodeReadyReason    = "KubeletReady"
	nodeNotReadyReason = "ProviderNotReady"
	nodeStoppedReason  = "KubeletStopped"
)

// newNode is the node to create: what the provider wants, and how it is.
func newNode(wanted *corev1.Node, health error, now metav1.Time) (*corev1.Node, error) {
	fresh, err := mergeNode(&corev1.Node{Spec: wanted.Spec}, wanted, health, now)
	if err != nil {
		return nil, err
	}
	fresh.Name = wanted.Name
	fresh.OwnerReferences = wanted.OwnerReferences
	fresh.Finalizers = wanted.Finalizers
	return fresh, nil
}

// mergeNode is the three-way merge: it returns the API's node with what the
// provider wants laid over it, without what the provider wanted formerly and no
// longer does. Everything else is left to those who wrote it. It is pure.
func mergeNode(current, wanted *corev1.Node, health error, now metav1.Time) (*corev1.Node, error) {
	before := ownedOf(current)
	next := current.DeepCopy()
	next.Labels = mergeMap(current.Labels, wanted.Labels, before.Labels)
	next.Annotations = mergeMap(current.Annotations, wanted.Annotations, before.Annotations)
	next.Spec.Taints = mergeTaints(current.Spec.Taints, wanted.Spec.Taints, before.Taints)
	if next.Spec.ProviderID == "" {
		next.Spec.ProviderID = wanted.Spec.ProviderID
	}
	mergeNodeStatus(&next.Status, &wanted.Status, before)
	next.Status.Conditions = mergeNodeConditions(current.Status.Conditions, wanted.Status.Conditions, health, now)

	own := owned{
		Labels:      sortedKeys(wanted.Labels),
		Annotations: sortedKeys(wanted.Annotations),
		Taints:      taintNames(ownTaints(wanted.Spec.Taints)),
		Capacity:    stillOwned(current.Status.Capacity, wanted.Status.Capacity, before.Capacity),
		Allocatable: stillOwned(current.Status.Allocatable, wanted.Status.Allocatable, before.Allocatable),
	}
	if len(wanted.Status.Allocatable) == 0 && maps.EqualFunc(current.Status.Allocatable, next.Status.Allocatable, resource.Quantity.Equal) {
		own.Allocatable = nil // it follows the capacity by now, and what others set of it from here on stays
	}
	text, err := json.Marshal(own)
	if err != nil {
		return nil, fmt.Errorf("cannot encode what the provider owns of the node: %w", err)
	}
	if next.Annotations == nil {
		next.Annotations = map[string]string{}
	}
	next.Annotations[annotationOwned] = string(text)
	return next, nil
}

// mergeNodeStatus lays the wanted status over next's, conditions aside. What is
// empty says nothing.
func mergeNodeStatus(next, wanted *corev1.NodeStatus, before owned) {
	capacity := next.Capacity
	next.Capacity = mergeMap(next.Capacity, wanted.Capacity, before.Capacity)
	next.Allocatable = mergeMap(next.Allocatable, wanted.Allocatable, before.Allocatable)
	if len(wanted.Allocatable) == 0 {
		next.Allocatable = allocatableOf(next.Capacity, capacity, next.Allocatable, before.Allocatable)
	}
	next.Phase = cmp.Or(wanted.Phase, next.Phase)
	mergeNodeInfo(&next.NodeInfo, &wanted.NodeInfo)
	next.DaemonEndpoints = cmp.Or(wanted.DaemonEndpoints, next.DaemonEndpoints)
	overlaySlice(&next.Addresses, wanted.Addresses)
	overlaySlice(&next.Images, wanted.Images)
	overlaySlice(&next.RuntimeHandlers, wanted.RuntimeHandlers)
	overlaySlice(&next.DeclaredFeatures, wanted.DeclaredFeatures)
	if wanted.Features != nil {
		next.Features = wanted.Features
	}
}

// allocatableOf returns what can be allocated of a capacity of which the provider says nothing else: all, as
// the API server has it where it is not reported at first. It does not follow later changes by itself. What others
// have set otherwise than the capacity before stays. Where the provider did report some, of which these names are left, what it
// did not report is missing, and follows, too.
func allocatableOf(capacity, before, allocatable corev1.ResourceList, reported []string) corev1.ResourceList {
	next := corev1.ResourceList{}
	for name, amount := range allocatable {
		was, had := before[name]
		if _, has := capacity[name]; has || !had || !was.Equal(amount) {
			next[name] = amount
		}
	}
	for name, amount := range capacity {
		was, had := before[name]
		if now, has := allocatable[name]; has == had && now.Equal(was) || !has && len(reported) > 0 {
			next[name] = amount
		}
	}
	return next
}

func mergeNodeInfo(next, wanted *corev1.NodeSystemInfo) {
	next.MachineID = cmp.Or(wanted.MachineID, next.MachineID)
	next.SystemUUID = cmp.Or(wanted.SystemUUID, next.SystemUUID)
	next.BootID = cmp.Or(wanted.BootID, next.BootID)
	next.KernelVersion = cmp.Or(wanted.KernelVersion, next.KernelVersion)
	next.OSImage = cmp.Or(wanted.OSImage, next.OSImage)
	next.ContainerRuntimeVersion = cmp.Or(wanted.ContainerRuntimeVersion, next.ContainerRuntimeVersion)
	next.KubeletVersion = cmp.Or(wanted.KubeletVersion, next.KubeletVersion)
	//lint:ignore SA1019 deprecated, but a provider's to fill in
	next.KubeProxyVersion = cmp.Or(wanted.KubeProxyVersion, next.KubeProxyVersion)
	next.OperatingSystem = cmp.Or(wanted.OperatingSystem, next.OperatingSystem)
	next.Architecture = cmp.Or(wanted.Architecture, next.Architecture)
	if wanted.Swap != nil {
		next.Swap = wanted.Swap.DeepCopy()
	}
}

// mergeNodeConditions lays the provider's conditions over the API's, with the
// Ready condition according to the provider's health.
func mergeNodeConditions(current, wanted []corev1.NodeCondition, health error, now metav1.Time) []corev1.NodeCondition {
	// Some providers give back the node that they have read: what was our own
	// report on it is not its own.
	ours := slices.DeleteFunc(slices.Clone(wanted), func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && (c.Reason == nodeNotReadyReason || c.Reason == nodeStoppedReason)
	})
	ready := slices.IndexFunc(ours, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
	if ready < 0 {
		ours = append(ours, corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: nodeReadyReason, Message: "virtual kubelet is posting ready status"})
		ready = len(ours) - 1
	}
	if health != nil {
		reason := nodeNotReadyReason
		if health == errStopped {
			reason = nodeStoppedReason
		}
		ours[ready] = corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: reason, Message: health.Error()}
	}
	merged := slices.Clone(current)
	for _, c := range ours {
		c.LastHeartbeatTime = now
		i := slices.IndexFunc(merged, func(m corev1.NodeCondition) bool { return m.Type == c.Type })
		switch {
		case i < 0:
			if c.LastTransitionTime.IsZero() || health != nil {
				c.LastTransitionTime = now
			}
			merged = append(merged, c)
		default:
			c.LastTransitionTime = now
			if merged[i].Status == c.Status {
				c.LastTransitionTime = merged[i].LastTransitionTime
			}
			merged[i] = c
		}
	}
	return merged
}

// mergeMap lays wanted over current, without the keys of before that are no
// longer wanted.
func mergeMap[K ~string, V any](current, wanted map[K]V, before []string) map[K]V {
	next := maps.Clone(current)
	if next == nil && len(wanted) > 0 {
		next = make(map[K]V, len(wanted))
	}
	for _, key := range before {
		if _, still := wanted[K(key)]; !still {
			delete(next, K(key))
		}
	}
	maps.Copy(next, wanted)
	return next
}

func mergeTaints(current, wanted []corev1.Taint, before []string) []corev1.Taint {
	wanted = ownTaints(wanted)
	ours := map[string]corev1.Taint{}
	for _, t := range wanted {
		ours[taintName(t)] = t
	}
	var next []corev1.Taint
	for _, t := range current {
		name := taintName(t)
		mine, still := ours[name]
		switch {
		case still && mine.Value != t.Value:
			next = append(next, mine)
		case still || isControlPlanes(t) || !slices.Contains(before, name):
			next = append(next, t)
		}
		delete(ours, name)
	}
	for _, t := range wanted {
		if _, missing := ours[taintName(t)]; missing {
			next = append(next, t)
			delete(ours, taintName(t))
		}
	}
	return next
}

// isControlPlanes reports whether a taint is one that the control plane sets and removes, such as not-ready. A node may be
// created with it, as by a kubelet that waits for its cloud's controller; from then on it is not the provider's, which
// may have it from a Node that it has read.
func isControlPlanes(t corev1.Taint) bool {
	return strings.HasPrefix(t.Key, "node.kubernetes.io/") || strings.HasPrefix(t.Key, "node.cloudprovider.kubernetes.io/")
}

func ownTaints(wanted []corev1.Taint) []corev1.Taint {
	if !slices.ContainsFunc(wanted, isControlPlanes) {
		return wanted
	}
	return slices.DeleteFunc(slices.Clone(wanted), isControlPlanes)
}

// withoutRead returns reported taints without those of the control plane that the node was not given at first: they come
// from a Node that was read, and would be put on one that is registered again.
func withoutRead(reported, given []corev1.Taint) []corev1.Taint {
	return slices.DeleteFunc(reported, func(t corev1.Taint) bool {
		return isControlPlanes(t) && !slices.ContainsFunc(given, func(g corev1.Taint) bool { return taintName(g) == taintName(t) })
	})
}

// taintName is what distinguishes taints in the API.
func taintName(t corev1.Taint) string { return t.Key + ":" + string(t.Effect) }

func taintNames(taints []corev1.Taint) []string {
	names := make([]string, 0, len(taints))
	for _, t := range taints {
		names = append(names, taintName(t))
	}
	slices.Sort(names)
	return names
}

func sortedKeys[K ~string, V any](m map[K]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, string(key))
	}
	slices.Sort(keys)
	return keys
}

// stillOwned are the names of the wanted resources, and of those that were so before as long as the
// node has them: the annotation is written before the status, which may fail.
func stillOwned(current, wanted corev1.ResourceList, before []string) []string {
	names := sortedKeys(wanted)
	for _, name := range before {
		_, there := current[corev1.ResourceName(name)]
		if _, still := wanted[corev1.ResourceName(name)]; there && !still {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func overlaySlice[T any](onto *[]T, with []T) {
	if len(with) > 0 {
		*onto = slices.Clone(with)
	}
}

// OverlayNode takes over in wanted what a provider has reported of the node, by the rules of
// NodeProvider.NotifyNodeStatus: a report with the name of the node is complete where it says
// anything, one without is partial. It keeps no reference to the report's maps and lists of
// taints. It is for what relays reports.
func OverlayNode(wanted, reported *corev1.Node) {
	overlayWanted(wanted, reported, wanted.Name)
}

// overlayWanted is OverlayNode with the name of the node.
func overlayWanted(wanted, reported *corev1.Node, name string) {
	complete := name != "" && reported.Name == name
	overlayMap(&wanted.Labels, reported.Labels, complete)
	overlayMap(&wanted.Annotations, reported.Annotations, complete)
	overlayMap((*map[corev1.ResourceName]resource.Quantity)(&wanted.Status.Capacity), reported.Status.Capacity, complete)
	overlayMap((*map[corev1.ResourceName]resource.Quantity)(&wanted.Status.Allocatable), reported.Status.Allocatable, complete)
	if reported.Spec.Taints != nil { // an empty list takes them back, none says nothing
		wanted.Spec.Taints = slices.Clone(reported.Spec.Taints)
	}
	wanted.Spec.ProviderID = cmp.Or(reported.Spec.ProviderID, wanted.Spec.ProviderID)
	status := reported.Status
	status.Capacity, status.Allocatable = nil, nil
	mergeNodeStatus(&wanted.Status, &status, owned{})
	for _, c := range reported.Status.Conditions {
		i := slices.IndexFunc(wanted.Status.Conditions, func(w corev1.NodeCondition) bool { return w.Type == c.Type })
		if i < 0 {
			wanted.Status.Conditions = append(wanted.Status.Conditions, c)
		} else {
			wanted.Status.Conditions[i] = c
		}
	}
}

func overlayMap[K ~string, V any](onto *map[K]V, with map[K]V, complete bool) {
	switch {
	case with == nil:
	case complete || *onto == nil:
		*onto = maps.Clone(with)
	default:
		next := maps.Clone(*onto) // which others may share
		maps.Copy(next, with)
		*onto = next
	}
}
