package server

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// creations are those that have succeeded, in their order.
type creations struct {
	mu   sync.Mutex
	last int64
	pods map[types.NamespacedName]creation
}

type creation struct {
	number int64
	uid    types.UID
}

func nameOf(pod *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
}

// now returns the number of the last one.
func (c *creations) now() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

func (c *creations) record(pod *corev1.Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pods == nil {
		c.pods = map[types.NamespacedName]creation{}
	}
	c.last++
	c.pods[nameOf(pod)] = creation{c.last, pod.UID}
}

// since reports whether a pod was created after the one of a number.
func (c *creations) since(number int64, pod *corev1.Pod) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	found, ok := c.pods[nameOf(pod)]
	return ok && found.uid == pod.UID && found.number > number
}

// prune forgets the pods that are not held any more.
func (c *creations) prune(held []*corev1.Pod) {
	there := make(map[types.NamespacedName]bool, len(held))
	for _, pod := range held {
		there[nameOf(pod)] = true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for name := range c.pods {
		if !there[name] {
			delete(c.pods, name)
		}
	}
}
