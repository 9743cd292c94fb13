package translate

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"
)

// Options say how pods are translated.
type Options struct {
	Home       Home
	Namespaces Namespaces

	// Labels and Annotations say which of a pod's go with it.
	Labels, Annotations Filter
	// Scheduling is what decides where in the remote cluster a pod runs.
	Scheduling Scheduling

	// AllowHostNamespaces lets pods have the network, processes or IPC of the
	// remote node, AllowHostPath its files.
	AllowHostNamespaces, AllowHostPath bool
	// RuntimeClasses and PriorityClasses are the remote names of classes. A pod
	// whose runtime class is not there is refused; priorities that are not there
	// are dropped.
	RuntimeClasses, PriorityClasses map[string]string

	// NoTokens keeps the home cluster's tokens of service accounts at home.
	NoTokens bool
	// APIServer is where pods find the home cluster's API server; empty fields
	// leave what the service "kubernetes" says.
	APIServer APIServer
	// PodIPs says how addresses of remote pods look at home; the first that has
	// an address counts. Others stay as they are.
	PodIPs []Range
}

// APIServer is the address of an API server.
type APIServer struct {
	Host string `json:"host,omitempty"`
	Port int32  `json:"port,omitempty"`
}

// Range maps addresses to others, of as many bits.
type Range struct{ Remote, Home netip.Prefix }

// Filter says which names of labels or annotations are kept.
type Filter struct {
	// Exclude are names that are not; those that end in * stand for all that
	// begin so.
	Exclude []string `json:"exclude,omitempty"`
}

func (f Filter) keeps(name string) bool { return !matches(f.Exclude, name) }

func matches(patterns []string, name string) bool {
	for _, pattern := range patterns {
		if start, ok := strings.CutSuffix(pattern, "*"); ok && strings.HasPrefix(name, start) || pattern == name {
			return true
		}
	}
	return false
}

// MayTake reports whether a remote node may take pods, by what each has: its labels
// are those of NodeSelector, and its taints are tolerated, or may be by pods whose
// tolerations are kept.
func (s *Scheduling) MayTake(n *corev1.Node) bool {
	if !labels.SelectorFromSet(s.NodeSelector).Matches(labels.Set(n.Labels)) {
		return false
	}
	return !slices.ContainsFunc(n.Spec.Taints, func(taint corev1.Taint) bool {
		return taint.Effect != corev1.TaintEffectPreferNoSchedule && !matches(s.KeepTolerations, taint.Key) &&
			!slices.ContainsFunc(s.Tolerations, func(t corev1.Toleration) bool { return t.ToleratesTaint(klog.Logger{}, &taint, false) })
	})
}

// Scheduling says what a remote pod has of the fields that a scheduler reads.
// Those of the pod were for the home cluster, so that it keeps only what is
// named here.
type Scheduling struct {
	// KeepNodeSelector and KeepTolerations are keys of the pod's own that are
	// kept; those that end in * stand for all that begin so.
	KeepNodeSelector []string `json:"keepNodeSelector,omitempty"`
	KeepTolerations  []string `json:"keepTolerations,omitempty"`
	// KeepAffinity keeps affinity and topologySpreadConstraints.
	KeepAffinity bool `json:"keepAffinity,omitempty"`
	// NodeSelector and Tolerations are added to each pod.
	NodeSelector map[string]string   `json:"nodeSelector,omitempty"`
	Tolerations  []corev1.Toleration `json:"tolerations,omitempty"`
	// SchedulerName is that of the remote scheduler. Defaults to the remote
	// cluster's default.
	SchedulerName string `json:"schedulerName,omitempty"`
}
