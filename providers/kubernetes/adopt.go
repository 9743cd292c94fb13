package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/internal/apierror"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/reflection"
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/translate"
)

// adoptWriters is how many objects are labelled at the same time.
const adoptWriters = 16

// unlabelledObject is a remote object with the names of this cluster and node, and
// without a home UID: of an earlier version, here or in another cluster.
type unlabelledObject struct {
	kind remoteKind
	meta *metav1.ObjectMeta
}

// adopt labels those that are this home's: pods whose UID a pod of the node has at
// home, claims whose claim or volume is at home, and of the rest what no other pod of
// an earlier version may need. What is left may be another cluster's, and is left
// alone.
func (p *Provider) adopt(ctx context.Context, all []unlabelledObject) error {
	here, err := p.podsAtHome(ctx, all)
	if err != nil {
		return err
	}
	strangers, err := p.strangersOf(ctx, all, here)
	if err != nil {
		return err
	}
	writing, writeCtx := errgroup.WithContext(ctx)
	writing.SetLimit(adoptWriters)
	var left []string
	for _, object := range all {
		ours, err := p.isOurs(ctx, object, here, strangers)
		switch {
		case err != nil:
			_ = writing.Wait() // the first error counts
			return err
		case ours:
			writing.Go(func() error { return p.label(writeCtx, object) })
		default:
			left = append(left, object.String())
		}
	}
	if err := writing.Wait(); err != nil {
		return err
	}
	if n := len(all) - len(left); n > 0 {
		log.G(ctx).WithField("objects", n).Info("Labelled the remote objects of an earlier version with the UID of this cluster")
	}
	if len(left) > 0 {
		log.G(ctx).WithField("objects", len(left)).WithField("first", left[0]).WithField("label", translate.LabelClusterUID+"="+string(p.translate.Home.UID)).
			Warn("The remote cluster has objects of an earlier version that may be another cluster's; they are left alone: delete them, or label them if they are this cluster's")
	}
	return nil
}

// podsAtHome returns the UIDs of the pods of this node in the namespaces that the
// objects name. The cache may not have them yet.
func (p *Provider) podsAtHome(ctx context.Context, all []unlabelledObject) (map[types.UID]struct{}, error) {
	here, asked := map[types.UID]struct{}{}, map[string]struct{}{}
	for _, object := range all {
		namespace := object.meta.Labels[translate.LabelNamespace]
		if _, ok := asked[namespace]; ok || translate.UIDOf(object.meta) == "" || namespace == "" {
			continue
		}
		asked[namespace] = struct{}{}
		options := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", p.home.Node.Name).String(), Limit: pageSize}
		for {
			list, err := p.home.Client.CoreV1().Pods(namespace).List(ctx, options)
			if err != nil {
				return nil, fmt.Errorf("list the pods of the node in namespace %s: %w", namespace, err)
			}
			for i := range list.Items {
				here[list.Items[i].UID] = struct{}{}
			}
			if options.Continue = list.Continue; options.Continue == "" {
				break
			}
		}
	}
	return here, nil
}

// strangers are the remote pods of earlier versions that have none at home: of
// another cluster, or forgotten here.
type strangers struct {
	need       map[types.NamespacedName]struct{} // ConfigMaps and Secrets
	namespaces map[string]struct{}
}

func (p *Provider) strangersOf(ctx context.Context, all []unlabelledObject, here map[types.UID]struct{}) (strangers, error) {
	s := strangers{map[types.NamespacedName]struct{}{}, map[string]struct{}{}}
	for _, object := range all {
		if _, ok := here[translate.UIDOf(object.meta)]; ok || object.kind != podKind {
			continue
		}
		namespace := object.meta.Namespace
		s.namespaces[namespace] = struct{}{}
		pod, err := p.remote.CoreV1().Pods(namespace).Get(ctx, object.meta.Name, metav1.GetOptions{})
		if apierror.IsNotFound(err) {
			continue
		}
		if err != nil {
			return s, fmt.Errorf("read the pod %s/%s in the remote cluster: %w", namespace, object.meta.Name, err)
		}
		for name := range reflection.ReferencedBy(pod) {
			s.need[types.NamespacedName{Namespace: namespace, Name: name}] = struct{}{}
		}
	}
	return s, nil
}

// isOurs reports whether an object is this home's.
func (p *Provider) isOurs(ctx context.Context, object unlabelledObject, here map[types.UID]struct{}, others strangers) (bool, error) {
	if _, ok := here[translate.UIDOf(object.meta)]; ok {
		return true, nil
	}
	switch object.kind.name {
	case podKind.name:
		return false, nil
	case translate.KindConfigMap, translate.KindSecret:
		_, needed := others.need[types.NamespacedName{Namespace: object.meta.Namespace, Name: object.meta.Name}]
		return !needed, nil
	case claimKind.name:
		return p.claims.Owns(ctx, object.meta)
	}
	_, shared := others.namespaces[object.meta.Namespace]
	return !shared, nil
}

// label labels an object with the home UID, if it is still the one that was found.
func (p *Provider) label(ctx context.Context, object unlabelledObject) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid":    object.meta.UID,
		"labels": map[string]string{translate.LabelClusterUID: string(p.translate.Home.UID)},
	}})
	if err != nil {
		return fmt.Errorf("encode the label of %s: %w", object, err)
	}
	_, err = p.metadata.Resource(object.kind.resource).Namespace(object.meta.Namespace).
		Patch(ctx, object.meta.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: translate.FieldManager})
	// Another object of the name has come: its UID cannot change, says the API server. It
	// is looked at next time.
	if err != nil && !apierror.IsNotFound(err) && !apierrors.IsConflict(err) && !apierrors.IsInvalid(err) {
		return fmt.Errorf("label %s in the remote cluster with the UID of this cluster: %w", object, err)
	}
	return nil
}

// String names the object.
func (o unlabelledObject) String() string {
	return fmt.Sprintf("%s %s/%s", o.kind.name, o.meta.Namespace, o.meta.Name)
}
