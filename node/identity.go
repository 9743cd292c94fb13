package node

import (
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// clockSkew is how far the clocks of a backend and the API server may differ
// when creation times are compared.
const clockSkew = time.Minute

// identity decides whether a pod that the provider shows under a name is the
// one that the API has under that name, or an older one.
//
// Some providers keep the UIDs that they are given, some have their own, some
// none. One that was seen to know a UID of ours keeps them, and from then on a
// different one means a different pod. (One that finds its pods by UID does so
// from the start.) Before that only a creation time that is clearly older tells.
type identity struct {
	keepsUIDs atomic.Bool
}

// same tells whether found, which comes from the provider, is pod, which comes
// from the API and has the same name.
func (i *identity) same(pod, found *corev1.Pod) bool {
	if found.UID != "" && found.UID == pod.UID {
		i.keepsUIDs.Store(true)
	}
	return i.alike(pod, found)
}

// alike is same for a pod that may come from the provider too, from which
// nothing can be learned.
func (i *identity) alike(pod, found *corev1.Pod) bool {
	if found.UID == pod.UID {
		return true
	}
	if found.UID != "" && i.keepsUIDs.Load() {
		return false
	}
	born := found.CreationTimestamp
	return born.IsZero() || !born.Add(clockSkew).Before(pod.CreationTimestamp.Time)
}
