package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/cmd/virtual-kubelet/nodepools"
	"github.com/virtual-kubelet/virtual-kubelet/internal/nodemarks"
	"github.com/virtual-kubelet/virtual-kubelet/log"
)

const (
	// stoppedTime is for how long a Node has to be seen to be stopped before it is
	// deleted: so long somebody else may need to go on with it, or to correct the
	// file, or a kubelet to say that the Node is its own.
	stoppedTime = time.Minute
	// keptTime is how long it may take until a Node is seen to be stopped. For one
	// whose process was killed the control plane needs a minute, or what it was told
	// to wait.
	keptTime = 5 * time.Minute
)

// leftNode is a Node of this file whose node the file does not have.
type leftNode struct {
	uid     types.UID
	seen    time.Time // first
	stopped time.Time // since when; zero while it is not
	foreign bool      // somebody keeps it, so that it is not this file's alone
}

// look takes what the API has of the Node, and tells whether it can be deleted.
func (l *leftNode) look(n *corev1.Node, now time.Time) (deletable bool) {
	if l.seen.IsZero() || l.uid != n.UID {
		*l = leftNode{uid: n.UID, seen: now}
	}
	switch {
	case !nodemarks.Stopped(n):
		l.stopped = time.Time{}
		l.foreign = l.foreign || now.Sub(l.seen) >= keptTime
	case l.stopped.IsZero():
		l.stopped = now
	}
	return !l.foreign && !l.stopped.IsZero() && now.Sub(l.stopped) >= stoppedTime
}

// deleteLeft deletes the Nodes of this file whose nodes the file does not have,
// whether those went now or while no process ran. It has to be called again while
// waiting: then there are some of which it is not sure yet, or for which it did not
// work.
func (f *virtualFleet) deleteLeft(ctx context.Context, wanted *nodepools.Wanted) (waiting bool, err error) {
	if !wanted.DeleteNodes {
		clear(f.left)
		return false, nil
	}
	list, err := f.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: labels.Set{nodepools.Label: wanted.Name}.String()})
	if err != nil {
		return true, fmt.Errorf("cannot look for Nodes whose nodes are not in the file: %w", err)
	}
	var due []*corev1.Node
	left, foreign := map[string]leftNode{}, []string(nil)
	for _, n := range f.notWanted(list.Items, wanted) {
		l := f.left[n.Name]
		if l.look(n, time.Now()) {
			due = append(due, n)
		}
		if l.foreign {
			foreign = append(foreign, n.Name)
		}
		left[n.Name] = l
	}
	if len(left) > len(f.left) {
		log.G(ctx).WithFields(log.Fields{"nodes": len(left), "after": stoppedTime.String()}).
			Info("There are Nodes of this file that it does not have; they are deleted once they were stopped for a while")
	}
	f.left = left
	err = f.deleteNodes(ctx, due)
	if len(foreign) > 0 {
		err = errors.Join(err, fmt.Errorf("somebody keeps %d Nodes with the label %s=%s that are not in the file, %s among them: they are not deleted; see to it that no other file has this name",
			len(foreign), nodepools.Label, wanted.Name, foreign[0]))
	}
	return len(f.left) > 0, err
}

// notWanted are those Nodes that carry the file's label by our own doing, and whose
// nodes the file does not have, as far as this process has to do with them.
func (f *virtualFleet) notWanted(nodes []corev1.Node, wanted *nodepools.Wanted) (left []*corev1.Node) {
	has := make(map[string]bool, len(wanted.Nodes))
	for _, n := range wanted.Nodes {
		has[n.Name] = true
	}
	for i := range nodes {
		n := &nodes[i]
		mine := f.mine == nil || f.mine(n.Name)
		if mine && !has[n.Name] && f.fleet.Node(n.Name) == nil && nodemarks.WroteLabel(n, nodepools.Label) {
			left = append(left, n)
		}
	}
	return left
}

// deleteNodes deletes Nodes as they were seen. Those for which it does not work
// stay in f.left.
func (f *virtualFleet) deleteNodes(ctx context.Context, nodes []*corev1.Node) error {
	errs := make([]error, len(nodes))
	var deleting errgroup.Group
	deleting.SetLimit(maxRemovals)
	for i, n := range nodes {
		deleting.Go(func() error { errs[i] = f.deleteNode(ctx, n); return nil })
	}
	_ = deleting.Wait() // the errors are in errs
	for i, n := range nodes {
		switch {
		case errs[i] == nil, apierrors.IsNotFound(errs[i]):
			errs[i] = nil
			delete(f.left, n.Name)
		case apierrors.IsConflict(errs[i]): // it is looked at again
			errs[i] = nil
		default:
			errs[i] = fmt.Errorf("cannot delete Node %s, whose node is gone: %w", n.Name, errs[i])
		}
	}
	return errors.Join(errs...)
}

// deleteNode deletes a Node unless somebody has written it since.
func (f *virtualFleet) deleteNode(ctx context.Context, n *corev1.Node) error {
	pods, err := f.client.CoreV1().Pods(f.namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", n.Name).String(), ResourceVersion: "0"})
	if err != nil {
		return err
	}
	asSeen := metav1.Preconditions{UID: &n.UID, ResourceVersion: &n.ResourceVersion}
	if err := f.client.CoreV1().Nodes().Delete(ctx, n.Name, metav1.DeleteOptions{Preconditions: &asSeen}); err != nil {
		return err
	}
	logger := log.G(ctx).WithFields(log.Fields{"node": n.Name, "pods": len(pods.Items)})
	if len(pods.Items) > 0 {
		logger.Warn("Deleted a Node whose node is gone; its pods go from the API, and what runs of them in the provider is left there")
		return nil
	}
	logger.Info("Deleted a Node whose node is gone")
	return nil
}
