package eci

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
)

// confirmNoGroups returns an error, of class Unavailable, if a listing without groups
// cannot be true. The API returns an empty list, not an error, to an access key without
// the right to list: all pods would count as gone, while they run. So the log of a pod
// that has run is requested, which the API refuses only then with NotFound if the group
// does not exist.
func (p *Provider) confirmNoGroups(ctx context.Context) error {
	pods, err := p.node.Pods.List(labels.Everything())
	if err != nil {
		return nil // the lister of a cache returns no error
	}
	var ran *corev1.Pod
	var log containerLog
	for _, pod := range pods {
		id, container := runOf(pod)
		if id == "" || ran != nil && (ran.DeletionTimestamp == nil || pod.DeletionTimestamp != nil) {
			continue
		}
		ran, log = pod, containerLog{p: p, group: id, container: container, opts: api.ContainerLogOpts{Tail: 1}}
	}
	if ran == nil {
		return nil
	}
	_, err = log.fetch(ctx, false)
	switch {
	case errdefs.IsNotFound(err):
		return nil
	case err != nil:
		return errdefs.AsUnavailable(fmt.Errorf("ECI lists no container groups, and that group %s of pod %s/%s is gone cannot be confirmed "+
			"(check that the access key has the rights of the README, without which listings are empty): %w", log.group, ran.Namespace, ran.Name, err))
	}
	return errdefs.AsUnavailable(fmt.Errorf("ECI lists no container groups, but group %s of pod %s/%s exists: "+
		"check that the access key has the right eci:DescribeContainerGroups, without which listings are empty", log.group, ran.Namespace, ran.Name))
}

// runOf returns the ID of the container group of a pod that has not ended, and a
// container that has run in it, by the status of the pod.
func runOf(pod *corev1.Pod) (id, container string) {
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return "", ""
	}
	for _, s := range pod.Status.ContainerStatuses {
		if rest, ok := strings.CutPrefix(s.ContainerID, containerIDPrefix); ok {
			id, _, _ = strings.Cut(rest, "/")
			return id, s.Name
		}
	}
	return "", ""
}
