package reflection

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"

	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/internal/translate"
)

// orphanAge is the minimum age of a copy that CollectGarbage deletes: copies are
// written before the pods that need them.
const orphanAge = 2 * time.Minute

const pageSize = 500

// CollectGarbage deletes copies, with the labels of this cluster and node, that neither
// a registered pod nor one of the remote pods needs: an earlier process has left them.
// Copies that registered pods need are written again if they are missing or not the
// version that was written last, as after a restore of the remote cluster. namespace is
// the remote namespace, or all. Only names and labels are read.
func (r *Reflector) CollectGarbage(ctx context.Context, client metadata.Interface, namespace string, pods []*corev1.Pod) error {
	missing := map[remoteObject]ref{}
	r.mu.Lock()
	for of := range r.copies {
		if at, err := r.remoteName(of); err == nil {
			missing[remoteObject{remoteKind(of.kind), at}] = of
		}
	}
	r.mu.Unlock()
	var old []foundObject
	var changed []ref
	for kind, resource := range map[string]string{translate.KindConfigMap: "configmaps", translate.KindSecret: "secrets"} {
		options := metav1.ListOptions{LabelSelector: r.opts.Translate.Home.Selector(), Limit: pageSize}
		for {
			list, err := client.Resource(corev1.SchemeGroupVersion.WithResource(resource)).Namespace(namespace).List(ctx, options)
			if err != nil {
				return err
			}
			for i := range list.Items {
				object := &list.Items[i]
				here := remoteObject{kind, types.NamespacedName{Namespace: object.Namespace, Name: object.Name}}
				if of, ok := missing[here]; ok && r.hasChanged(of, object) {
					changed = append(changed, of)
				}
				delete(missing, here)
				if time.Since(object.CreationTimestamp.Time) >= orphanAge {
					old = append(old, foundObject{here, object.UID, object.ResourceVersion})
				}
			}
			if options.Continue = list.Continue; options.Continue == "" {
				break
			}
		}
	}
	var errs []error
	used := r.referenced(pods) // read after the lists, so that a copy of a new pod counts regardless of its age by the remote clock
	for _, f := range old {
		if _, ok := used[f.at]; !ok {
			if err := r.delete(ctx, f.kind, f.at, &metav1.Preconditions{UID: &f.uid, ResourceVersion: &f.version}); !apierrors.IsConflict(err) {
				errs = append(errs, err) // on a conflict it has changed, and may belong to somebody else
			}
			if of, ok := r.copyAt(f.remoteObject); ok { // a pod that needs it was registered meanwhile, and found it up to date
				r.rewrite(of, true)
			}
		}
	}
	for _, of := range missing {
		r.rewrite(of, true)
	}
	for _, of := range changed {
		r.rewrite(of, false)
	}
	return errors.Join(errs...)
}

// referenced returns the names of the copies that registered pods, and the given remote
// pods, need.
func (r *Reflector) referenced(pods []*corev1.Pod) map[types.NamespacedName]struct{} {
	used := map[types.NamespacedName]struct{}{}
	for _, pod := range pods {
		for name := range ReferencedBy(pod) {
			used[types.NamespacedName{Namespace: pod.Namespace, Name: name}] = struct{}{}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for of := range r.copies {
		if at, err := r.remoteName(of); err == nil {
			used[at] = struct{}{}
		}
	}
	return used
}

// copyAt returns the original of a remote object that registered pods need.
func (r *Reflector) copyAt(here remoteObject) (ref, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for of := range r.copies {
		if at, err := r.remoteName(of); err == nil && at == here.at && remoteKind(of.kind) == here.kind {
			return of, true
		}
	}
	return ref{}, false
}

// foundObject is an object found in the remote cluster.
type foundObject struct {
	remoteObject
	uid     types.UID
	version string
}

// remoteObject identifies a ConfigMap or Secret in the remote cluster.
type remoteObject struct {
	kind string
	at   types.NamespacedName
}

// hasChanged reports whether the version of a copy in the remote cluster differs from
// the one that was written last. It returns false while the copy is being written.
func (r *Reflector) hasChanged(of ref, found metav1.Object) bool {
	r.mu.Lock()
	c := r.copies[of]
	r.mu.Unlock()
	if c == nil {
		return false
	}
	select {
	case c.writing <- struct{}{}:
		defer func() { <-c.writing }()
	default:
		return false
	}
	return c.version.uid != "" && (c.version.uid != found.GetUID() || c.version.version != found.GetResourceVersion())
}

// rewrite writes a copy again although its original has not changed. lost reports that
// the copy may be gone.
func (r *Reflector) rewrite(of ref, lost bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.copies[of]; c != nil {
		c.rewrite = rewriteRequest{asked: true, lost: c.rewrite.lost || lost}
		r.queue.Add(of)
	}
}

// ReferencedBy returns the names of the ConfigMaps and Secrets that a remote pod refers
// to.
func ReferencedBy(pod *corev1.Pod) map[string]struct{} {
	used := map[string]struct{}{}
	for o := range translate.Objects(pod) {
		used[o.Name] = struct{}{}
	}
	environment := func(env []corev1.EnvVar) {
		for i := range env {
			if from := env[i].ValueFrom; from != nil && from.SecretKeyRef != nil {
				used[from.SecretKeyRef.Name] = struct{}{}
			}
		}
	}
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			environment(containers[i].Env)
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		environment(pod.Spec.EphemeralContainers[i].Env)
	}
	return used
}
