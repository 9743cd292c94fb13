package node

import (
	"context"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletapis "k8s.io/kubelet/pkg/apis"

	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// What follows is for a process that is the node to the API server, the user
// system:node:NAME, and not some service account: the NodeRestriction admission
// keeps a node from giving itself labels that steer workloads, and from changing
// its taints once it is registered. One thing that is not allowed has the whole
// request refused, so that it is left out.
//
// https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#noderestriction

// reservedLabel reports whether a node may not change the label on itself.
func reservedLabel(key string) bool {
	domain, _, _ := strings.Cut(key, "/")
	if domain == key {
		return false
	}
	in := func(parent string) bool { return domain == parent || strings.HasSuffix(domain, "."+parent) }
	return in(corev1.LabelNamespaceNodeRestriction) || (in("kubernetes.io") || in("k8s.io")) && !kubeletapis.IsKubeletLabel(key)
}

// asItself returns what of wanted a node can have that writes it itself: of the
// reserved labels, and of the taints, what the API's node has anyway. It is pure.
func asItself(current, wanted *corev1.Node) *corev1.Node {
	before := ownedOf(current)
	possible := wanted.DeepCopy()
	if possible.Labels == nil {
		possible.Labels = map[string]string{}
	}
	maps.DeleteFunc(possible.Labels, func(key, _ string) bool { return reservedLabel(key) })
	for key, value := range current.Labels {
		if _, asked := wanted.Labels[key]; reservedLabel(key) && (asked || slices.Contains(before.Labels, key)) {
			possible.Labels[key] = value
		}
	}
	ours := append(taintNames(wanted.Spec.Taints), before.Taints...)
	possible.Spec.Taints = slices.DeleteFunc(slices.Clone(current.Spec.Taints), func(t corev1.Taint) bool {
		return !slices.Contains(ours, taintName(t))
	})
	return possible
}

// create creates the node; as itself if it may not have all that is wanted.
func (n *NodeController) create(ctx context.Context, now metav1.Time) (*corev1.Node, error) {
	wanted := n.want(nil)
	less := asItself(&corev1.Node{Spec: wanted.Spec}, wanted)
	attempt := func(wanted *corev1.Node) (*corev1.Node, error) {
		fresh, err := newNode(wanted, n.health, now)
		if err != nil {
			return nil, err
		}
		if err := n.claim.mark(fresh); err != nil {
			return nil, err
		}
		return n.nodes.Create(ctx, fresh, metav1.CreateOptions{})
	}
	if n.itself {
		n.logLeftOut(ctx, wanted, less)
		return attempt(less)
	}
	node, err := attempt(wanted)
	if !apierrors.IsForbidden(err) || equality.Semantic.DeepEqual(less, wanted) {
		return node, err
	}
	node, lessErr := attempt(less)
	if lessErr != nil {
		return nil, err // which is about what was asked for
	}
	n.itself = true
	n.logLeftOut(ctx, wanted, less)
	return node, nil
}

// writeMetadata writes labels, annotations and taints, and returns the node as
// it should be; as itself if it may not have all that is wanted.
func (n *NodeController) writeMetadata(ctx context.Context, wanted *corev1.Node, now metav1.Time) (*corev1.Node, error) {
	attempt := func(wanted *corev1.Node) (*corev1.Node, error) {
		next, err := mergeNode(n.current, wanted, n.health, now)
		if err != nil {
			return nil, err
		}
		if err := n.claim.mark(next); err != nil {
			return nil, err
		}
		return next, n.updateMetadata(ctx, next)
	}
	if n.itself {
		less := asItself(n.current, wanted)
		n.logLeftOut(ctx, wanted, less)
		return attempt(less)
	}
	next, err := attempt(wanted)
	if !apierrors.IsForbidden(err) {
		return next, err
	}
	before, less := n.current, asItself(n.current, wanted)
	if next, lessErr := attempt(less); lessErr == nil && (n.current != before || refusesItself(err)) {
		n.itself = true
		n.logLeftOut(ctx, wanted, less)
		return next, nil
	}
	return next, err
}

// refusesItself reports whether the refusal is that of NodeRestriction, and not
// one of somebody who may not change the node at all. Where the text should be
// another one day, what the node may not have is asked for again and again.
func refusesItself(err error) bool { return strings.Contains(err.Error(), "is not allowed to modify") }

// logLeftOut logs what the node cannot have, once.
func (n *NodeController) logLeftOut(ctx context.Context, wanted, possible *corev1.Node) {
	var labels, taints []string
	for key, value := range wanted.Labels {
		if got, ok := possible.Labels[key]; !ok || got != value {
			labels = append(labels, key)
		}
	}
	slices.Sort(labels)
	if !equality.Semantic.DeepEqual(taintSet(wanted.Spec.Taints), taintSet(possible.Spec.Taints)) {
		taints = taintNames(wanted.Spec.Taints)
	}
	what := strings.Join(labels, " ") + "," + strings.Join(taints, " ")
	if what == n.leftOut {
		return
	}
	n.leftOut = what
	if len(labels)+len(taints) > 0 {
		log.G(ctx).WithFields(log.Fields{"labels": strings.Join(labels, ","), "taints": strings.Join(taints, ",")}).
			Info("A node may not give itself these labels, or change its taints (NodeRestriction); they are left to an administrator")
	}
}

func taintSet(taints []corev1.Taint) map[string]string {
	set := map[string]string{}
	for _, t := range taints {
		set[taintName(t)] = t.Value
	}
	return set
}
