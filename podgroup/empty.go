package podgroup

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

// AnnotationPlace is the annotation of pods with the place of their units: see Options.Place.
const AnnotationPlace = "podgroup.virtual-kubelet.io/place"

// confirmEmpty returns an error, of class Unavailable, if a list without units cannot be
// true: all pods would count as gone.
func (p *Provider) confirmEmpty(ctx context.Context) error {
	pods, err := p.init.Pods.List(labels.Everything())
	if err != nil {
		return nil // the lister of a cache returns no error
	}
	pods = slices.DeleteFunc(pods, func(pod *corev1.Pod) bool { return p.statuses.createdIn(pod) == "" })
	if len(pods) == 0 {
		return nil
	}
	if err := confirmPlace(p.opts.Place, pods); err != nil {
		return errdefs.AsUnavailable(err)
	}
	confirmer, ok := p.backend.(EmptyConfirmer)
	if !ok {
		return nil
	}
	ran := pods[max(0, slices.IndexFunc(pods, func(pod *corev1.Pod) bool { return pod.DeletionTimestamp == nil }))]
	if err := confirmer.ConfirmEmpty(ctx, p.statuses.createdIn(ran), ran); err != nil {
		return errdefs.AsUnavailable(err)
	}
	return nil
}

// confirmPlace returns an error if pods that were created have no unit in a place because they
// were created in another one. Each pod that was created in the place confirms it: a user who
// changes the annotation of a pod does not stop the pods of others.
func confirmPlace(place string, pods []*corev1.Pod) error {
	if place == "" {
		return nil
	}
	var elsewhere *corev1.Pod
	for _, pod := range pods {
		switch pod.Annotations[AnnotationPlace] {
		case place:
			return nil
		case "": // not written yet
		default:
			elsewhere = pod
		}
	}
	if elsewhere == nil {
		return nil
	}
	return fmt.Errorf("the configuration leads to %q, where this node has no units, while pod %s/%s was created in %.200q: correct the configuration; "+
		"or, if its units may stay there without this node, delete the pods with --force", place, elsewhere.Namespace, elsewhere.Name, elsewhere.Annotations[AnnotationPlace])
}
