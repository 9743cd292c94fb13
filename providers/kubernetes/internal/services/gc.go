package services

import (
	"context"
	"errors"
	"maps"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/internal/translate"
)

const pageSize = 500

// CollectGarbage deletes the remote Services and EndpointSlices, with the labels of
// this cluster and node, of Services that are deleted and of namespaces without pods.
// It queues all other Services, in case somebody has changed their copies. namespace is
// the remote namespace, or all. It must not be called before HasSynced returns true.
func (s *Services) CollectGarbage(ctx context.Context, namespace string) error {
	s.mu.Lock()
	maps.DeleteFunc(s.enqueued, func(namespace string, _ struct{}) bool { return !s.opts.IsUsed(namespace) })
	s.mu.Unlock()
	left, err := s.listRemote(ctx, namespace)
	if err != nil {
		return err
	}
	for _, obj := range s.services.GetStore().List() {
		if service, ok := obj.(*corev1.Service); ok && s.opts.IsUsed(service.Namespace) {
			s.queue.Add(types.NamespacedName{Namespace: service.Namespace, Name: service.Name})
		}
	}
	var errs []error
	for at, of := range left {
		if s.opts.IsUsed(of.Namespace) {
			if s.service(of) != nil {
				continue
			}
			if there, err := s.isAtHome(ctx, of); err != nil || there {
				errs = append(errs, err)
				continue
			}
		}
		errs = append(errs, s.remove(ctx, of, at))
	}
	return errors.Join(errs...)
}

// listRemote returns the home Services of the remote Services and EndpointSlices, by
// remote Service.
func (s *Services) listRemote(ctx context.Context, namespace string) (map[types.NamespacedName]types.NamespacedName, error) {
	found := map[types.NamespacedName]types.NamespacedName{}
	ours := metav1.ListOptions{LabelSelector: s.opts.Translate.Home.Selector(), Limit: pageSize}
	for options := ours; ; {
		list, err := s.opts.Remote.CoreV1().Services(namespace).List(ctx, options)
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			remote := &list.Items[i]
			found[types.NamespacedName{Namespace: remote.Namespace, Name: remote.Name}] = translate.NameOf(remote)
		}
		if options.Continue = list.Continue; options.Continue == "" {
			break
		}
	}
	for options := ours; ; {
		list, err := s.opts.Remote.DiscoveryV1().EndpointSlices(namespace).List(ctx, options)
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			remote := &list.Items[i]
			// A remote Service has the name of its home Service.
			name := remote.Labels[discoveryv1.LabelServiceName]
			found[types.NamespacedName{Namespace: remote.Namespace, Name: name}] =
				types.NamespacedName{Namespace: remote.Labels[translate.LabelNamespace], Name: name}
		}
		if options.Continue = list.Continue; options.Continue == "" {
			return found, nil
		}
	}
}
