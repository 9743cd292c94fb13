package server

import (
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// creations are those that have succeeded, in their order.
type creations struct {
	mu    sync.Mutex
	last  int64
	swept time.Time
	pods  map[types.NamespacedName]creation
}

type creation struct {
	number int64
	at     time.Time
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
	now := time.Now()
	c.pods[nameOf(pod)] = creation{c.last, now, pod.UID}
	if now.Sub(c.swept) >= sweepInterval {
		c.swept = now
		// A call that waited for one that succeeded gets its turn at once.
		maps.DeleteFunc(c.pods, func(_ types.NamespacedName, made creation) bool { return now.Sub(made.at) > keepFor })
	}
}

// since reports whether a pod was created after the one of a number.
func (c *creations) since(number int64, pod *corev1.Pod) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	found, ok := c.pods[nameOf(pod)]
	return ok && found.uid == pod.UID && found.number > number
}
