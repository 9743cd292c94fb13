package translate

import (
	"encoding/json"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// lastApplied is what home last applied to a remote pod, of all fields that can change.
// It distinguishes changes at home from those of the remote cluster, whose admission
// may add labels, limits and sidecars, or replace images.
type lastApplied struct {
	appliedMetadata
	Images                map[string]string                      `json:"images,omitempty"` // by container
	Resources             map[string]corev1.ResourceRequirements `json:"resources,omitempty"`
	ActiveDeadlineSeconds *int64                                 `json:"activeDeadlineSeconds,omitempty"`
}

// appliedMetadata is the part of lastApplied about metadata: the keys of labels and
// annotations, and the generation of the home pod.
type appliedMetadata struct {
	Generation  int64    `json:"generation,omitempty"`
	Labels      []string `json:"labels,omitempty"`
	Annotations []string `json:"annotations,omitempty"`
}

// newLastApplied returns the lastApplied to record when a home pod is applied.
func (o *Options) newLastApplied(pod *corev1.Pod) lastApplied {
	a := lastApplied{
		appliedMetadata: appliedMetadata{Generation: pod.Generation}, ActiveDeadlineSeconds: pod.Spec.ActiveDeadlineSeconds,
		Images: map[string]string{}, Resources: map[string]corev1.ResourceRequirements{},
	}
	for name := range pod.Labels {
		if o.Labels.carries(name) {
			a.Labels = append(a.Labels, name)
		}
	}
	for name := range pod.Annotations {
		if o.carriesAnnotation(name) {
			a.Annotations = append(a.Annotations, name)
		}
	}
	slices.Sort(a.Labels)
	slices.Sort(a.Annotations)
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			c := &containers[i]
			a.Images[c.Name] = c.Image
			if len(c.Resources.Requests)+len(c.Resources.Limits) > 0 {
				a.Resources[c.Name] = corev1.ResourceRequirements{Requests: c.Resources.Requests, Limits: c.Resources.Limits}
			}
		}
	}
	return a
}

// carriesAnnotation reports whether an annotation is copied to the remote pod. Those of
// the provider describe one remote pod: if home is itself the remote cluster of another
// one, they do not apply here.
func (o *Options) carriesAnnotation(name string) bool {
	return o.Annotations.carries(name) && (name == AnnotationAPIServer || !strings.HasPrefix(name, Prefix))
}

// lastAppliedOf returns what was last applied to a remote pod.
func lastAppliedOf(remote metav1.Object) lastApplied { return readLastApplied[lastApplied](remote) }

// readLastApplied decodes AnnotationLastApplied, or the part of it that T has.
func readLastApplied[T lastApplied | appliedMetadata](remote metav1.Object) (found T) {
	_ = json.Unmarshal([]byte(remote.GetAnnotations()[AnnotationLastApplied]), &found) // an annotation that cannot be decoded was not written here
	return found
}

func (a lastApplied) String() string {
	text, err := json.Marshal(a)
	if err != nil {
		return "{}" // maps and lists of strings and quantities can always be encoded
	}
	return string(text)
}

// ObservedMetadata returns the metadata of a home pod as the remote pod shows it. It
// differs from the home pod's where home has changed labels or annotations that were
// not applied yet.
func (o *Options) ObservedMetadata(pod, remote *corev1.Pod) (labels, annotations map[string]string) {
	carried := func(local, there map[string]string, keeps func(string) bool) map[string]string {
		all := map[string]string{}
		for name, value := range there {
			all[name] = value
		}
		for name, value := range local {
			if !keeps(name) {
				all[name] = value
			}
		}
		return all
	}
	return carried(pod.Labels, remote.Labels, o.Labels.carries), carried(pod.Annotations, remote.Annotations, o.carriesAnnotation)
}

// GenerationOf returns the generation of the home pod that was last applied to a remote
// pod.
func GenerationOf(remote metav1.Object) int64 {
	return readLastApplied[appliedMetadata](remote).Generation
}

// MetadataRemoved reports whether home has removed labels or annotations that were
// applied to the remote pod, and has changed nothing else since: a change of the spec
// updates all at once.
func (o *Options) MetadataRemoved(pod, remote *corev1.Pod) bool {
	old := readLastApplied[appliedMetadata](remote)
	return old.Generation == pod.Generation &&
		(lacks(pod.Labels, old.Labels, o.Labels.carries) || lacks(pod.Annotations, old.Annotations, o.carriesAnnotation))
}

func lacks(now map[string]string, old []string, keeps func(string) bool) bool {
	return slices.ContainsFunc(old, func(name string) bool {
		_, ok := now[name]
		return !ok || !keeps(name)
	})
}
