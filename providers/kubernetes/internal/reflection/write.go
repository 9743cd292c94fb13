package reflection

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/apierror"
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/internal/translate"
)

// remoteName returns the name of the copy of an original.
func (r *Reflector) remoteName(of ref) (types.NamespacedName, error) {
	namespace, err := r.opts.Translate.Namespaces.Remote(of.namespace)
	return types.NamespacedName{Namespace: namespace, Name: r.opts.Translate.ObjectName(of.kind, of.namespace, of.name)}, err
}

// get returns a remote object, or nil if it does not exist. An object that is not owned
// by this node is a NameConflict.
func (r *Reflector) get(ctx context.Context, kind string, at types.NamespacedName) (metav1.Object, error) {
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

// unwritten is over what a copy is written that is not to exist yet: the API server refuses
// a resourceVersion that no object has as a conflict with any object of the name, and
// ignores it otherwise. A service may make a creation of it. Where it is refused as such,
// the copy is read, and written without.
var unwritten = writtenVersion{version: strconv.FormatInt(math.MaxInt64, 10)}

// apply writes a copy unless it is up to date. It reads the copy only if one may be there
// whose version is unknown, or no longer the one that was written last.
func (r *Reflector) apply(ctx context.Context, of ref, c *copyState, wanted *copyContent) error {
	at, err := r.remoteName(of)
	if err != nil {
		return err
	}
	if c.isNew {
		c.isNew = false
		if err := r.write(ctx, of, at, c, wanted, unwritten); !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) && !apierror.IsRejected(err) {
			return err
		}
	}
	if c.version.uid != "" && c.version.kind == wanted.Type {
		err := r.write(ctx, of, at, c, wanted, c.version)
		if !apierrors.IsConflict(err) && !apierror.IsNotFound(err) {
			return err
		}
		c.version = writtenVersion{} // somebody has changed or deleted it
	}
	found, err := r.get(ctx, of.kind, at)
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
		return r.write(ctx, of, at, c, wanted, writtenVersion{})
	}
	if isUpToDate(found, of, wanted) {
		c.version = versionOf(found)
		return nil
	}
	return r.write(ctx, of, at, c, wanted, writtenVersion{uid: found.GetUID()})
}

// write applies a copy over the version that is known to exist, or over none. UID and
// resourceVersion make sure that this still holds.
func (r *Reflector) write(ctx context.Context, of ref, at types.NamespacedName, c *copyState, wanted *copyContent, over writtenVersion) error {
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
		err = fmt.Errorf("cannot write %s in the remote cluster, %s %s/%s: %w", describe(of), remoteKind(of.kind), at.Namespace, at.Name, err)
		if apierror.IsRejected(err) && !translate.MayBeAdmission(err) || apierrors.IsRequestEntityTooLargeError(err) {
			return errdefs.AsPermanent(err) // most likely it is too large
		}
		return err
	}
	c.version = versionOf(result)
	return nil
}

// describe returns a description of the original for events and errors.
func describe(of ref) string {
	switch of.kind {
	case translate.KindEnvironment:
		return "the environment of the pod"
	case translate.KindFiles:
		return "the tokens and downward API files of the pod"
	}
	return fmt.Sprintf("the copy of %s %q", of.kind, of.name)
}

// isUpToDate reports whether a copy has the desired content.
func isUpToDate(found metav1.Object, of ref, wanted *copyContent) bool {
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

// remove deletes a copy, if it exists and is owned by this node.
func (r *Reflector) remove(ctx context.Context, of ref, c *copyState) error {
	at, err := r.remoteName(of)
	if err != nil {
		return nil // it cannot have been written
	}
	if c.version.uid != "" {
		err := r.delete(ctx, of.kind, at, &metav1.Preconditions{UID: &c.version.uid, ResourceVersion: &c.version.version})
		if !apierrors.IsConflict(err) {
			return err
		}
	}
	found, err := r.get(ctx, of.kind, at)
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
