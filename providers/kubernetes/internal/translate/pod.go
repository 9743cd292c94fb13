package translate

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/config"
)

// AnnotationAPIServer with the value "remote" marks pods that are clients of the remote
// API server: they get its address, its certificate authority and the token of the
// default service account of the remote namespace.
const AnnotationAPIServer = Prefix + "api-server"

func usesRemoteAPI(pod *corev1.Pod) bool { return pod.Annotations[AnnotationAPIServer] == "remote" }

// Pod returns the remote pod of a home pod, whose environment is resolved. The objects
// that it refers to must exist under the names that ObjectName returns; claims has the
// names of its remote claims by the names of its volumes. An error is permanent: the
// pod cannot run in the remote cluster.
func (o *Options) Pod(pod *corev1.Pod, claims map[string]string) (*corev1.Pod, error) {
	name, err := o.PodName(pod.Namespace, pod.Name)
	if err != nil {
		return nil, err
	}
	if err := o.checkSupported(pod, claims); err != nil {
		return nil, err
	}
	remote := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name},
		Spec:       *pod.Spec.DeepCopy(),
	}
	o.setMetadata(pod, &remote.ObjectMeta)
	spec := &remote.Spec
	if err := o.setScheduling(pod, spec); err != nil {
		return nil, err
	}
	if spec.Hostname == "" && name.Name != pod.Name && !spec.HostNetwork {
		spec.Hostname = hostname(pod.Name)
	}
	// Clear what has a meaning in the home cluster only, or is set by the remote one.
	spec.EphemeralContainers = nil // added later: see EphemeralContainers
	spec.ReadinessGates = nil      // the conditions are set, and evaluated, at home
	spec.EnableServiceLinks = ptr.To(false)
	spec.ServiceAccountName, spec.DeprecatedServiceAccount = "", ""
	spec.AutomountServiceAccountToken = ptr.To(false)
	if spec.RuntimeClassName != nil {
		spec.RuntimeClassName = ptr.To(o.RuntimeClasses[*spec.RuntimeClassName])
	}
	spec.Overhead = nil
	for i := range spec.ImagePullSecrets {
		spec.ImagePullSecrets[i].Name = o.ObjectName(KindSecret, pod.Namespace, spec.ImagePullSecrets[i].Name)
	}
	for i := range spec.Volumes {
		o.rewriteVolume(pod, &spec.Volumes[i], claims)
	}
	o.moveEnvironments(pod, spec)
	return remote, nil
}

// MetadataOf returns the labels and annotations that the remote pod of a home pod has from
// home.
func (o *Options) MetadataOf(pod *corev1.Pod) (labels, annotations map[string]string) {
	var meta metav1.ObjectMeta
	o.setMetadata(pod, &meta)
	return meta.Labels, meta.Annotations
}

// setMetadata sets the labels and annotations of a remote pod: those copied from the
// home pod, and those of the provider.
func (o *Options) setMetadata(pod *corev1.Pod, to *metav1.ObjectMeta) {
	to.Labels, to.Annotations = map[string]string{}, map[string]string{}
	a := o.newLastApplied(pod)
	for _, name := range a.Labels {
		to.Labels[name] = pod.Labels[name]
	}
	for _, name := range a.Annotations {
		to.Annotations[name] = pod.Annotations[name]
	}
	maps.Copy(to.Labels, o.Home.LabelsOf(pod.Namespace, pod.UID))
	to.Annotations[AnnotationName] = pod.Name
	to.Annotations[AnnotationLastApplied] = a.String()
}

// hostname returns the name of a pod as a hostname, which must not contain dots.
func hostname(name string) string {
	label := strings.ReplaceAll(name, ".", "-")
	if len(label) <= maxLabelValue {
		return label
	}
	return shorten(label, maxLabelValue, name)
}

