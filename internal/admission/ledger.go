package admission

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Ledger keeps account of the pods that were admitted to a node. Once admitted a pod
// stays so, also when the node shrinks. The zero value is an empty one. It is safe
// for concurrent use.
type Ledger struct {
	mu   sync.Mutex
	pods map[types.UID]usage
	sum  taken
}

// Admit admits a pod if there is room for it on node, beside those that were admitted
// before, and returns why not if there is none. It does not change pod or node.
func (l *Ledger) Admit(pod *corev1.Pod, node *corev1.Node) *Rejection {
	wants := usageOf(pod)
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, admitted := l.pods[pod.UID]; admitted {
		return nil
	}
	if rejection := check(pod, wants, node, &l.sum); rejection != nil {
		return rejection
	}
	l.add(pod.UID, wants)
	return nil
}

// Has reports whether a pod was admitted.
func (l *Ledger) Has(uid types.UID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, admitted := l.pods[uid]
	return admitted
}

// Len returns the number of pods that were admitted.
func (l *Ledger) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.pods)
}

// Update takes account of what an admitted pod asks for by now. It does nothing about
// others.
func (l *Ledger) Update(pod *corev1.Pod) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if before, admitted := l.pods[pod.UID]; admitted {
		l.remove(pod.UID, before)
		l.add(pod.UID, usageOf(pod))
	}
}

// Recount takes pods for all that the node may have: those that were admitted, or
// that run, stay or become admitted regardless of the room; all others are forgotten.
func (l *Ledger) Recount(pods []*corev1.Pod, runs func(*corev1.Pod) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.pods
	l.pods, l.sum = nil, taken{}
	for _, pod := range pods {
		if _, admitted := before[pod.UID]; admitted || runs(pod) {
			l.add(pod.UID, usageOf(pod))
		}
	}
}

// add takes account of a pod. l.mu is held.
func (l *Ledger) add(uid types.UID, u usage) {
	if l.pods == nil {
		l.pods = map[types.UID]usage{}
		l.sum = taken{requests: amounts{}, ports: map[port]int{}}
	}
	l.pods[uid] = u
	l.sum.pods++
	for _, r := range u.requests {
		l.sum.requests[r.name] += r.amount
	}
	for _, p := range u.ports {
		l.sum.ports[p]++
	}
}

// remove undoes add. l.mu is held.
func (l *Ledger) remove(uid types.UID, u usage) {
	delete(l.pods, uid)
	l.sum.pods--
	for _, r := range u.requests {
		l.sum.requests[r.name] -= r.amount
	}
	for _, p := range u.ports {
		if l.sum.ports[p]--; l.sum.ports[p] == 0 {
			delete(l.sum.ports, p)
		}
	}
}
