package translate

import (
	"encoding/json"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// asked is what home has asked for, of all that can change of a pod: by it a change
// at home is told from one that the remote cluster has made, whose admission may
// add labels, limits and sidecars, or exchange images.
type asked struct {
	names
	Images                map[string]string                      `json:"images,omitempty"` // by container
	Resources             map[string]corev1.ResourceRequirements `json:"resources,omitempty"`
	ActiveDeadlineSeconds *int64                                 `json:"activeDeadlineSeconds,omitempty"`
}

// names are those of labels and annotations that home has asked for, and the
// generation of the pod that had them.
type names struct {
	Generation  int64    `json:"generation,omitempty"`
	Labels      []string `json:"labels,omitempty"`
	Annotations []string `json:"annotations,omitempty"`
}

// ask returns what is asked for with a pod.
func (o *Options) ask(pod *corev1.Pod) asked {
	a := asked{
		names: names{Generation: pod.Generation}, ActiveDeadlineSeconds: pod.Spec.ActiveDeadlineSeconds,
		Images: map[string]string{}, Resources: map[string]corev1.ResourceRequirements{},
	}
	for name := range pod.Labels {
		if o.Labels.keeps(name) {
			a.Labels = append(a.Labels, name)
		}
	}
	for name := range pod.Annotations {
		if o.keepsAnnotation(name) {
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

// keepsAnnotation tells whether an annotation goes with a pod. Ours say something of
// one remote pod, and if home is itself remote to another cluster not of this one.
func (o *Options) keepsAnnotation(name string) bool {
	return o.Annotations.keeps(name) && (name == AnnotationAPIServer || !strings.HasPrefix(name, Prefix))
}

// askedOf is what was asked for with a remote pod.
func askedOf(remote metav1.Object) asked { return readAsked[asked](remote) }

// readAsked reads it, or the part of it that a type has.
func readAsked[T asked | names](remote metav1.Object) (found T) {
	_ = json.Unmarshal([]byte(remote.GetAnnotations()[AnnotationAsked]), &found) // what cannot be read was not ours
	return found
}

func (a asked) String() string {
	text, err := json.Marshal(a)
	if err != nil {
		return "{}" // maps and lists of strings and quantities can be written
	}
	return string(text)
}

// Carried returns the metadata of a pod at home as the remote pod has it: what home has
// changed while nobody carried it over differs.
func (o *Options) Carried(pod, remote *corev1.Pod) (labels, annotations map[string]string) {
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
	return carried(pod.Labels, remote.Labels, o.Labels.keeps), carried(pod.Annotations, remote.Annotations, o.keepsAnnotation)
}

// GenerationOf is the generation at home that a remote pod is of.
func GenerationOf(remote metav1.Object) int64 { return readAsked[names](remote).Generation }

// TookBack tells whether home has fewer labels or annotations of a pod than it asked
// for with the remote one, and has not changed anything else since: a change of the
// spec takes them with it, all at once.
func (o *Options) TookBack(pod, remote *corev1.Pod) bool {
	old := readAsked[names](remote)
	return old.Generation == pod.Generation &&
		(lacks(pod.Labels, old.Labels, o.Labels.keeps) || lacks(pod.Annotations, old.Annotations, o.keepsAnnotation))
}

func lacks(now map[string]string, old []string, keeps func(string) bool) bool {
	return slices.ContainsFunc(old, func(name string) bool {
		_, ok := now[name]
		return !ok || !keeps(name)
	})
}
