package reflection

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/translate"
)

// place is the remote object of an original.
func (r *Reflector) place(of ref) (types.NamespacedName, error) {
	namespace, err := r.opts.Translate.Namespaces.Remote(of.namespace)
	return types.NamespacedName{Namespace: namespace, Name: r.opts.Translate.ObjectName(of.kind, of.namespace, of.name)}, err
}

// look returns what is at a place, or nil. An object of others is a Clash.
func (r *Reflector) look(ctx context.Context, kind string, at types.NamespacedName) (metav1.Object, error) {
	var found metav1.Object
	var err error
	core := r.opts.Remote.CoreV1()
	if kind == translate.KindConfigMap {
		found, err = core.ConfigMaps(at.Namespace).Get(ctx, at.Name, metav1.GetOptions{})
	} else {
		found, err = core.Secrets(at.Namespace).Get(ctx, at.Name, metav1.GetOptions{})
	}
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	case !r.opts.Translate.Home.Owns(found):
		return nil, errdefs.AsConflict(translate.Clash{Kind: remoteKind(kind), Namespace: at.Namespace, Name: at.Name})
	}
	return found, nil
}

func remoteKind(kind string) string {
	if kind == translate.KindConfigMap {
		return kind
	}
	return translate.KindSecret
}

// apply writes a copy. That it is still the object that was looked at is made sure
// of by its UID.
func (r *Reflector) apply(ctx context.Context, of ref, wanted *content) error {
	at, err := r.place(of)
	if err != nil {
		return err
	}
	found, err := r.look(ctx, of.kind, at)
	if err != nil {
		return err
	}
	if secret, ok := found.(*corev1.Secret); ok && secret.Type != wanted.Type {
		// The type of a Secret cannot change.
		if err := r.delete(ctx, of.kind, at, secret.UID); err != nil {
			return err
		}
		found = nil
	}
	options := metav1.ApplyOptions{FieldManager: translate.FieldManager, Force: found != nil}
	annotations := map[string]string{translate.AnnotationName: of.name}
	if of.kind == translate.KindConfigMap {
		object := corev1ac.ConfigMap(at.Name, at.Namespace).WithLabels(wanted.Labels).WithAnnotations(annotations).
			WithData(wanted.Text).WithBinaryData(wanted.Data)
		if found != nil {
			object.WithUID(found.GetUID())
		}
		_, err = r.opts.Remote.CoreV1().ConfigMaps(at.Namespace).Apply(ctx, object, options)
	} else {
		object := corev1ac.Secret(at.Name, at.Namespace).WithLabels(wanted.Labels).WithAnnotations(annotations).
			WithType(wanted.Type).WithData(wanted.Data)
		if found != nil {
			object.WithUID(found.GetUID())
		}
		_, err = r.opts.Remote.CoreV1().Secrets(at.Namespace).Apply(ctx, object, options)
	}
	if err != nil {
		return fmt.Errorf("cannot write the %s %s/%s in the remote cluster: %w", remoteKind(of.kind), at.Namespace, at.Name, err)
	}
	return nil
}

// remove deletes a copy, if it is there and ours.
func (r *Reflector) remove(ctx context.Context, of ref) error {
	at, err := r.place(of)
	if err != nil {
		return nil // then it never was there
	}
	found, err := r.look(ctx, of.kind, at)
	switch {
	case errors.As(err, new(translate.Clash)) || err == nil && found == nil:
		return nil
	case err != nil:
		return err
	}
	return r.delete(ctx, of.kind, at, found.GetUID())
}

func (r *Reflector) delete(ctx context.Context, kind string, at types.NamespacedName, uid types.UID) error {
	options := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(uid))}
	var err error
	if kind == translate.KindConfigMap {
		err = r.opts.Remote.CoreV1().ConfigMaps(at.Namespace).Delete(ctx, at.Name, options)
	} else {
		err = r.opts.Remote.CoreV1().Secrets(at.Namespace).Delete(ctx, at.Name, options)
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("cannot delete the %s %s/%s in the remote cluster: %w", remoteKind(kind), at.Namespace, at.Name, err)
	}
	return nil
}
