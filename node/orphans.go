package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// orphanAfter is how many times in a row a pod of the provider has to be seen
// without its counterpart in the API before it is deleted.
const orphanAfter = 3

// spareRounds is for how many rounds a pod is left alone that was no orphan by
// the word of the API server: another node's, say, in a backend that is shared.
const spareRounds = 60

// findOrphans finds the orphans among the strays, once a round. The provider is not
// called: their end is the affair of the worker that has the key.
func (pc *PodController) findOrphans(ctx context.Context) {
	for _, pod := range pc.strays.count() {
		if ctx.Err() != nil {
			return
		}
		pc.judge(withPod(ctx, pod), pod)
	}
}

// judge makes sure with the API server itself that a stray is an orphan. If that
// cannot tell, it is asked again in the next round.
func (pc *PodController) judge(ctx context.Context, pod *corev1.Pod) {
	named, err := pc.namesake(ctx, pod)
	switch {
	case err == nil && (pc.identity.alike(named, pod) || pod.Spec.NodeName == "" && pc.backend.byUID == nil):
		pc.strays.spare(pod) // on another node, or not in the cache yet
		return
	case err == nil: // another pod of that name, elsewhere
	case !errdefs.IsOnlyNotFound(err):
		log.G(ctx).WithError(err).Warn("Cannot make sure that a pod of the provider is an orphan; it is left alone")
		return
	}
	log.G(ctx).Info("Found an orphan in the provider, which is deleted: the API has no such pod")
	pc.strays.condemn(pod)
	pc.syncs.Add(keyOf(pod))
}

// namesake returns the API server's pod of that name. To a node's own identity
// the API server does not say that a pod is gone, but that it may not read it;
// then the node's pods are asked for, which it may list.
func (pc *PodController) namesake(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	named, err := pc.client.Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	if !apierrors.IsForbidden(err) || pod.Spec.NodeName == "" {
		return named, err
	}
	is := fields.Set{"metadata.name": pod.Name, "spec.nodeName": pod.Spec.NodeName}
	list, listErr := pc.client.Pods(pod.Namespace).List(ctx, metav1.ListOptions{FieldSelector: is.String()})
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

// takeUp makes a record that has no pod one about an orphan of its name: that is
// killed then, and a pod which takes the name waits for its end.
func (pc *PodController) takeUp(key string, r *podRecord) {
	orphans := pc.strays.orphans(key)
	if len(orphans) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pod == nil {
		known := pc.strays.drop(orphans[0])
		pc.inherit(r, orphans[0], pc.heard.Load())
		r.asked, r.askedAt, r.ending = known.asked, known.askedAt, known.ending
	}
}

// endOrphans ends the orphans that the provider holds beside the pod of the record. An
// error means that it has to be tried again.
func (pc *PodController) endOrphans(ctx context.Context, key string, r *podRecord) (err error) {
	for _, pod := range pc.strays.orphans(key) {
		if !pc.isBeside(r, pod) {
			pc.strays.drop(pod) // the record's pod has the name
			continue
		}
		a, grace := pc.strays.next(pod, time.Now())
		switch a.verb {
		case doStop, doKill:
			if !pc.claim.MayGoOn() {
				pc.syncs.AddAfter(key, claimPoll)
				continue
			}
			found, failed := pc.backend.delete(withPod(ctx, pod), pod, grace)
			if failed != nil {
				log.G(withPod(ctx, pod)).WithError(failed).Warn("Cannot delete an orphan in the provider; it is tried again")
				err = failed
				continue
			}
			pc.strays.asked(pod, requestOf[a.verb], time.Now())
			if !found {
				pc.strays.drop(pod)
				continue
			}
			a, _ = pc.strays.next(pod, time.Now())
			pc.syncs.Revisit(key, a.after)
		case doWait:
			pc.syncs.Revisit(key, a.after)
		default:
			pc.strays.drop(pod)
		}
	}
	return err
}

var requestOf = map[verb]request{doStop: requestStop, doKill: requestKill}

// next decides about an orphan as about any pod that the API has no more, and returns
// the grace period that it gets. The lists show what becomes of it.
func (s *strays) next(pod *corev1.Pod, now time.Time) (action, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.find(keyOf(pod), pod.UID)
	if one == nil {
		return action{verb: doNothing}, 0 // no list shows it any more
	}
	one.ending.ends(one.pod, now)
	a := decide(view{
		now: now, wish: wishGone, provider: held, heldUID: pod.UID, stopped: isTerminal(one.pod.Status.Phase),
		asked: one.asked, askedAt: one.askedAt, deadline: one.ending.killAt(), inspected: now,
	})
	if a.verb == doKill {
		return a, 0
	}
	return a, one.ending.grace
}

// asked records what the provider has accepted to do about an orphan.
func (s *strays) asked(pod *corev1.Pod, how request, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if one := s.find(keyOf(pod), pod.UID); one != nil {
		one.asked, one.askedAt = how, now
		one.ending.stops(now)
	}
}

// inherit makes the record one about a pod that the provider holds and the API has no
// more. found is what the provider showed when it was asked, as the count of
// observations tells. r.mu is held.
func (pc *PodController) inherit(r *podRecord, found *corev1.Pod, asked uint64) {
	r.early = nil
	r.adopt(found)
	r.theirs = true
	r.inspected = time.Now()
	pc.take(r, found, asked)
}

// count takes note that another round has seen the strays, and returns those that it
// is time to make sure of.
func (s *strays) count() (pods []*corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, named := range s.byKey {
		for _, one := range named {
			if one.seen++; one.seen >= orphanAfter && !one.orphan {
				pods = append(pods, one.pod)
			}
		}
	}
	return pods
}

// waiting tells whether there are some that may be orphans.
func (s *strays) waiting() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, named := range s.byKey {
		if slices.ContainsFunc(named, func(one *stray) bool { return one.seen > 0 }) {
			return true
		}
	}
	return false
}

// spare leaves a stray alone for a while.
func (s *strays) spare(pod *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if one := s.find(keyOf(pod), pod.UID); one != nil {
		one.seen = -spareRounds
	}
}

// condemn makes an orphan of a stray, if it is one still.
func (s *strays) condemn(pod *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if one := s.find(keyOf(pod), pod.UID); one != nil {
		one.orphan = true
	}
}

// orphans returns those of a name.
func (s *strays) orphans(key string) []*corev1.Pod {
	return s.of(key, func(one *stray) bool { return one.orphan })
}

// confirmGone asks the API server itself whether the record's pod is gone, which only
// a list of it lacks: a list may be of an older state, or of a restored one. An error
// means that it is not known, or that the pod is there; the next try asks again, unless
// the watch shows the pod before.
func (pc *PodController) confirmGone(ctx context.Context, r *podRecord) error {
	r.mu.Lock()
	pod := r.pod
	r.mu.Unlock()
	named, err := pc.namesake(ctx, pod)
	switch {
	case err == nil && named.UID == pod.UID:
		return fmt.Errorf("pod %s is missing in a list of the API server, which has it all the same: waiting to see it", keyOf(pod))
	case err != nil && !errdefs.IsOnlyNotFound(err):
		return fmt.Errorf("cannot ask the API server whether pod %s is gone, which a list of it lacks: %w", keyOf(pod), err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.doubtful = false
	return nil
}
