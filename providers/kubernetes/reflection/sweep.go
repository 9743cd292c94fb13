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

	"github.com/virtual-kubelet/virtual-kubelet/providers/kubernetes/translate"
)

// orphanAge is how old a copy has to be to be removed by Sweep: they are written
// before the pods that need them.
const orphanAge = 2 * time.Minute

const pageSize = 500

// Sweep removes copies, with the labels of this cluster and node, that neither a
// followed pod nor one of the remote pods needs: they are left from an earlier
// life. What followed pods need and is not there, or is no longer what was written, is
// written again: a remote cluster that was restored has what it once had. namespace is
// the remote one, or all. Only names and labels are read.
func (r *Reflector) Sweep(ctx context.Context, client metadata.Interface, namespace string, pods []*corev1.Pod) error {
	missing := map[placed]ref{}
	r.mu.Lock()
	for of := range r.copies {
		if at, err := r.place(of); err == nil {
			missing[placed{remoteKind(of.kind), at}] = of
		}
	}
	r.mu.Unlock()
	var old []found
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
				here := placed{kind, types.NamespacedName{Namespace: object.Namespace, Name: object.Name}}
				if of, ok := missing[here]; ok && r.hasChanged(of, object) {
					changed = append(changed, of)
				}
				delete(missing, here)
				if time.Since(object.CreationTimestamp.Time) >= orphanAge {
					old = append(old, found{here, object.UID, object.ResourceVersion})
				}
			}
			if options.Continue = list.Continue; options.Continue == "" {
				break
			}
		}
	}
	var errs []error
	used := r.used(pods) // by now, whatever the remote cluster's clock says of an age
	for _, f := range old {
		if _, ok := used[f.at]; !ok {
			if err := r.delete(ctx, f.kind, f.at, &metav1.Preconditions{UID: &f.uid, ResourceVersion: &f.version}); !apierrors.IsConflict(err) {
				errs = append(errs, err) // otherwise it has changed, and may be somebody else's by now
			}
			if of, ok := r.copyAt(f.placed); ok { // a pod that needs it has come meanwhile, and found it as it should be
				r.writeAgain(of, true)
			}
		}
	}
	for _, of := range missing {
		r.writeAgain(of, true)
	}
	for _, of := range changed {
		r.writeAgain(of, false)
	}
	return errors.Join(errs...)
}

// used are the places of what followed pods, and the given remote ones, need.
func (r *Reflector) used(pods []*corev1.Pod) map[types.NamespacedName]struct{} {
	used := map[types.NamespacedName]struct{}{}
	for _, pod := range pods {
		for name := range UsedBy(pod) {
			used[types.NamespacedName{Namespace: pod.Namespace, Name: name}] = struct{}{}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for of := range r.copies {
		if at, err := r.place(of); err == nil {
			used[at] = struct{}{}
		}
	}
	return used
}

// copyAt returns the original of the copy that followed pods need at a place.
func (r *Reflector) copyAt(here placed) (ref, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for of := range r.copies {
		if at, err := r.place(of); err == nil && at == here.at && remoteKind(of.kind) == here.kind {
			return of, true
		}
	}
	return ref{}, false
}

// found is an object in the remote cluster.
type found struct {
	placed
	uid     types.UID
	version string
}

// placed is a place in the remote cluster.
type placed struct {
	kind string
	at   types.NamespacedName
}

// hasChanged reports whether what the remote cluster has of a copy is another version
// than the last that was written. One that is being written is not known.
func (r *Reflector) hasChanged(of ref, found metav1.Object) bool {
	r.mu.Lock()
	c := r.copies[of]
	r.mu.Unlock()
	if c == nil || !c.writing.TryLock() {
		return false
	}
	defer c.writing.Unlock()
	return c.is.uid != "" && (c.is.uid != found.GetUID() || c.is.version != found.GetResourceVersion())
}

// writeAgain writes a copy, which may be lost, although its original has not changed.
func (r *Reflector) writeAgain(of ref, lost bool) {
	r.mu.Lock()
	c := r.copies[of]
	r.mu.Unlock()
	if c == nil {
		return
	}
	c.writing.Lock()
	c.written, c.is, c.lost = "", written{}, c.lost || lost
	c.writing.Unlock()
	r.queue.Add(of)
}

// UsedBy returns the names of the ConfigMaps and Secrets that a remote pod needs.
func UsedBy(pod *corev1.Pod) map[string]struct{} {
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
