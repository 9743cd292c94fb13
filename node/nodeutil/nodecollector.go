package nodeutil

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/podstatus"
)

var (
	nodeNameDesc = prometheus.NewDesc("kubelet_node_name",
		"[ALPHA] The node's name. The count is always 1.", []string{"node"}, nil)
	desiredPodsDesc = prometheus.NewDesc("kubelet_desired_pods",
		"[ALPHA] The number of pods the kubelet is being instructed to run. static is true if the pod is not from the apiserver.", []string{"static"}, nil)
	activePodsDesc = prometheus.NewDesc("kubelet_active_pods",
		"[ALPHA] The number of pods the kubelet considers active and which are being considered when admitting new pods. static is true if the pod is not from the apiserver.", []string{"static"}, nil)
	runningPodsDesc = prometheus.NewDesc("kubelet_running_pods",
		"[ALPHA] Number of pods that have a running pod sandbox", nil, nil)
	runningContainersDesc = prometheus.NewDesc("kubelet_running_containers",
		"[ALPHA] Number of containers currently running", []string{"container_state"}, nil)
	servingTTLDesc = prometheus.NewDesc("kubelet_certificate_manager_server_ttl_seconds",
		"[ALPHA] Gauge of the shortest TTL (time-to-live) of the Kubelet's serving certificate. The value is in seconds until certificate expiry (negative if already expired). If serving certificate is invalid or unused, the value will be +INF.", nil, nil)
	servingErrorsDesc = prometheus.NewDesc("kubelet_server_expiration_renew_errors",
		"[ALPHA] Counter of certificate renewal errors.", nil, nil)
	servingRequestDesc = requestAgeDesc("serving")

	podsDesc = prometheus.NewDesc("vk_pods",
		"Number of pods that are bound to the node and still in the API, by phase.", []string{"phase"}, nil)
	nodesDesc = prometheus.NewDesc("vk_nodes",
		"Number of nodes of this process, by whether they are ready: registered, with a provider that is well and a lease that is renewed.", []string{"ready"}, nil)
	leaseAgeDesc = prometheus.NewDesc("vk_node_lease_age_seconds",
		"Time in seconds since the lease was renewed; of several nodes the longest.", nil, nil)
)

// requestAgeDesc is the metric of requests for that certificate. It is of several collectors.
func requestAgeDesc(certificate string) *prometheus.Desc {
	return prometheus.NewDesc("vk_certificate_request_age_seconds",
		"Time in seconds since a certificate was requested that the cluster has not signed yet; of several nodes the longest.",
		nil, prometheus.Labels{"certificate": certificate})
}

// nodesCollector collects what the nodes and their pods are at.
type nodesCollector struct{ metrics *nodeMetrics }

func (nodesCollector) Describe(descs chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{nodeNameDesc, desiredPodsDesc, activePodsDesc, runningPodsDesc, runningContainersDesc,
		servingTTLDesc, servingErrorsDesc, servingRequestDesc, podsDesc, nodesDesc, leaseAgeDesc} {
		descs <- desc
	}
}

func (c nodesCollector) Collect(found chan<- prometheus.Metric) {
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		found <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	pods := podCount{phases: map[corev1.PodPhase]int{}}
	ready, notReady, ttl, requestAge := 0, 0, c.metrics.serving.ttl(), 0.
	var renewErrors int64
	var leaseAge time.Duration
	for _, n := range c.metrics.measured() {
		gauge(nodeNameDesc, 1, n.name)
		if err := pods.add(n); err != nil {
			found <- prometheus.NewInvalidMetric(runningPodsDesc, err)
			return
		}
		if n.health.ready() {
			ready++
		} else {
			notReady++
		}
		leaseAge = max(leaseAge, n.health.leaseAge())
		ttl = min(ttl, n.serving.ttl())
		requestAge = max(requestAge, n.serving.requestAge())
		renewErrors += n.serving.renewErrors()
	}
	gauge(desiredPodsDesc, float64(pods.desired), "")
	gauge(activePodsDesc, float64(pods.active), "")
	gauge(runningPodsDesc, float64(pods.phases[corev1.PodRunning]))
	gauge(runningContainersDesc, float64(pods.runningContainers), "running")
	gauge(runningContainersDesc, float64(pods.exitedContainers), "exited")
	for _, phase := range []corev1.PodPhase{corev1.PodPending, corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed} {
		gauge(podsDesc, float64(pods.phases[phase]), string(phase))
	}
	gauge(nodesDesc, float64(ready), "true")
	gauge(nodesDesc, float64(notReady), "false")
	gauge(leaseAgeDesc, leaseAge.Seconds())
	gauge(servingTTLDesc, ttl)
	gauge(servingRequestDesc, requestAge)
	found <- prometheus.MustNewConstMetric(servingErrorsDesc, prometheus.CounterValue, float64(renewErrors))
}

// podCount counts pods and their containers.
type podCount struct {
	desired, active                     int
	phases                              map[corev1.PodPhase]int
	runningContainers, exitedContainers int
}

// add counts those of a node.
func (c *podCount) add(n *measuredNode) error {
	pods, err := n.pods.List(everything)
	if err != nil {
		return err
	}
	for _, pod := range pods {
		phase := pod.Status.Phase
		if phase == "" {
			phase = corev1.PodPending
		}
		c.desired++
		c.phases[phase]++
		if phase != corev1.PodSucceeded && phase != corev1.PodFailed {
			c.active++
		}
		for s := range podstatus.Containers(&pod.Status) {
			switch {
			case s.State.Running != nil:
				c.runningContainers++
			case s.State.Terminated != nil:
				c.exitedContainers++
			}
		}
	}
	return nil
}
