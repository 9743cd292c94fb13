package node

import (
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
)

// strays are the pods that a provider has shown in its last list and that neither
// the API nor a record has: they went while nobody watched. A provider that is asked
// by UID tells nothing of an older pod of the same name, and could be given another
// one beside it before the first counts as an orphan.
type strays struct {
	mu     sync.Mutex
	listed bool // the provider has answered with a list
	byKey  map[string][]*corev1.Pod
}

// noteStrays takes what the provider has listed.
func (pc *PodController) noteStrays(ctx context.Context, found []*corev1.Pod) {
	if pc.strays == nil {
		return
	}
	byKey := map[string][]*corev1.Pod{}
	for _, pod := range found {
		if pc.isStray(ctx, pod) {
			byKey[keyOf(pod)] = append(byKey[keyOf(pod)], pod.DeepCopy())
		}
	}
	pc.strays.mu.Lock()
	defer pc.strays.mu.Unlock()
	pc.strays.listed, pc.strays.byKey = true, byKey
}

func (pc *PodController) isStray(ctx context.Context, pod *corev1.Pod) bool {
	if pod.UID == "" || !pc.mayBeOurs(ctx, pod) {
		return false
	}
	ours, err := pc.podInAPI(ctx, pod.Namespace, pod.Name)
	if err != nil || ours != nil && ours.UID == pod.UID {
		return false
	}
	r := pc.records.get(keyOf(pod))
	if r == nil {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.uid() != pod.UID
}

// predecessor returns a stray that has the name of a pod which is about to be
// created, or nil. It returns each once. Until the provider has listed its pods it
// is not known whether there is one.
func (pc *PodController) predecessor(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	if pc.strays == nil {
		return nil, nil
	}
	if !pc.strays.known() {
		found, err := pc.backend.list(ctx)
		if err != nil {
			return nil, fmt.Errorf("cannot list the provider's pods, to see whether one of that name is left: %w", err)
		}
		pc.noteStrays(ctx, found)
	}
	old := pc.strays.first(pod)
	if old == nil {
		return nil, nil
	}
	// The cache may be behind: then it is the other way round.
	named, err := pc.namesake(ctx, pod)
	if err != nil {
		return nil, fmt.Errorf("cannot ask the API server which of the pods of that name is gone: %w", err)
	}
	if named.UID != pod.UID {
		return nil, fmt.Errorf("the API server has another pod of that name by now, %s: waiting to see it", named.UID)
	}
	pc.strays.drop(old)
	return old, nil
}

func (s *strays) known() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listed
}

// first returns one that has the name of pod, and is another, or nil.
func (s *strays) first(pod *corev1.Pod) *corev1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, old := range s.byKey[keyOf(pod)] {
		if old.UID != pod.UID {
			return old
		}
	}
	return nil
}

func (s *strays) drop(old *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := keyOf(old)
	s.byKey[key] = slices.DeleteFunc(s.byKey[key], func(p *corev1.Pod) bool { return p.UID == old.UID })
	if len(s.byKey[key]) == 0 {
		delete(s.byKey, key)
	}
}
