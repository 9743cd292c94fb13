package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/virtual-kubelet/virtual-kubelet/bench/internal/follow"
)

// readyNodes waits for count nodes that are Ready and whose names begin with
// prefix, and returns these. It gives up when the agent has ended.
func readyNodes(ctx context.Context, client kubernetes.Interface, prefix string, count int, ended <-chan struct{}) ([]string, error) {
	nodes := client.CoreV1().Nodes()
	list, err := nodes.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	found := map[string]bool{}
	note := func(n *corev1.Node) {
		if strings.HasPrefix(n.Name, prefix) && ready(n) {
			found[n.Name] = true
		}
	}
	for i := range list.Items {
		note(&list.Items[i])
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-ended:
			cancel(errors.New("it has ended"))
		case <-ctx.Done():
		}
	}()
	if len(found) < count {
		err := follow.Watch(ctx, nodes, metav1.ListOptions{ResourceVersion: list.ResourceVersion}, func(event watch.Event) bool {
			if node, ok := event.Object.(*corev1.Node); ok {
				note(node)
			}
			return len(found) >= count
		})
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return nil, fmt.Errorf("%d of %d are: %w", len(found), count, err)
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
