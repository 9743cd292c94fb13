package nodeutil

import (
	"net/http"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics"

	"github.com/virtual-kubelet/virtual-kubelet/internal/buildinfo"
	"github.com/virtual-kubelet/virtual-kubelet/internal/statuspage"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
)

// statusRoute is /status: what the node does, for people. A kubelet has none.
func (n *Node) statusRoute() api.Route {
	_, ready := n.healthChecks()
	take := func(r *http.Request) *statuspage.Status {
		s := n.status()
		for _, check := range ready {
			c := statuspage.Check{Name: check.Name(), Last: n.health.last(check.Name())}
			if err := check.Check(r); err != nil {
				c.Error = statuspage.Shorten(err.Error())
			}
			s.Checks = append(s.Checks, c)
		}
		return s
	}
	return api.Route{Pattern: "/status", Methods: reading, Handler: statuspage.Handler(n.shared.watchers, take)}
}

// status is all of the status but the health checks.
func (n *Node) status() *statuspage.Status {
	s := &statuspage.Status{Node: n.cfg.NodeSpec.Name, Time: metav1.Now(), Version: buildinfo.Get().Version}
	if start, err := metrics.GetProcessStart(); err == nil {
		s.Started = metav1.NewTime(time.UnixMicro(int64(start * 1e6)))
	}
	for _, other := range n.shared.metrics.measured() {
		s.Nodes++
		failing := other.health.failing()
		if failing == "" {
			s.ReadyNodes++
		}
		if other.health != &n.health {
			s.Others = append(s.Others, statuspage.Other{Name: other.name, Failing: failing, Lease: other.health.last("lease"), Ping: other.health.last("provider")})
		}
	}
	slices.SortFunc(s.Others, func(a, b statuspage.Other) int {
		if (a.Failing == "") != (b.Failing == "") {
			return strings.Compare(b.Failing, a.Failing) // the empty one last
		}
		return strings.Compare(a.Name, b.Name)
	})
	s.Others = s.Others[:min(len(s.Others), statuspage.MaxOthers)]
	for _, report := range n.pods.PodReports() {
		s.Pods = append(s.Pods, podStatus(&report))
	}
	queue := func(name string, waiting, handled int) {
		s.Queues = append(s.Queues, statuspage.Queue{Name: name, Waiting: waiting, Handled: handled})
	}
	queue("sync_pods_from_kubernetes", n.pods.SyncPodsFromKubernetesQueueUnprocessedLen(), n.pods.SyncPodsFromKubernetesQueueItemsBeingProcessedLen())
	queue("sync_pod_status_from_provider", n.pods.SyncPodStatusFromProviderQueueUnprocessedLen(), n.pods.SyncPodStatusFromProviderQueueItemsBeingProcessedLen())
	queue("delete_pods_from_kubernetes", n.pods.DeletePodsFromKubernetesQueueUnprocessedLen(), n.pods.DeletePodsFromKubernetesQueueItemsBeingProcessedLen())
	for _, method := range n.shared.metrics.controllers.History() {
		s.Calls = append(s.Calls, methodStatus(&method))
	}
	if n.events != nil {
		s.Events = n.events.recent.list()
	}
	return s
}

func podStatus(r *node.PodReport) statuspage.Pod {
	p := statuspage.Pod{
		Namespace: r.Namespace, Name: r.Name, UID: r.UID, Phase: r.Phase, Waiting: statuspage.Shorten(r.Waiting), Orphan: r.Orphan,
		Requested: timeOf(r.RequestedAt), Seen: timeOf(r.SeenAt), Created: timeOf(r.CreatedAt), Running: timeOf(r.RunningAt), Ready: timeOf(r.ReadyAt),
		Deleted: timeOf(r.DeletedAt), Stopped: timeOf(r.StoppedAt),
		Error: r.Error, ErrorAt: timeOf(r.ErrorAt), Tries: r.Tries, NextTry: timeOf(r.NextTry),
	}
	if r.Call.Method != "" {
		p.Call = &statuspage.Call{Method: r.Call.Method, Since: metav1.NewTime(r.Call.Since)}
	}
	return p
}

func methodStatus(h *node.CallHistory) statuspage.Method {
	m := statuspage.Method{Name: h.Method, InFlight: h.InFlight, Oldest: timeOf(h.Oldest)}
	for _, minute := range h.Minutes {
		m.Minutes = append(m.Minutes, statuspage.Minute{Calls: minute.Calls, Errors: minute.Errors, Seconds: minute.Took.Seconds()})
	}
	return m
}

// timeOf is nil for the zero time.
func timeOf(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	return &metav1.Time{Time: t}
}

// last is when the lease was renewed, or the provider has answered a ping, for the checks of
// these names.
func (v *nodeHealth) last(check string) *metav1.Time {
	switch check {
	case "lease":
		if renewed := v.renewed.Load(); renewed != nil {
			return timeOf(*renewed)
		}
	case "provider":
		if ping := v.ping.Load(); ping != nil {
			return timeOf(ping.at)
		}
	}
	return nil
}
