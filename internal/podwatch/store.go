package podwatch

import (
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/virtual-kubelet/virtual-kubelet/internal/listwatch"
)

// store is the watch as its reflector sees it.
type store struct{ *Watch }

// Add implements cache.ReflectorStore.
func (s store) Add(obj any) error {
	if pod, ok := obj.(*corev1.Pod); ok {
		if pods := s.of(pod.Spec.NodeName); pods != nil {
			listwatch.Trim(pod)
			pods.set(pod)
		}
	}
	return nil
}

// Update implements cache.ReflectorStore.
func (s store) Update(obj any) error { return s.Add(obj) }

// Delete implements cache.ReflectorStore.
func (s store) Delete(obj any) error {
	if pod, ok := obj.(*corev1.Pod); ok {
		if pods := s.of(pod.Spec.NodeName); pods != nil {
			listwatch.Trim(pod)
			pods.delete(pod)
		}
	}
	return nil
}

// Replace implements cache.ReflectorStore. Members of now were members when the
// list began, so that what is not in it does not exist.
func (s store) Replace(all []any, resourceVersion string) error {
	found := map[string][]*corev1.Pod{}
	for _, obj := range all {
		if pod, ok := obj.(*corev1.Pod); ok {
			listwatch.Trim(pod)
			found[pod.Spec.NodeName] = append(found[pod.Spec.NodeName], pod)
		}
	}
	// A reflector does not go back by itself: then the API's data were restored from a backup, and no list is newer.
	wentBack := s.shown.list(resourceVersion)
	for name, pods := range s.members() {
		if wentBack {
			pods.goBack()
		}
		pods.replace(found[name], resourceVersion)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.synced = true
	select {
	case <-s.settled:
	default:
		close(s.settled)
	}
	return nil
}

// Resync implements cache.ReflectorStore.
func (s store) Resync() error {
	for _, pods := range s.members() {
		pods.resync()
	}
	return nil
}

func (w *Watch) members() map[string]*Pods {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return maps.Clone(w.nodes)
}

// shown is the newest resource version that the watch has shown, also of pods that are kept for no node.
type shown struct {
	mu      sync.Mutex
	version string
}

// event takes the version of an event. A list that comes as events begins with old ones.
func (s *shown) event(version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.version == "" || older(s.version, version) {
		s.version = version
	}
}

// list takes the version of a list, and reports whether it is older than what was shown before.
func (s *shown) list(version string) (wentBack bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	wentBack = older(version, s.version)
	s.version = version
	return wentBack
}

var _ cache.ReflectorStore = store{}