// AnnotationNodeSelector and AnnotationAffinity are the pod's own constraints for the
// remote scheduler: key=value pairs, and an affinity in JSON. The configuration's node
// selector takes precedence, so that a pod cannot leave the nodes that the virtual node
// stands for.
const (
	AnnotationNodeSelector = Prefix + "node-selector"
	AnnotationAffinity     = Prefix + "affinity"
)

// setScheduling sets the fields that a scheduler reads.
func (o *Options) setScheduling(pod *corev1.Pod, spec *corev1.PodSpec) error {
	s := &o.Scheduling
	selector, err := labels.ConvertSelectorToLabelsMap(pod.Annotations[AnnotationNodeSelector])
	if err != nil {
		return errdefs.AsPermanent(fmt.Errorf("annotation %s: write key=value pairs with commas between them: %w", AnnotationNodeSelector, err))
	}
	spec.NodeName, spec.SchedulingGates, spec.SchedulingGroup = "", nil, nil
	spec.SchedulerName = s.SchedulerName
	maps.DeleteFunc(spec.NodeSelector, func(key, _ string) bool { return !matches(s.KeepNodeSelector, key) })
	if len(selector)+len(s.NodeSelector) > 0 && spec.NodeSelector == nil {
		spec.NodeSelector = map[string]string{}
	}
	maps.Copy(spec.NodeSelector, selector)
	maps.Copy(spec.NodeSelector, s.NodeSelector)
	if !s.KeepAffinity {
		spec.Affinity, spec.TopologySpreadConstraints = nil, nil
	}
	if text := pod.Annotations[AnnotationAffinity]; text != "" {
		spec.Affinity = &corev1.Affinity{}
		if err := config.Decode([]byte(text), spec.Affinity, nil); err != nil {
			return errdefs.AsPermanent(fmt.Errorf("annotation %s: write the affinity of a pod in JSON: %w", AnnotationAffinity, err))
		}
	}
	spec.Tolerations = o.tolerations(spec.Tolerations)
	spec.PriorityClassName = o.PriorityClasses[spec.PriorityClassName]
	spec.Priority, spec.PreemptionPolicy = nil, nil
	return nil
}

func (o *Options) tolerations(of []corev1.Toleration) []corev1.Toleration {
	kept := slices.DeleteFunc(slices.Clone(of), func(t corev1.Toleration) bool { return !matches(o.Scheduling.KeepTolerations, t.Key) })
	return append(kept, o.Scheduling.Tolerations...)
}

// checkSupported returns an error that names the feature of a pod that the remote
// cluster cannot have, or that the configuration does not allow.
func (o *Options) checkSupported(pod *corev1.Pod, claims map[string]string) error {
	var what string
	spec := &pod.Spec
	class := ptr.Deref(spec.RuntimeClassName, "")
	switch _, mapped := o.RuntimeClasses[class]; {
	case !o.AllowHostNamespaces && (spec.HostNetwork || spec.HostPID || spec.HostIPC):
		what = "hostNetwork, hostPID or hostIPC: the provider's configuration can allow it with allowHostNamespaces"
	case !o.AllowHostNamespaces && hasHostPort(spec):
		what = "hostPort: the provider's configuration can allow it with allowHostNamespaces"
	case len(spec.ResourceClaims) > 0:
		what = "resourceClaims"
	case class != "" && !mapped:
		what = fmt.Sprintf("runtime class %s: the provider's configuration can name the remote one in runtimeClasses", class)
	default:
		for i := range spec.Volumes {
			if kind := o.unsupportedVolume(pod, &spec.Volumes[i], claims); kind != "" {
				what = fmt.Sprintf("volume %s of kind %s", spec.Volumes[i].Name, kind)
				break
			}
		}
	}
	if what == "" {
		return nil
	}
	return errdefs.AsPermanent(fmt.Errorf("ProviderNotSupported: %s", what))
}

// hasHostPort reports whether a container of the pod has a hostPort.
func hasHostPort(spec *corev1.PodSpec) bool {
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			for _, port := range containers[i].Ports {
				if port.HostPort != 0 {
					return true
				}
			}
		}
	}
	return false
}
