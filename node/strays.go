package node

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

// strays are the pods that a provider has shown in its last list and that neither
// the API nor a record has: they went while nobody watched. Those that are no
// mistake are orphans.
type strays struct {
	mu     sync.Mutex
	listed bool // the provider has answered with a list
	byKey  map[string][]*stray
}

type stray struct {
	pod    *corev1.Pod
	seen   int  // in so many rounds of the patrol in a row
	orphan bool // the worker of its name is to see to its end

	// How that goes, where the provider holds it beside another pod of its name.
	asked   request
	askedAt time.Time
	ending  ending
}

// noteStrays takes what the provider has listed.
func (pc *PodController) noteStrays(ctx context.Context, found []*corev1.Pod) {
	var now []*corev1.Pod
	for _, pod := range found {
		if pc.isStray(ctx, pod) {
			now = append(now, pod)
		}
	}
	pc.strays.note(now)
}

// isStray tells whether neither the cache nor a record has a pod of this name. A
// name that they have is the sync's business, whatever the UID: unless the provider
// goes by UIDs, and can hold two pods of one name.
func (pc *PodController) isStray(ctx context.Context, pod *corev1.Pod) bool {
	if !pc.mayBeOurs(ctx, pod) {
		return false
	}
	if r := pc.records.get(keyOf(pod)); r != nil && !pc.isBeside(r, pod) {
		return false
	}
	ours, err := pc.pods.Get(pod.Namespace, pod.Name)
	return errdefs.IsOnlyNotFound(err) || err == nil && pc.backend.byUID != nil && pod.UID != "" && ours.UID != pod.UID
}

// isBeside tells whether the provider can hold a pod beside that of the record, whose
// name it has.
func (pc *PodController) isBeside(r *podRecord, pod *corev1.Pod) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return pc.backend.byUID != nil && pod.UID != "" && r.uid() != pod.UID
}

// note takes the strays of a list, and with them what is known of those that were in
// the last one.
func (s *strays) note(now []*corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	byKey := map[string][]*stray{}
	for _, pod := range now {
		key := keyOf(pod)
		known := s.find(key, pod.UID)
		if known == nil {
			known = &stray{}
		}
		known.pod = pod.DeepCopy()
		byKey[key] = append(byKey[key], known)
	}
	s.listed, s.byKey = true, byKey
}

// find returns a stray, or nil. s.mu is held.
func (s *strays) find(key string, uid types.UID) *stray {
	for _, known := range s.byKey[key] {
		if known.pod.UID == uid {
			return known
		}
	}
	return nil
}

// known tells whether the provider has answered with a list.
func (s *strays) known() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listed
}

// of returns the strays of a name for which which holds.
func (s *strays) of(key string, which func(*stray) bool) (pods []*corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.byKey[key] {
		if which(one) {
			pods = append(pods, one.pod)
		}
	}
	return pods
}

// drop forgets a stray, and returns what was known of it.
func (s *strays) drop(old *corev1.Pod) (known stray) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := keyOf(old)
	if one := s.find(key, old.UID); one != nil {
		known = *one
	}
	s.byKey[key] = slices.DeleteFunc(s.byKey[key], func(one *stray) bool { return one.pod.UID == old.UID })
	if len(s.byKey[key]) == 0 {
		delete(s.byKey, key)
	}
	return known
}

// predecessor returns a stray that has the name of a pod which is about to be
// created, or nil. It returns each once. Until the provider has listed its pods it
// is not known whether there is one. Only a provider that is asked by UID can have
// one: of an older pod of the same name it tells nothing.
func (pc *PodController) predecessor(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	if pc.backend.byUID == nil {
		return nil, nil
	}
	if !pc.strays.known() {
		found, err := pc.backend.list(ctx)
		if err != nil {
			return nil, fmt.Errorf("cannot list the provider's pods, to see whether one of that name is left: %w", err)
		}
		pc.noteStrays(ctx, found)
	}
	others := pc.strays.of(keyOf(pod), func(s *stray) bool { return s.pod.UID != "" && s.pod.UID != pod.UID })
	if len(others) == 0 {
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
	pc.strays.drop(others[0])
	return others[0], nil
}
