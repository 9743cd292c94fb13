package reflection

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/apierror"
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
	case apierror.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, apierror.OrUnavailable(err)
	case !r.opts.Translate.Home.Owns(found):
		return nil, errdefs.AsConflict(r.opts.Translate.Home.NameConflict(remoteKind(kind), found))
	}
	return found, nil
}

func remoteKind(kind string) string {
	if kind == translate.KindConfigMap {
		return kind
	}
	return translate.KindSecret
}

// apply writes a copy, unless it is as it should be already. One that is still what
// was written last need not be looked at before.
func (r *Reflector) apply(ctx context.Context, of ref, c *copied, wanted *content) error {
	at, err := r.place(of)
	if err != nil {
		return err
	}
	if c.is.uid != "" && c.is.kind == wanted.Type {
		err := r.write(ctx, of, at, c, wanted, c.is)
		if !apierrors.IsConflict(err) && !apierror.IsNotFound(err) {
			return err
		}
		c.is = written{} // somebody has changed or removed it
	}
	found, err := r.look(ctx, of.kind, at)
	if err != nil {
		return err
	}
	if secret, ok := found.(*corev1.Secret); ok && secret.Type != wanted.Type {
		// The type of a Secret cannot change.
		if err := r.delete(ctx, of.kind, at, metav1.NewUIDPreconditions(string(secret.UID))); err != nil {
			return err
		}
		found = nil
	}
	if found == nil {
		return r.write(ctx, of, at, c, wanted, written{})
	}
	if isAsWanted(found, of, wanted) {
		c.is = writtenAs(found)
		return nil
	}
	return r.write(ctx, of, at, c, wanted, written{uid: found.GetUID()})
}

// write writes a copy over what is known to be there, or nothing. That it still is
// is made sure of by UID and version.
func (r *Reflector) write(ctx context.Context, of ref, at types.NamespacedName, c *copied, wanted *content, over written) error {
	options := metav1.ApplyOptions{FieldManager: translate.FieldManager, Force: over.uid != ""}
	annotations := map[string]string{translate.AnnotationName: of.name}
	var result metav1.Object
	var err error
	if of.kind == translate.KindConfigMap {
		object := corev1ac.ConfigMap(at.Name, at.Namespace).WithLabels(wanted.Labels).WithAnnotations(annotations).
			WithData(wanted.Text).WithBinaryData(wanted.Data)
		if over.uid != "" {
			object.WithUID(over.uid)
		}
		if over.version != "" {
			object.WithResourceVersion(over.version)
		}
		result, err = r.opts.Remote.CoreV1().ConfigMaps(at.Namespace).Apply(ctx, object, options)
	} else {
		object := corev1ac.Secret(at.Name, at.Namespace).WithLabels(wanted.Labels).WithAnnotations(annotations).
			WithType(wanted.Type).WithData(wanted.Data)
		if over.uid != "" {
			object.WithUID(over.uid)
		}
		if over.version != "" {
			object.WithResourceVersion(over.version)
		}
		result, err = r.opts.Remote.CoreV1().Secrets(at.Namespace).Apply(ctx, object, options)
	}
	if err != nil {
		err = fmt.Errorf("cannot write %s in the remote cluster, %s %s/%s: %w", whatOf(of), remoteKind(of.kind), at.Namespace, at.Name, err)
		if apierror.IsRejected(err) || apierrors.IsRequestEntityTooLargeError(err) {
			return errdefs.AsPermanent(err) // it is too large, most likely
		}
		return err
	}
	c.is = writtenAs(result)
	return nil
}

// whatOf says for people what a copy is of.
func whatOf(of ref) string {
	switch of.kind {
	case translate.KindEnvironment:
		return "the environment of the pod"
	case translate.KindFiles:
		return "the tokens and downward API files of the pod"
	}
	return fmt.Sprintf("the copy of %s %q", of.kind, of.name)
}

// isAsWanted tells whether there is nothing to write.
func isAsWanted(found metav1.Object, of ref, wanted *content) bool {
	for name, value := range wanted.Labels {
		if found.GetLabels()[name] != value {
			return false
		}
	}
	if found.GetAnnotations()[translate.AnnotationName] != of.name {
		return false
	}
	switch object := found.(type) {
	case *corev1.ConfigMap:
		return maps.Equal(object.Data, wanted.Text) && maps.EqualFunc(object.BinaryData, wanted.Data, bytes.Equal)
	case *corev1.Secret:
		return maps.EqualFunc(object.Data, wanted.Data, bytes.Equal)
	}
	return false
}

// remove deletes a copy, if it is there and ours.
func (r *Reflector) remove(ctx context.Context, of ref, c *copied) error {
	at, err := r.place(of)
	if err != nil {
		return nil // then it never was there
	}
	if c.is.uid != "" {
		err := r.delete(ctx, of.kind, at, &metav1.Preconditions{UID: &c.is.uid, ResourceVersion: &c.is.version})
		if !apierrors.IsConflict(err) {
			return err
		}
	}
	found, err := r.look(ctx, of.kind, at)
	switch {
	case errors.As(err, new(translate.NameConflict)) || err == nil && found == nil:
		return nil
	case err != nil:
		return err
	}
	return r.delete(ctx, of.kind, at, metav1.NewUIDPreconditions(string(found.GetUID())))
}

func (r *Reflector) delete(ctx context.Context, kind string, at types.NamespacedName, is *metav1.Preconditions) error {
	options := metav1.DeleteOptions{Preconditions: is}
	var err error
	if kind == translate.KindConfigMap {
		err = r.opts.Remote.CoreV1().ConfigMaps(at.Namespace).Delete(ctx, at.Name, options)
	} else {
		err = r.opts.Remote.CoreV1().Secrets(at.Namespace).Delete(ctx, at.Name, options)
	}
	if err != nil && !apierror.IsNotFound(err) {
		return fmt.Errorf("cannot delete the %s %s/%s in the remote cluster: %w", remoteKind(kind), at.Namespace, at.Name, err)
	}
	return nil
}
