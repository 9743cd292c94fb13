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
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/internal/reflection"
	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/internal/translate"
)

// adoptConcurrency is the number of objects labelled at the same time.
const adoptConcurrency = 16

// unlabelledObject is a remote object with the names of this cluster and node, but
// without a cluster UID: an earlier version created it, here or in another cluster.
type unlabelledObject struct {
	kind remoteKind
	meta *metav1.ObjectMeta
}

// adoptUnlabelled labels the objects that belong to this home: pods whose home pod is
// bound to the node, claims whose claim or volume is at home, and of the others those
// that no foreign pod may need. All others may belong to another cluster, and stay as
// they are.
func (p *Provider) adoptUnlabelled(ctx context.Context, all []unlabelledObject) error {
	here, err := p.homePodUIDs(ctx, all)
	if err != nil {
		return err
	}
	foreign, err := p.foreignPodsOf(ctx, all, here)
	if err != nil {
		return err
	}
	writing, writeCtx := errgroup.WithContext(ctx)
	writing.SetLimit(adoptConcurrency)
	var left []string
	for _, object := range all {
		ours, err := p.isOurs(ctx, object, here, foreign)
		switch {
		case err != nil:
			_ = writing.Wait() // the first error is returned
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
			Warn("The remote cluster has objects of an earlier version that may be another cluster's; not touching them: delete them, or label them if they belong to this cluster")
	}
	return nil
}

// homePodUIDs returns the UIDs of the pods of this node in the namespaces that the
// objects name. It reads them from the API server: the cache may not have them yet.
func (p *Provider) homePodUIDs(ctx context.Context, all []unlabelledObject) (map[types.UID]struct{}, error) {
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

// foreignPods is about the remote pods of earlier versions that have no home pod: they
// belong to another cluster, or were left behind here.
type foreignPods struct {
	objects    map[types.NamespacedName]struct{} // ConfigMaps and Secrets that they refer to
	namespaces map[string]struct{}
}

func (p *Provider) foreignPodsOf(ctx context.Context, all []unlabelledObject, here map[types.UID]struct{}) (foreignPods, error) {
	foreign := foreignPods{map[types.NamespacedName]struct{}{}, map[string]struct{}{}}
	for _, object := range all {
		if _, ok := here[translate.UIDOf(object.meta)]; ok || object.kind != podKind {
			continue
		}
		namespace := object.meta.Namespace
		foreign.namespaces[namespace] = struct{}{}
		pod, err := p.remote.CoreV1().Pods(namespace).Get(ctx, object.meta.Name, metav1.GetOptions{})
		if apierror.IsNotFound(err) {
			continue
		}
		if err != nil {
			return foreign, fmt.Errorf("read the pod %s/%s in the remote cluster: %w", namespace, object.meta.Name, err)
		}
		for name := range reflection.ReferencedBy(pod) {
			foreign.objects[types.NamespacedName{Namespace: namespace, Name: name}] = struct{}{}
		}
	}
	return foreign, nil
}

// isOurs reports whether an object belongs to this home.
func (p *Provider) isOurs(ctx context.Context, object unlabelledObject, here map[types.UID]struct{}, foreign foreignPods) (bool, error) {
	if _, ok := here[translate.UIDOf(object.meta)]; ok {
		return true, nil
	}
	switch object.kind.name {
	case podKind.name:
		return false, nil
	case translate.KindConfigMap, translate.KindSecret:
		_, needed := foreign.objects[types.NamespacedName{Namespace: object.meta.Namespace, Name: object.meta.Name}]
		return !needed, nil
	case claimKind.name:
		return p.claims.Owns(ctx, object.meta)
	}
	_, shared := foreign.namespaces[object.meta.Namespace]
	return !shared, nil
}

// label labels an object with the cluster UID, if it is still the object that was
// found.
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
	// The API server refuses to change the UID: the object was replaced by another one
	// of the same name. The next check finds that.
	if err != nil && !apierror.IsNotFound(err) && !apierrors.IsConflict(err) && !apierrors.IsInvalid(err) {
		return fmt.Errorf("label %s in the remote cluster with the UID of this cluster: %w", object, err)
	}
	return nil
}

// String implements fmt.Stringer.
func (o unlabelledObject) String() string {
	return fmt.Sprintf("%s %s/%s", o.kind.name, o.meta.Namespace, o.meta.Name)
}
