package fleet

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

	"github.com/virtual-kubelet/virtual-kubelet/cmd/virtual-kubelet/internal/nodepools"
	"github.com/virtual-kubelet/virtual-kubelet/internal/nodemarks"
	"github.com/virtual-kubelet/virtual-kubelet/log"
)

const (
	// stoppedTime is how long a Node has to be seen stopped before it is deleted. In
	// that time another process may go on with it, somebody may correct the file, and a
	// kubelet may report that the Node is its own.
	stoppedTime = time.Minute
	// keptTime is how long it may take until a Node is seen stopped. For one whose
	// process was killed the control plane needs a minute, or as long as it is
	// configured to wait.
	keptTime = 5 * time.Minute
)

// leftNode is a Node of this file whose node the file does not have.
type leftNode struct {
	uid     types.UID
	seen    time.Time // first
	stopped time.Time // since when; zero while it is not
	foreign bool      // another process keeps it, so that it is not this file's alone
}

// observe records what the API has of the Node, and reports whether it can be deleted.
func (l *leftNode) observe(n *corev1.Node, now time.Time) (deletable bool) {
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

// deleteLeft deletes the Nodes of this file whose nodes the file no longer has, also
// those that left it while no process ran. While waiting, it has to be called again:
// some Nodes were not seen stopped for long enough, or could not be deleted.
func (s *nodeSet) deleteLeft(ctx context.Context, wanted *nodepools.Wanted) (waiting bool, err error) {
	if !wanted.DeleteNodes {
		clear(s.left)
		return false, nil
	}
	list, err := s.cfg.Nodes.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: labels.Set{nodepools.Label: wanted.Name}.String()})
	if err != nil {
		return true, fmt.Errorf("cannot list Nodes that are no longer in the config: %w", err)
	}
	var due []*corev1.Node
	left, foreign := map[string]leftNode{}, []string(nil)
	for _, n := range s.notWanted(list.Items, wanted) {
		l := s.left[n.Name]
		if l.observe(n, time.Now()) {
			due = append(due, n)
		}
		if l.foreign {
			foreign = append(foreign, n.Name)
		}
		left[n.Name] = l
	}
	if len(left) > len(s.left) {
		log.G(ctx).WithFields(log.Fields{"nodes": len(left), "after": stoppedTime.String()}).
			Info("Found Nodes that are no longer in the config; each is deleted once it was seen stopped for a while")
	}
	s.left = left
	err = s.deleteNodes(ctx, due)
	if len(foreign) > 0 {
		err = errors.Join(err, fmt.Errorf("another process keeps %d Nodes with the label %s=%s that are not in the file, %s among them: they are not deleted; give each file a name of its own",
			len(foreign), nodepools.Label, wanted.Name, foreign[0]))
	}
	return len(s.left) > 0, err
}

// notWanted returns the Nodes that a virtual kubelet labelled with the file's name, whose
// nodes the file does not have, and that would be in this set.
func (s *nodeSet) notWanted(nodes []corev1.Node, wanted *nodepools.Wanted) (left []*corev1.Node) {
	stays := make(map[string]bool, len(wanted.Nodes))
	for _, n := range wanted.Nodes {
		stays[n.Name] = true
	}
	for i := range nodes {
		n := &nodes[i]
		if s.has(n.Name) && !stays[n.Name] && s.fleet.Node(n.Name) == nil && nodemarks.WroteLabel(n, nodepools.Label) {
			left = append(left, n)
		}
	}
	return left
}

// deleteNodes deletes Nodes as they were seen. Those that cannot be deleted stay in
// s.left.
func (s *nodeSet) deleteNodes(ctx context.Context, nodes []*corev1.Node) error {
	errs := make([]error, len(nodes))
	var deleting errgroup.Group
	deleting.SetLimit(maxRemovals)
	for i, n := range nodes {
		deleting.Go(func() error { errs[i] = s.deleteNode(ctx, n); return nil })
	}
	_ = deleting.Wait() // the errors are in errs
	for i, n := range nodes {
		switch {
		case errs[i] == nil, apierrors.IsNotFound(errs[i]):
			errs[i] = nil
			delete(s.left, n.Name)
		case apierrors.IsConflict(errs[i]): // it is observed again
			errs[i] = nil
		default:
			errs[i] = fmt.Errorf("cannot delete Node %s, which is no longer in the config: %w", n.Name, errs[i])
		}
	}
	return errors.Join(errs...)
}

// deleteNode deletes a Node unless it was written since it was seen.
func (s *nodeSet) deleteNode(ctx context.Context, n *corev1.Node) error {
	pods, err := s.cfg.Nodes.Client.CoreV1().Pods(s.cfg.Nodes.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", n.Name).String(), ResourceVersion: "0"})
	if err != nil {
		return err
	}
	asSeen := metav1.Preconditions{UID: &n.UID, ResourceVersion: &n.ResourceVersion}
	if err := s.cfg.Nodes.Client.CoreV1().Nodes().Delete(ctx, n.Name, metav1.DeleteOptions{Preconditions: &asSeen}); err != nil {
		return err
	}
	logger := log.G(ctx).WithFields(log.Fields{"node": n.Name, "pods": len(pods.Items)})
	if len(pods.Items) > 0 {
		logger.Warn("Deleted Node that is no longer in the config; its workloads keep running in the provider")
		return nil
	}
	logger.Info("Deleted Node that is no longer in the config")
	return nil
}
