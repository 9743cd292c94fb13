package translate

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"
)

// Options configure how pods are translated.
type Options struct {
	Home       Home
	Namespaces Namespaces

	// Labels and Annotations select the labels and annotations that are copied to the
	// remote pod.
	Labels, Annotations Filter
	// Scheduling configures where in the remote cluster a pod runs.
	Scheduling Scheduling

	// AllowHostNamespaces allows pods the network, process and IPC namespaces of the
	// remote node, AllowHostPath its files.
	AllowHostNamespaces, AllowHostPath bool
	// RuntimeClasses and PriorityClasses are the names of remote classes by those of
	// home classes. A pod with another runtime class is refused; another priority class
	// is dropped.
	RuntimeClasses, PriorityClasses map[string]string

	// NoTokens keeps service account tokens of the home cluster out of the remote
	// cluster.
	NoTokens bool
	// APIServer is the address at which remote pods find the home API server. Empty
	// fields keep the values of the service "kubernetes".
	APIServer APIServer
	// IsService keeps to what services have of the API of Kubernetes, which may lack the
	// downward API in volumes.
	IsService bool
	// Unresolved returns a home pod as its API server has it, before its environment was
	// resolved, or nil if that is unknown. Nil is never known.
	Unresolved func(pod *corev1.Pod) *corev1.Pod
	// Expand replaces the references of a text to variables that are plain values, as the
	// kubelet does. Nil leaves the commands of probes as they are.
	Expand func(text string, env []corev1.EnvVar) string
	// PodIPs maps the IPs of remote pods to those shown at home. The first range that
	// contains an IP is used; other IPs are not changed.
	PodIPs []Range
}

// APIServer is the address of an API server.
type APIServer struct {
	Host string `json:"host,omitempty"`
	Port int32  `json:"port,omitempty"`
}

// Range maps the addresses of one CIDR to those of another of the same size.
type Range struct{ Remote, Home netip.Prefix }

// Filter selects the keys of labels or annotations that are copied.
type Filter struct {
	// Exclude are keys that are not copied. A key that ends in * stands for all keys
	// with that prefix.
	Exclude []string `json:"exclude,omitempty"`
}

func (f Filter) carries(name string) bool { return !matches(f.Exclude, name) }

func matches(patterns []string, name string) bool {
	for _, pattern := range patterns {
		if start, ok := strings.CutSuffix(pattern, "*"); ok && strings.HasPrefix(name, start) || pattern == name {
			return true
		}
	}
	return false
}

// MayTake reports whether pods may be scheduled to a remote node: its labels match
// NodeSelector, and its taints are tolerated by Tolerations, or may be by tolerations
// of pods that KeepTolerations keeps.
func (s *Scheduling) MayTake(n *corev1.Node) bool {
	if !labels.SelectorFromSet(s.NodeSelector).Matches(labels.Set(n.Labels)) {
		return false
	}
	return !slices.ContainsFunc(n.Spec.Taints, func(taint corev1.Taint) bool {
		return taint.Effect != corev1.TaintEffectPreferNoSchedule && !matches(s.KeepTolerations, taint.Key) &&
			!slices.ContainsFunc(s.Tolerations, func(t corev1.Toleration) bool { return t.ToleratesTaint(klog.Logger{}, &taint, false) })
	})
}

// Scheduling sets the fields of a remote pod that a scheduler reads. The home pod's
// were meant for the home cluster, so only those named here are kept.
type Scheduling struct {
	// KeepNodeSelector and KeepTolerations are the keys of the home pod's nodeSelector
	// and tolerations to keep. A key that ends in * stands for all keys with that
	// prefix.
	KeepNodeSelector []string `json:"keepNodeSelector,omitempty"`
	KeepTolerations  []string `json:"keepTolerations,omitempty"`
	// KeepAffinity keeps affinity and topologySpreadConstraints.
	KeepAffinity bool `json:"keepAffinity,omitempty"`
	// NodeSelector and Tolerations are added to each pod.
	NodeSelector map[string]string   `json:"nodeSelector,omitempty"`
	Tolerations  []corev1.Toleration `json:"tolerations,omitempty"`
	// SchedulerName is the name of the remote scheduler. Defaults to the remote
	// cluster's default.
	SchedulerName string `json:"schedulerName,omitempty"`
}
