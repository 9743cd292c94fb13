// Package statuspage shows people what a virtual node does: as a page of HTML that stays up to
// date, as JSON, and as text for a terminal.
package statuspage

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Status is what a node does at the moment.
type Status struct {
	Node string `json:"node"`
	// Time is when the status was taken, Started when the process was started.
	Time    metav1.Time `json:"time"`
	Started metav1.Time `json:"started"`
	Version string      `json:"version"`
	// Nodes is how many nodes the process runs, ReadyNodes how many of them are ready.
	Nodes      int `json:"nodes"`
	ReadyNodes int `json:"readyNodes"`

	Checks []Check  `json:"checks"`
	Others []Other  `json:"others,omitempty"` // the other nodes of the process, at most MaxOthers
	Pods   []Pod    `json:"pods"`
	Queues []Queue  `json:"queues"`
	Calls  []Method `json:"calls"` // those of all nodes of the process
	Events []Event  `json:"events"`
}

// Check is one of the checks of /readyz.
type Check struct {
	Name  string       `json:"name"`
	Error string       `json:"error,omitempty"` // empty if it passes
	Last  *metav1.Time `json:"last,omitempty"`  // when the lease was renewed, or the provider answered
}

// Other is another node of the process.
type Other struct {
	Name    string       `json:"name"`
	Failing string       `json:"failing,omitempty"` // the name of the first check that fails; empty if it is ready
	Lease   *metav1.Time `json:"lease,omitempty"`   // when it was renewed
	Ping    *metav1.Time `json:"ping,omitempty"`    // when the provider answered
}

// MaxOthers is how many other nodes a status has; those that are not ready come first.
const MaxOthers = 200

// Pod is how far a pod has come. Times are missing for steps that it has not reached, or that
// an earlier process has seen.
type Pod struct {
	Namespace string          `json:"namespace"`
	Name      string          `json:"name"`
	UID       types.UID       `json:"uid"`
	Phase     corev1.PodPhase `json:"phase"`
	Waiting   string          `json:"waiting,omitempty"` // the reason why it is not any further
	// Orphan is set if the provider holds the pod and the API does not have it.
	Orphan bool `json:"orphan,omitempty"`

	Requested *metav1.Time `json:"requested,omitempty"` // created in the API
	Seen      *metav1.Time `json:"seen,omitempty"`      // by this process
	Created   *metav1.Time `json:"created,omitempty"`   // the provider accepted it
	Running   *metav1.Time `json:"running,omitempty"`   // its first container started
	Ready     *metav1.Time `json:"ready,omitempty"`
	Deleted   *metav1.Time `json:"deleted,omitempty"` // its deletion was requested
	Stopped   *metav1.Time `json:"stopped,omitempty"` // the provider accepted to stop it

	Call *Call `json:"call,omitempty"` // that has not returned
	// Error is the last error that no success has followed.
	Error   string       `json:"error,omitempty"`
	ErrorAt *metav1.Time `json:"errorAt,omitempty"`
	Tries   int          `json:"tries,omitempty"`
	NextTry *metav1.Time `json:"nextTry,omitempty"`
}

// Call is a call of the provider that has not returned.
type Call struct {
	Method string      `json:"method"`
	Since  metav1.Time `json:"since"`
}

// Queue is how many pods wait in a queue, and how many are being handled.
type Queue struct {
	Name    string `json:"name"` // that of the metrics
	Waiting int    `json:"waiting"`
	Handled int    `json:"handled"`
}

// Method has the calls of one method of the provider.
type Method struct {
	Name     string       `json:"name"`
	InFlight int          `json:"inFlight"`
	Oldest   *metav1.Time `json:"oldest,omitempty"` // since when the oldest call in flight runs
	// Minutes are the last ones, the current one at the end.
	Minutes []Minute `json:"minutes"`
}

// Minute sums up the calls that returned in one minute.
type Minute struct {
	Calls   int     `json:"calls"`
	Errors  int     `json:"errors,omitempty"`
	Seconds float64 `json:"seconds,omitempty"` // that they took, all together
}

// sum is that of all minutes.
func (m *Method) sum() (all Minute) {
	for _, one := range m.Minutes {
		all.Calls += one.Calls
		all.Errors += one.Errors
		all.Seconds += one.Seconds
	}
	return all
}

// Event is one that the node has recorded.
type Event struct {
	Time    metav1.Time `json:"time"` // of the last of them
	Type    string      `json:"type"`
	Reason  string      `json:"reason"`
	Object  string      `json:"object"`
	Message string      `json:"message"`
	Count   int         `json:"count"`
}

// Ready reports whether all checks pass.
func (s *Status) Ready() bool {
	return !slices.ContainsFunc(s.Checks, func(c Check) bool { return c.Error != "" })
}

// attention returns the pods in the order in which people want to see them: with errors, on
// their way, and the others, the newest first.
func (s *Status) attention() []*Pod {
	rank := func(p *Pod) int {
		switch {
		case p.Error != "" || p.Orphan:
			return 0
		case p.Deleted != nil || p.Call != nil || p.Phase == corev1.PodPending:
			return 1
		case p.Phase == corev1.PodRunning:
			return 2
		}
		return 3
	}
	pods := make([]*Pod, len(s.Pods))
	for i := range s.Pods {
		pods[i] = &s.Pods[i]
	}
	slices.SortStableFunc(pods, func(a, b *Pod) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), unix(b.Requested).Compare(unix(a.Requested)))
	})
	return pods
}

// phases counts the pods by phase, in the order of their lives.
func (s *Status) phases() (found []phaseCount) {
	for _, phase := range []corev1.PodPhase{corev1.PodPending, corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed, corev1.PodUnknown} {
		n := 0
		for i := range s.Pods {
			if s.Pods[i].Phase == phase {
				n++
			}
		}
		if n > 0 {
			found = append(found, phaseCount{phase, n})
		}
	}
	return found
}

type phaseCount struct {
	phase corev1.PodPhase
	n     int
}

func unix(t *metav1.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}

// maxText is how many bytes are shown of a text that others wrote: as many as an event has.
const maxText = 1024

// Shorten returns as much of a text that others wrote as a page shows.
func Shorten(text string) string {
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText], "") + "..."
}
