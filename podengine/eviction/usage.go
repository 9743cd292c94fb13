package eviction

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/virtual-kubelet/virtual-kubelet/podspec"
)

// Reason is that of pods that are evicted.
const Reason = "Evicted"

// Usage is what a pod uses, in bytes but for inodes and processes.
type Usage struct {
	Memory  int64            // working set, of all containers
	Volumes map[string]int64 // emptyDirs, by name
	// Storage and MemoryOf are what containers use, by name: logs and writable
	// layer, and the working set.
	Storage, MemoryOf map[string]int64
	Other             int64 // local storage that is of no volume and no container
	Inodes            int64 // of its local storage, volumes in memory left out
	Processes         int64
	// Layers and LayerInodes are what is in writable layers, of Storage and Inodes.
	Layers, LayerInodes int64
	// Apart is set if writable layers are with the images on a file system of their own: then
	// Victim counts for each signal what is on its file system.
	Apart bool
	// Unmeasured is set if the local storage was not measured to the end: the rest is what is
	// known of it. Victim has those with it first.
	Unmeasured bool
}

// Total is the pod's local storage. Volumes in memory are left out.
func (u Usage) Total(pod *corev1.Pod) (total int64) {
	for _, bytes := range u.Storage {
		total += bytes
	}
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; v.EmptyDir == nil || v.EmptyDir.Medium != corev1.StorageMediumMemory {
			total += u.Volumes[v.Name]
		}
	}
	return total + u.Other
}

// on is what is on the file system that a signal is about, of bytes or inodes, which are in layers in part.
func (u Usage) on(signal Signal, all, layers int64) int64 {
	switch {
	case !u.Apart:
		return all
	case signal.OfImages():
		return layers
	}
	return all - layers
}

// Limited reports whether a pod has limits of local storage.
func Limited(pod *corev1.Pod) bool {
	if _, ok := podspec.Limits(pod)[corev1.ResourceEphemeralStorage]; ok {
		return true
	}
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.EmptyDir != nil && v.EmptyDir.SizeLimit != nil && v.EmptyDir.SizeLimit.Sign() > 0
	})
}

// Exceeded is why a pod is evicted that uses more local storage than it may, in the
// kubelet's words; empty if it does not.
func Exceeded(pod *corev1.Pod, u Usage) string {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.EmptyDir == nil || v.EmptyDir.SizeLimit == nil || v.EmptyDir.SizeLimit.Sign() <= 0 {
			continue
		}
		if limit := v.EmptyDir.SizeLimit; u.Volumes[v.Name] > limit.Value() {
			return fmt.Sprintf("Usage of EmptyDir volume %q exceeds the limit %q. ", v.Name, limit)
		}
	}
	if limit, ok := podspec.Limits(pod)[corev1.ResourceEphemeralStorage]; ok && u.Total(pod) > limit.Value() {
		return fmt.Sprintf("Pod ephemeral local storage usage exceeds the total limit of containers %s. ", &limit)
	}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		if limit := c.Resources.Limits.StorageEphemeral(); !limit.IsZero() && u.Storage[c.Name] > limit.Value() {
			return fmt.Sprintf("Container %s exceeded its local ephemeral storage limit %q. ", c.Name, limit)
		}
	}
	return ""
}

// Critical reports whether a pod is one that the node does not evict, and admits
// under pressure: by its priority.
func Critical(pod *corev1.Pod) bool {
	const systemCritical = 2_000_000_000
	return pod.Spec.Priority != nil && *pod.Spec.Priority >= systemCritical
}

// Victim is the pod to evict first when there is too little of something: one that
// uses more than it requests, of the lowest priority, that exceeds its request the
// most, the youngest of several. If it is process IDs, it is of the lowest priority and has
// the most processes. If it is storage, one that is Unmeasured goes before all others. It is nil if there
// is none that may be evicted.
func Victim(signal Signal, pods []*corev1.Pod, usage func(*corev1.Pod) Usage) *corev1.Pod {
	type candidate struct {
		pod     *corev1.Pod
		beyond  bool  // whether it uses more than it requests
		exceeds int64 // what it uses beyond its request
		unknown bool  // whether it may be more
	}
	var all []candidate
	for _, pod := range pods {
		if Critical(pod) {
			continue
		}
		c := candidate{pod: pod}
		u, requests := usage(pod), podspec.Requests(pod)
		switch meaning[signal].resource {
		case resourcePIDs:
			c.exceeds = u.Processes
		case corev1.ResourceMemory:
			c.exceeds = u.Memory - requests.Memory().Value()
		case resourceInodes:
			c.exceeds, c.unknown = u.on(signal, u.Inodes, u.LayerInodes), u.Unmeasured // nobody can request them
		case corev1.ResourceEphemeralStorage:
			c.exceeds, c.unknown = u.on(signal, u.Total(pod), u.Layers)-requests.StorageEphemeral().Value(), u.Unmeasured
		}
		c.beyond = c.exceeds > 0 && signal != PIDAvailable // of which nobody requests any
		all = append(all, c)
	}
	if len(all) == 0 {
		return nil
	}
	return slices.MinFunc(all, func(a, b candidate) int {
		return cmp.Or(
			compareBool(b.unknown, a.unknown),
			compareBool(b.beyond, a.beyond),
			cmp.Compare(priority(a.pod), priority(b.pod)),
			cmp.Compare(b.exceeds, a.exceeds),
			b.pod.CreationTimestamp.Compare(a.pod.CreationTimestamp.Time),
			cmp.Compare(a.pod.UID, b.pod.UID),
		)
	}).pod
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

func priority(pod *corev1.Pod) int32 {
	if pod.Spec.Priority == nil {
		return 0
	}
	return *pod.Spec.Priority
}

// Message is why a pod is evicted from a node that has too little of something, in
// the kubelet's words.
func Message(signal Signal, threshold Threshold, level Level, pod *corev1.Pod, u Usage) string {
	name := meaning[signal].resource
	format := resource.BinarySI
	if name == resourceInodes || name == resourcePIDs {
		format = resource.DecimalSI
	}
	quantity := resource.NewQuantity(threshold.Of(level.Capacity), format)
	var text strings.Builder
	fmt.Fprintf(&text, "The node was low on resource: %s. Threshold quantity: %s, available: %s. ", name, quantity, resource.NewQuantity(level.Available, format))
	used := map[corev1.ResourceName]map[string]int64{corev1.ResourceMemory: u.MemoryOf, corev1.ResourceEphemeralStorage: u.Storage}[name]
	for _, containers := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range containers {
			c := &containers[i]
			request := c.Resources.Requests[name]
			if bytes, ok := used[c.Name]; ok && bytes > request.Value() {
				fmt.Fprintf(&text, "Container %s was using %s, request is %s, has larger consumption of %s. ", c.Name, resource.NewQuantity(bytes, resource.BinarySI), &request, name)
			}
		}
	}
	return text.String()
}
