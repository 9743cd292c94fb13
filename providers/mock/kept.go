package mock

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// kept is what the provider keeps of a pod that it was given: what it goes by, and the whole
// encoded, since a decoded one takes several times as much memory. It is never changed, but
// replaced.
type kept struct {
	namespace, name     string
	uid                 types.UID
	generation          int64
	createdInAPI        metav1.Time
	labels, annotations []text
	node                string
	restartPolicy       corev1.RestartPolicy
	activeDeadline      *int64
	containers          []container // init, main and ephemeral ones
	encoded             []byte      // without what is above of the metadata, without the kind and the status
}

// container is what the provider goes by of a container.
type container struct {
	name, image string
	kind        kind
	resources   corev1.ResourceRequirements
}

// keep returns what is kept of a pod, which may change afterwards.
func keep(whole *corev1.Pod) (kept, error) {
	encoded, err := (&corev1.Pod{ObjectMeta: restOf(whole.ObjectMeta), Spec: whole.Spec}).Marshal()
	if err != nil {
		return kept{}, fmt.Errorf("encode the pod: %w", err)
	}
	return kept{
		namespace: whole.Namespace, name: whole.Name, uid: whole.UID, generation: whole.Generation, createdInAPI: whole.CreationTimestamp,
		labels: textsOf(whole.Labels), annotations: textsOf(whole.Annotations),
		node: whole.Spec.NodeName, restartPolicy: whole.Spec.RestartPolicy, activeDeadline: copied(whole.Spec.ActiveDeadlineSeconds),
		containers: containersOf(&whole.Spec), encoded: encoded,
	}, nil
}

func copied(number *int64) *int64 {
	if number == nil {
		return nil
	}
	return new(*number)
}

// restOf returns the metadata that is encoded.
func restOf(meta metav1.ObjectMeta) metav1.ObjectMeta {
	meta.Namespace, meta.Name, meta.UID, meta.Generation, meta.CreationTimestamp = "", "", "", 0, metav1.Time{}
	meta.Labels, meta.Annotations = nil, nil
	return meta
}

func containersOf(spec *corev1.PodSpec) []container {
	all := make([]container, 0, len(spec.InitContainers)+len(spec.Containers)+len(spec.EphemeralContainers))
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		all = append(all, container{c.Name, c.Image, initKind(c), *c.Resources.DeepCopy()})
	}
	for i := range spec.Containers {
		c := &spec.Containers[i]
		all = append(all, container{c.Name, c.Image, kindMain, *c.Resources.DeepCopy()})
	}
	for i := range spec.EphemeralContainers {
		c := &spec.EphemeralContainers[i]
		all = append(all, container{c.Name, c.Image, kindEphemeral, *c.Resources.DeepCopy()})
	}
	return all
}

// of returns the containers of one kind.
func (k *kept) of(kind kind) (containers []*container) {
	for i := range k.containers {
		if k.containers[i].kind == kind {
			containers = append(containers, &k.containers[i])
		}
	}
	return containers
}

// with returns the pod as it was given, with a status. It is the caller's own.
func (k *kept) with(status corev1.PodStatus) (*corev1.Pod, error) {
	whole := &corev1.Pod{}
	if err := whole.Unmarshal(k.encoded); err != nil {
		return nil, fmt.Errorf("decode pod %s/%s: %w", k.namespace, k.name, err)
	}
	k.identify(&whole.ObjectMeta)
	whole.Status = status
	return whole, nil
}

// brief returns the pod with what a notification shows of it. It is the caller's own.
func (k *kept) brief() *corev1.Pod {
	brief := &corev1.Pod{Spec: corev1.PodSpec{NodeName: k.node, RestartPolicy: k.restartPolicy}}
	k.identify(&brief.ObjectMeta)
	for _, c := range k.of(kindMain) {
		brief.Spec.Containers = append(brief.Spec.Containers, corev1.Container{Name: c.name, Image: c.image, Resources: *c.resources.DeepCopy()})
	}
	return brief
}

func (k *kept) identify(meta *metav1.ObjectMeta) {
	meta.Namespace, meta.Name, meta.UID, meta.Generation, meta.CreationTimestamp = k.namespace, k.name, k.uid, k.generation, k.createdInAPI
	meta.Labels, meta.Annotations = mapOf(k.labels), mapOf(k.annotations)
}

// text is a label or an annotation. A list of them takes less memory than a map.
type text struct{ key, value string }

func textsOf(m map[string]string) []text {
	if m == nil {
		return nil
	}
	texts := make([]text, 0, len(m))
	for key, value := range m {
		texts = append(texts, text{key, value})
	}
	return texts
}

func mapOf(texts []text) map[string]string {
	if texts == nil {
		return nil
	}
	m := make(map[string]string, len(texts))
	for _, t := range texts {
		m[t.key] = t.value
	}
	return m
}
