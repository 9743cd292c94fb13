package services

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/apierror"
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/internal/translate"
)

// apply writes a remote Service. It reports whether this node owns it: one of another
// node of this cluster serves as well.
func (s *Services) apply(ctx context.Context, service *corev1.Service, at types.NamespacedName) (ours bool, _ error) {
	remotes := s.opts.Remote.CoreV1().Services(at.Namespace)
	found, err := remotes.Get(ctx, at.Name, metav1.GetOptions{})
	switch {
	case apierror.IsNotFound(err):
		found = nil
	case err != nil:
		return false, fmt.Errorf("cannot read Service %s in the remote cluster: %w", at, err)
	case !s.opts.Translate.Home.Owns(found):
		if home := s.opts.Translate.Home; found.Labels[translate.LabelCluster] == home.Cluster && found.Labels[translate.LabelClusterUID] == string(home.UID) && translate.NameOf(found).Namespace == service.Namespace {
			return false, nil
		}
		return false, s.opts.Translate.Home.NameConflict("Service", found)
	case typeOf(found) != typeOf(service): // immutable
		if err := s.deleteService(ctx, found); err != nil {
			return false, err
		}
		found = nil
	}
	wanted := s.remoteService(service, at)
	if found != nil {
		if isServiceUpToDate(found, wanted) {
			return true, nil
		}
		wanted.WithUID(found.UID)
	}
	_, err = remotes.Apply(ctx, wanted, metav1.ApplyOptions{FieldManager: translate.FieldManager, Force: found != nil})
	if err != nil {
		return false, fmt.Errorf("cannot write Service %s in the remote cluster: %w", at, err)
	}
	return true, nil
}

// typeOf distinguishes the types of Services with different fields.
func typeOf(service *corev1.Service) string {
	switch {
	case service.Spec.Type == corev1.ServiceTypeExternalName:
		return "external name"
	case service.Spec.ClusterIP == corev1.ClusterIPNone:
		return "headless"
	}
	return "address"
}

// remoteService returns the copy of a Service. The remote cluster assigns its address;
// load balancers and node ports stay at home.
func (s *Services) remoteService(service *corev1.Service, at types.NamespacedName) *corev1ac.ServiceApplyConfiguration {
	spec := corev1ac.ServiceSpec().WithType(corev1.ServiceTypeClusterIP)
	switch typeOf(service) {
	case "external name":
		spec.WithType(corev1.ServiceTypeExternalName).WithExternalName(service.Spec.ExternalName)
	case "headless":
		spec.WithClusterIP(corev1.ClusterIPNone).WithPublishNotReadyAddresses(service.Spec.PublishNotReadyAddresses)
	default:
		spec.WithSessionAffinity(service.Spec.SessionAffinity).WithPublishNotReadyAddresses(service.Spec.PublishNotReadyAddresses)
	}
	for i := range service.Spec.Ports {
		from := &service.Spec.Ports[i]
		port := corev1ac.ServicePort().WithPort(from.Port).WithProtocol(from.Protocol).WithTargetPort(from.TargetPort)
		if from.Name != "" {
			port.WithName(from.Name)
		}
		if from.AppProtocol != nil {
			port.WithAppProtocol(*from.AppProtocol)
		}
		spec.WithPorts(port)
	}
	return corev1ac.Service(at.Name, at.Namespace).
		WithLabels(s.opts.Translate.Home.LabelsOf(service.Namespace, "")).
		WithAnnotations(map[string]string{translate.AnnotationName: service.Name}).
		WithSpec(spec)
}

// remove deletes a remote Service and its EndpointSlices, as far as they are owned by
// this node.
func (s *Services) remove(ctx context.Context, of, at types.NamespacedName) error {
	found, err := s.opts.Remote.CoreV1().Services(at.Namespace).Get(ctx, at.Name, metav1.GetOptions{})
	switch {
	case apierror.IsNotFound(err):
	case err != nil:
		return fmt.Errorf("cannot read Service %s in the remote cluster: %w", at, err)
	case s.opts.Translate.Home.Owns(found) && translate.NameOf(found) == of:
		if err := s.deleteService(ctx, found); err != nil {
			return err
		}
	}
	left, err := s.remoteSlices(ctx, at)
	if err != nil {
		return err
	}
	return s.deleteSlices(ctx, left)
}

func (s *Services) deleteService(ctx context.Context, found *corev1.Service) error {
	err := s.opts.Remote.CoreV1().Services(found.Namespace).Delete(ctx, found.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(found.UID))})
	if err != nil && !apierror.IsNotFound(err) {
		return fmt.Errorf("cannot delete Service %s/%s in the remote cluster: %w", found.Namespace, found.Name, err)
	}
	return nil
}
