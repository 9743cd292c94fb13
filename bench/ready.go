package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// readyNodes waits for count nodes that are Ready and whose names begin with
// prefix, and returns these. It gives up when the agent has ended.
func readyNodes(ctx context.Context, client kubernetes.Interface, prefix string, count int, ended <-chan struct{}) ([]string, error) {
	nodes := client.CoreV1().Nodes()
	list, err := nodes.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	watcher, err := watchtools.NewRetryWatcherWithContext(ctx, list.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return nodes.Watch(ctx, options)
		},
	})
	if err != nil {
		return nil, err
	}
	defer watcher.Stop()
	found := map[string]bool{}
	note := func(n *corev1.Node) {
		if strings.HasPrefix(n.Name, prefix) && ready(n) {
			found[n.Name] = true
		}
	}
	for i := range list.Items {
		note(&list.Items[i])
	}
	for len(found) < count {
		select {
		case <-ended:
			return nil, errors.New("it has ended")
		case <-ctx.Done():
			return nil, fmt.Errorf("%d of %d are: %w", len(found), count, ctx.Err())
		case event, ok := <-watcher.ResultChan():
			if !ok {
				return nil, fmt.Errorf("the watch of nodes ended: %w", ctx.Err())
			}
			node, ok := event.Object.(*corev1.Node)
			if !ok {
				return nil, fmt.Errorf("the watch of nodes ended: %w", apierrors.FromObject(event.Object))
			}
			note(node)
		}
	}
	names := make([]string, 0, len(found))
	for name := range found {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, nil
}

func ready(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}
