package podlifecycle

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/internal/apierror"
	"github.com/virtual-kubelet/virtual-kubelet/log"
)

const (
	// orphanAfter is how many times in a row a pod of the provider has to be seen
	// without its counterpart in the API before it is deleted.
	orphanAfter = 3
	// snoozeRounds is for how many rounds a pod is left alone that is no orphan by the
	// API server's answer: another node's, say, in a backend that is shared.
	snoozeRounds = 60
)

// candidates are the pods that a provider has shown in its last list and that neither
// the API nor a record has: they went while nobody watched. Those that are no
// mistake become orphans: records of which the API has no pod.
type candidates struct {
	mu     sync.Mutex
	listed bool // the provider has answered with a list
	byID   map[types.UID]*candidate
}

type candidate struct {
	pod  *corev1.Pod
	seen int // in so many lists in a row
}

// recordCandidates records which pods of a list are candidates.
func (pc *Controller) recordCandidates(ctx context.Context, listed []*corev1.Pod) {
	var now []*corev1.Pod
	for _, pod := range listed {
		if pc.mayBeOurs(ctx, pod) && pc.backend.identify(pod).unknown {
			now = append(now, pod)
		}
	}
	c := &pc.candidates
	c.mu.Lock()
	defer c.mu.Unlock()
	byID := make(map[types.UID]*candidate, len(now))
	for _, pod := range now {
		next := &candidate{pod: pod.DeepCopy()}
		if known := c.byID[idOf(pod)]; known != nil {
			next.seen = known.seen
		}
		byID[idOf(pod)] = next
	}
	c.listed, c.byID = true, byID
}

// known reports whether the provider has answered with a list.
func (c *candidates) known() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.listed
}

// named returns the candidates of a name.
func (c *candidates) named(name types.NamespacedName) (pods []*corev1.Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range c.byID {
		if nameOf(one.pod) == name {
			pods = append(pods, one.pod)
		}
	}
	return pods
}

// count records that another round has seen the candidates, and returns those that it
// is time to confirm.
func (c *candidates) count() (pods []*corev1.Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range c.byID {
		if one.seen++; one.seen >= orphanAfter {
			pods = append(pods, one.pod)
		}
	}
	return pods
}

// waiting reports whether there are some that may be orphans.
func (c *candidates) waiting() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range c.byID {
		if one.seen > 0 {
			return true
		}
	}
	return false
}

// snooze leaves a candidate alone for a while.
func (c *candidates) snooze(pod *corev1.Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if one := c.byID[idOf(pod)]; one != nil {
		one.seen = -snoozeRounds
	}
}

func (c *candidates) drop(pod *corev1.Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.byID, idOf(pod))
}

// findOrphans finds the orphans among the candidates, once a round. The provider is not
// called.
func (pc *Controller) findOrphans(ctx context.Context) {
	for _, pod := range pc.candidates.count() {
		if ctx.Err() != nil {
			return
		}
		pc.confirmOrphan(withPod(ctx, pod), pod)
	}
}

// confirmOrphan asks the API server itself whether a candidate is an orphan. If that
// is not known, it is asked again in the next round.
func (pc *Controller) confirmOrphan(ctx context.Context, pod *corev1.Pod) {
	named, err := pc.namesake(ctx, pod)
	switch {
	case err == nil && pc.backend.mayBe(named, pod):
		pc.candidates.snooze(pod) // on another node, or not in the cache yet
		return
	case err == nil: // another pod of that name, elsewhere
	case !apierror.IsNotFound(err):
		log.G(ctx).WithError(err).Warn("Cannot confirm that a pod of the provider is an orphan; it is left alone")
		return
	}
	if pc.adoptOrphan(pod, false, pc.observations.Load()) {
		log.G(ctx).Info("Found an orphan in the provider, which is deleted: the API has no such pod")
	}
}

// adoptOrphan adds the record of a pod that the provider holds and the API does not
// have, and reports whether there is one. found is what the provider showed when it was
// asked, by the count of observations.
func (pc *Controller) adoptOrphan(found *corev1.Pod, namesake bool, since uint64) bool {
	pc.candidates.drop(found)
	id, ok := pc.backend.adopt(found, namesake)
	if !ok {
		return false
	}
	r, added := pc.records.getOrAdd(id, found, true)
	if added {
		r.mu.Lock()
		r.inspectedAt = time.Now()
		pc.recordHeld(r, found, since)
		r.mu.Unlock()
	}
	pc.syncs.Add(r.key())
	return true
}

// findNamesakes returns the older pods that a provider which goes by UIDs has shown of the
// name of a pod that is about to be created. Until the provider has listed its pods it is
// not known whether there are some.
func (pc *Controller) findNamesakes(ctx context.Context, pod *corev1.Pod) ([]*corev1.Pod, error) {
	if pc.calls.byUID == nil {
		return nil, nil // its answer was about the name
	}
	if !pc.candidates.known() {
		listed, err := pc.backend.list(ctx)
		if err != nil {
			return nil, fmt.Errorf("cannot list the provider's pods, to see whether one of that name is left: %w", err)
		}
		pc.recordCandidates(ctx, listed)
	}
	others := pc.candidates.named(nameOf(pod))
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
	return others, nil
}

// namesake returns the API server's pod of that name. To a node's own identity
// the API server does not say that a pod is gone, but that it may not read it;
// then the node's pods are asked for, which it may list.
func (pc *Controller) namesake(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, readTimeout, fmt.Errorf("the API server has not answered in %v", readTimeout))
	defer cancel()
	named, err := pc.cfg.PodClient.Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	if !apierrors.IsForbidden(err) || pod.Spec.NodeName == "" {
		return named, err
	}
	is := fields.Set{"metadata.name": pod.Name, "spec.nodeName": pod.Spec.NodeName}
	list, listErr := pc.cfg.PodClient.Pods(pod.Namespace).List(ctx, metav1.ListOptions{FieldSelector: is.String()})
	if listErr != nil {
		return nil, errors.Join(err, listErr)
	}
	for i := range list.Items {
		if list.Items[i].Name == pod.Name {
			return &list.Items[i], nil
		}
	}
	return nil, apierrors.NewNotFound(corev1.Resource("pods"), pod.Name)
}

// confirmGone asks the API server itself whether a pod is gone that the cache lacks,
// although the watch has not reported that: a list lacked it, which may be of an older
// state, or of a restored one. An error means that it is not known, or that the pod is
// there; the next try asks again, unless the watch shows the pod before.
func (pc *Controller) confirmGone(ctx context.Context, r *podRecord) error {
	pod := r.form()
	named, err := pc.namesake(ctx, pod)
	switch {
	case err == nil && named.UID == pod.UID:
		return fmt.Errorf("pod %s is missing in a list of the API server, which has it all the same: waiting to see it", r.name)
	case err != nil && !apierror.IsNotFound(err):
		return fmt.Errorf("cannot ask the API server whether pod %s is gone, which a list of it lacks: %w", r.name, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gone = true
	return nil
}
