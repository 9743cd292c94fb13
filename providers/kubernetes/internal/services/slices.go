package services

import (
	"context"
	"errors"
	"fmt"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	discoveryv1ac "k8s.io/client-go/applyconfigurations/discovery/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/apierror"
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/internal/translate"
)

// managedBy marks EndpointSlices that the remote cluster's controllers do not manage.
const managedBy = "kubernetes.virtual-kubelet.io"

// applySlices creates, updates and deletes the remote EndpointSlices of a Service.
func (s *Services) applySlices(ctx context.Context, of, at types.NamespacedName) error {
	found, err := s.slices.GetIndexer().ByIndex(byService, of.String())
	if err != nil {
		return fmt.Errorf("cannot find the EndpointSlices of Service %s: %w", of, err)
	}
	there, err := s.remoteSlices(ctx, at)
	if err != nil {
		return err
	}
	var errs []error
	for _, obj := range found {
		if slice, ok := obj.(*discoveryv1.EndpointSlice); ok {
			name := s.opts.Translate.ObjectName("EndpointSlice", slice.Namespace, slice.Name)
			errs = append(errs, s.applySlice(ctx, s.remoteSlice(slice, at, name), there[name]))
			delete(there, name)
		}
	}
	return errors.Join(append(errs, s.deleteSlices(ctx, there))...)
}

// applySlice applies a remote EndpointSlice over the existing one, or over none.
func (s *Services) applySlice(ctx context.Context, wanted *discoveryv1ac.EndpointSliceApplyConfiguration, there *discoveryv1.EndpointSlice) error {
	namespace, name := *wanted.Namespace, *wanted.Name
	remotes := s.opts.Remote.DiscoveryV1().EndpointSlices(namespace)
	if there == nil { // one that is not owned may exist
		found, err := remotes.Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierror.IsNotFound(err):
		case err != nil:
			return fmt.Errorf("cannot read EndpointSlice %s/%s in the remote cluster: %w", namespace, name, err)
		case !s.opts.Translate.Home.Owns(found):
			return s.opts.Translate.Home.NameConflict("EndpointSlice", found)
		default:
			there = found
		}
	}
	if there != nil {
		if isSliceUpToDate(there, wanted) {
			return nil
		}
		wanted.WithUID(there.UID)
	}
	if _, err := remotes.Apply(ctx, wanted, metav1.ApplyOptions{FieldManager: translate.FieldManager, Force: there != nil}); err != nil {
		return fmt.Errorf("cannot write EndpointSlice %s/%s in the remote cluster: %w", namespace, name, err)
	}
	return nil
}

// remoteSlice returns the copy of an EndpointSlice, without the nodes, zones and pods
// of its endpoints, which the remote cluster does not have.
func (s *Services) remoteSlice(slice *discoveryv1.EndpointSlice, at types.NamespacedName, name string) *discoveryv1ac.EndpointSliceApplyConfiguration {
	meta := s.opts.Translate.Home.LabelsOf(slice.Namespace, "")
	meta[discoveryv1.LabelServiceName], meta[discoveryv1.LabelManagedBy] = at.Name, managedBy
	wanted := discoveryv1ac.EndpointSlice(name, at.Namespace).WithLabels(meta).
		WithAnnotations(map[string]string{translate.AnnotationName: slice.Name}).
		WithAddressType(slice.AddressType)
	for i := range slice.Ports {
		from := &slice.Ports[i]
		wanted.WithPorts(&discoveryv1ac.EndpointPortApplyConfiguration{Name: from.Name, Protocol: from.Protocol, Port: from.Port, AppProtocol: from.AppProtocol})
	}
	for i := range slice.Endpoints {
		from := &slice.Endpoints[i]
		endpoint := discoveryv1ac.Endpoint().WithConditions(&discoveryv1ac.EndpointConditionsApplyConfiguration{
			Ready: from.Conditions.Ready, Serving: from.Conditions.Serving, Terminating: from.Conditions.Terminating,
		})
		for _, address := range from.Addresses {
			endpoint.WithAddresses(s.opts.Translate.RemoteIP(address))
		}
		endpoint.Hostname = from.Hostname
		wanted.WithEndpoints(endpoint)
	}
	return wanted
}

// remoteSlices returns the remote EndpointSlices of a Service that are owned by this
// node, by name.
func (s *Services) remoteSlices(ctx context.Context, at types.NamespacedName) (map[string]*discoveryv1.EndpointSlice, error) {
	ours := s.opts.Translate.Home.Labels()
	ours[discoveryv1.LabelServiceName] = at.Name
	list, err := s.opts.Remote.DiscoveryV1().EndpointSlices(at.Namespace).List(ctx, metav1.ListOptions{LabelSelector: labels.SelectorFromSet(ours).String()})
	if err != nil {
		return nil, fmt.Errorf("cannot list the EndpointSlices of Service %s in the remote cluster: %w", at, err)
	}
	there := map[string]*discoveryv1.EndpointSlice{}
	for i := range list.Items {
		there[list.Items[i].Name] = &list.Items[i]
	}
	return there, nil
}

func (s *Services) deleteSlices(ctx context.Context, left map[string]*discoveryv1.EndpointSlice) error {
	var errs []error
	for _, found := range left {
		err := s.opts.Remote.DiscoveryV1().EndpointSlices(found.Namespace).Delete(ctx, found.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(found.UID))})
		if err != nil && !apierror.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("cannot delete EndpointSlice %s/%s in the remote cluster: %w", found.Namespace, found.Name, err))
		}
	}
	return errors.Join(errs...)
}
