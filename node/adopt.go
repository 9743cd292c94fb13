package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// LabelProvider is the label of a Node whose value is the name of the provider
// that runs its pods.
const LabelProvider = "virtual-kubelet.io/provider"

// annotationLeftAlone is on a Node that was adopted from another provider: which
// pods which provider ran there.
const annotationLeftAlone = "virtual-kubelet.io/left-alone"

// ErrNodeRefused is what the errors have in common about a Node that is refused: by a
// Claim, since it belongs to somebody else, or by the API server.
var ErrNodeRefused = errors.New("the node is refused")

// check refuses a Node that is another provider's, or nobody's of our kind.
func (c *Claim) check(found *corev1.Node) error {
	if c.cfg.Provider == "" || c.cfg.Adopt {
		return nil
	}
	provider, labelled := found.Labels[LabelProvider]
	switch {
	case labelled && provider != c.cfg.Provider:
		return errdefs.AsConflict(fmt.Errorf("%w: Node %s is that of provider %q, and this is provider %q: use another node name, delete the Node once its pods have ended, or adopt it (--adopt-node)",
			ErrNodeRefused, found.Name, provider, c.cfg.Provider))
	case !labelled && found.Labels["type"] != "virtual-kubelet" && found.Annotations[annotationOwned] == "":
		return errdefs.AsConflict(fmt.Errorf("%w: Node %s was not made by a virtual kubelet: use another node name, or adopt it (--adopt-node)",
			ErrNodeRefused, found.Name))
	}
	return nil
}

// leftAlone are the pods that other providers run on the node, by the names of the
// providers.
type leftAlone struct {
	byProvider map[string][]types.UID
	uids       map[types.UID]bool // all of them
	pods       []corev1.Pod       // those that there are
}

func newLeftAlone(byProvider map[string][]types.UID) *leftAlone {
	left := &leftAlone{byProvider: map[string][]types.UID{}, uids: map[types.UID]bool{}}
	for provider, uids := range byProvider {
		left.byProvider[provider] = uids
		for _, uid := range uids {
			left.uids[uid] = true
		}
	}
	return left
}

// adopt finds out which pods of the Node have to be left alone: those that were so
// before and exist still, and those that run there if it is adopted now.
func (c *Claim) adopt(ctx context.Context, found *corev1.Node) error {
	before := map[string][]types.UID{}
	if text := found.Annotations[annotationLeftAlone]; text != "" {
		if err := json.Unmarshal([]byte(text), &before); err != nil {
			log.G(ctx).WithError(err).WithField("annotation", annotationLeftAlone).Error("Cannot read which pods another provider runs; none is left alone")
		}
	}
	ours := before[c.cfg.Provider] // it is this provider again
	delete(before, c.cfg.Provider)
	from := found.Labels[LabelProvider]
	adopted := c.cfg.Adopt && found.Name != "" && c.cfg.Provider != "" && from != c.cfg.Provider &&
		(from != "" || found.Annotations[annotationOwned] == "" && found.Labels["type"] != "virtual-kubelet")
	if len(before) == 0 && !adopted || c.cfg.Pods == nil {
		c.left.Store(newLeftAlone(before))
		return nil
	}
	pods, err := c.cfg.Pods(ctx)
	if err != nil {
		return fmt.Errorf("list the pods of node %s, which another provider may run: %w", c.cfg.Node, err)
	}
	pods = slices.DeleteFunc(slices.Clone(pods), func(pod corev1.Pod) bool { return slices.Contains(ours, pod.UID) })
	next := leaveAlone(before, pods, from, adopted)
	c.left.Store(next)
	if len(next.pods) > 0 {
		log.G(ctx).WithFields(log.Fields{"pods": len(next.pods), "provider": from}).
			Warn("Pods of the node are run by another provider; they are left alone until they are gone from the API")
	}
	if !adopted {
		return nil
	}
	return c.writeAdoption(ctx, found)
}

// writeAdoption writes whose the Node is, and which pods are left alone, before a pod is begun: who
// finds it as it was would take the pods of this provider for the other's.
func (c *Claim) writeAdoption(ctx context.Context, found *corev1.Node) error {
	before := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: found.Labels, Annotations: found.Annotations}}
	after := before.DeepCopy()
	after.ResourceVersion = found.ResourceVersion // it is still as it was when the pods were listed
	metav1.SetMetaDataLabel(&after.ObjectMeta, LabelProvider, c.cfg.Provider)
	if err := c.mark(after); err != nil {
		return err
	}
	patch, err := nodePatch(before, after)
	if err != nil {
		return err
	}
	began := time.Now()
	adopted, err := c.cfg.Nodes.Patch(ctx, c.cfg.Node, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("adopt node %s: %w", c.cfg.Node, err)
	}
	c.found.Store(&foundNode{adopted, began})
	return nil
}

// leaveAlone is which pods have to be left alone. It is pure.
func leaveAlone(before map[string][]types.UID, pods []corev1.Pod, from string, adopted bool) *leftAlone {
	next := newLeftAlone(nil)
	for _, pod := range pods {
		provider, known := from, false
		for name, uids := range before {
			if slices.Contains(uids, pod.UID) {
				provider, known = name, true
			}
		}
		if known || adopted && begun(&pod) {
			next.byProvider[provider] = append(next.byProvider[provider], pod.UID)
			next.uids[pod.UID] = true
			next.pods = append(next.pods, pod)
		}
	}
	return next
}

// begun reports whether somebody runs a pod, by its status.
func begun(pod *corev1.Pod) bool {
	switch pod.Status.Phase {
	case corev1.PodSucceeded, corev1.PodFailed:
		return false // nothing runs
	case corev1.PodPending, "":
		return pod.Status.StartTime != nil || len(pod.Status.ContainerStatuses)+len(pod.Status.InitContainerStatuses) > 0
	}
	return true
}

// LeftAlone reports whether another provider runs the pod, so that this process
// must not touch it. It is valid from Acquire on, and safe for concurrent use.
func (c *Claim) LeftAlone(pod *corev1.Pod) bool {
	left := c.left.Load()
	return left != nil && left.uids[pod.UID]
}

// PodsLeftAlone returns the pods that LeftAlone reports, as they were when the claim
// was acquired.
func (c *Claim) PodsLeftAlone() []corev1.Pod {
	if left := c.left.Load(); left != nil {
		return left.pods
	}
	return nil
}

// mark writes into the Node, whose annotations the caller owns, which pods have to
// be left alone. A nil Claim leaves it as it is.
func (c *Claim) mark(n *corev1.Node) error {
	if c == nil {
		return nil
	}
	left := c.left.Load()
	if left == nil || len(left.byProvider) == 0 {
		delete(n.Annotations, annotationLeftAlone)
		return nil
	}
	text, err := json.Marshal(left.byProvider)
	if err != nil {
		return fmt.Errorf("encode which pods are left alone: %w", err)
	}
	metav1.SetMetaDataAnnotation(&n.ObjectMeta, annotationLeftAlone, string(text))
	return nil
}
