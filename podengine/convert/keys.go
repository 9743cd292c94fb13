package convert

import (
	"encoding/json"
	"maps"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kubelettypes "k8s.io/kubelet/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/podspec"
)

// Annotations of containers and sandboxes in the runtime. The names with
// io.kubernetes are those of a kubelet, for the sake of tools that read them.
const (
	// NodeAnnotation says which node's a sandbox or container is.
	NodeAnnotation = "virtual-kubelet.io/node"

	HashAnnotation                     = "io.kubernetes.container.hash"
	RestartCountAnnotation             = "io.kubernetes.container.restartCount"
	TerminationMessagePathAnnotation   = "io.kubernetes.container.terminationMessagePath"
	TerminationMessagePolicyAnnotation = "io.kubernetes.container.terminationMessagePolicy"
	PreStopHandlerAnnotation           = "io.kubernetes.container.preStopHandler"
	PortsAnnotation                    = "io.kubernetes.container.ports"
	DeletionGracePeriodAnnotation      = "io.kubernetes.pod.deletionGracePeriod"
	TerminationGracePeriodAnnotation   = "io.kubernetes.pod.terminationGracePeriod"
)

func identityLabels(pod *corev1.Pod) map[string]string {
	return map[string]string{
		kubelettypes.KubernetesPodNameLabel:      pod.Name,
		kubelettypes.KubernetesPodNamespaceLabel: pod.Namespace,
		kubelettypes.KubernetesPodUIDLabel:       string(pod.UID),
	}
}

// sandboxLabels are the pod's own, among which none of the same name counts.
func sandboxLabels(pod *corev1.Pod) map[string]string {
	labels := make(map[string]string, len(pod.Labels)+3)
	maps.Copy(labels, pod.Labels)
	maps.Copy(labels, identityLabels(pod))
	return labels
}

func (n Node) sandboxAnnotations(pod *corev1.Pod) map[string]string {
	annotations := make(map[string]string, len(pod.Annotations)+1)
	maps.Copy(annotations, pod.Annotations)
	annotations[NodeAnnotation] = n.Name
	return annotations
}

func containerLabels(pod *corev1.Pod, c *corev1.Container) map[string]string {
	labels := identityLabels(pod)
	labels[kubelettypes.KubernetesContainerNameLabel] = c.Name
	return labels
}

// containerAnnotations are what is needed to stop a container and to know what
// became of it when nothing but the runtime knows it any more. extra are given
// by others, devices for example.
func (n Node) containerAnnotations(pod *corev1.Pod, c *corev1.Container, o ContainerOptions) (map[string]string, error) {
	a := maps.Clone(o.Annotations)
	if a == nil {
		a = map[string]string{}
	}
	a[NodeAnnotation] = n.Name
	a[HashAnnotation] = strconv.FormatUint(podspec.HashContainer(c), 16)
	a[RestartCountAnnotation] = strconv.FormatUint(uint64(o.Attempt), 10)
	a[TerminationMessagePathAnnotation] = c.TerminationMessagePath
	a[TerminationMessagePolicyAnnotation] = string(c.TerminationMessagePolicy)
	if seconds := pod.DeletionGracePeriodSeconds; seconds != nil {
		a[DeletionGracePeriodAnnotation] = strconv.FormatInt(*seconds, 10)
	}
	if seconds := pod.Spec.TerminationGracePeriodSeconds; seconds != nil {
		a[TerminationGracePeriodAnnotation] = strconv.FormatInt(*seconds, 10)
	}
	if c.Lifecycle != nil && c.Lifecycle.PreStop != nil {
		if err := setJSON(a, PreStopHandlerAnnotation, c.Lifecycle.PreStop); err != nil {
			return nil, err
		}
	}
	if len(c.Ports) > 0 {
		if err := setJSON(a, PortsAnnotation, c.Ports); err != nil {
			return nil, err
		}
	}
	return a, nil
}

func setJSON(annotations map[string]string, key string, value any) error {
	text, err := json.Marshal(value)
	annotations[key] = string(text)
	return err
}

// Identity says whose a sandbox or container is.
type Identity struct {
	Namespace, Name string
	UID             types.UID
	// Container is empty for a sandbox.
	Container string
	// Node is the name of the node that made it; empty if it was another kubelet.
	Node string
}

// IdentityOf reads whose a sandbox or container is from what the runtime keeps
// with it. What is not there stays empty: nothing of ours lacks a UID or a node.
func IdentityOf(labels, annotations map[string]string) Identity {
	return Identity{
		Namespace: kubelettypes.GetPodNamespace(labels),
		Name:      kubelettypes.GetPodName(labels),
		UID:       types.UID(kubelettypes.GetPodUID(labels)),
		Container: kubelettypes.GetContainerName(labels),
		Node:      annotations[NodeAnnotation],
	}
}
