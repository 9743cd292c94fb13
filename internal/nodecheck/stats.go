package nodecheck

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/podstatus"
)

var statsChecks = []Check{
	{Name: "stats-summary", Title: "the kubelet's /stats/summary has a pod that runs", Needs: []Capability{Stats}, run: checkStatsSummary},
	{Name: "metrics-resource", Title: "the kubelet's /metrics/resource has CPU, memory and start time of a pod that runs", Needs: []Capability{Stats}, run: checkMetricsResource},
}

func checkStatsSummary(ctx context.Context, s *Scope) error {
	return s.eventuallyGet(ctx, statsPath, func(body []byte, pod *corev1.Pod) error { return inSummary(body, s.Name, pod) })
}

func checkMetricsResource(ctx context.Context, s *Scope) error {
	return s.eventuallyGet(ctx, metricsPath, inMetrics)
}

// eventuallyGet gets a path of the kubelet until it has what is wanted of a pod
// that runs.
func (s *Scope) eventuallyGet(ctx context.Context, path string, wanted func(body []byte, pod *corev1.Pod) error) error {
	pod, err := s.CreateRunning(ctx)
	if err != nil {
		return err
	}
	err = s.Poll(ctx, func(ctx context.Context) error {
		body, err := s.GetFromKubelet(ctx, path)
		if err != nil {
			return err
		}
		return wanted(body, pod)
	})
	if err != nil {
		return fmt.Errorf("waiting until pod %s is in %s: %w", pod.Name, path, err)
	}
	return nil
}

func inSummary(body []byte, node string, pod *corev1.Pod) error {
	var summary stats.Summary
	if err := json.Unmarshal(body, &summary); err != nil {
		return fmt.Errorf("the answer is not a Summary: %w", err)
	}
	if summary.Node.NodeName != node {
		return fmt.Errorf("the Summary is about node %q, not %q", summary.Node.NodeName, node)
	}
	for _, p := range summary.Pods {
		if p.PodRef.Namespace == pod.Namespace && p.PodRef.Name == pod.Name {
			return nil
		}
	}
	return fmt.Errorf("it is not among the %d pods there", len(summary.Pods))
}

// wantedMetrics are what metrics-server needs of a container: it drops the pod of one that lacks any.
var wantedMetrics = []string{"container_cpu_usage_seconds_total", "container_memory_working_set_bytes", "container_start_time_seconds"}

// inMetrics reports whether the metrics have what kubectl top needs of each running container.
func inMetrics(body []byte, pod *corev1.Pod) error {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("the answer is not in Prometheus' text format: %w", err)
	}
	running := 0
	for c := range podstatus.Containers(&pod.Status) {
		if c.State.Running == nil {
			continue
		}
		running++
		for _, name := range wantedMetrics {
			if !slices.ContainsFunc(families[name].GetMetric(), func(metric *dto.Metric) bool {
				return label(metric, "namespace") == pod.Namespace && label(metric, "pod") == pod.Name && label(metric, "container") == c.Name
			}) {
				return fmt.Errorf("container %s has no %s among the %d metrics there", c.Name, name, len(families))
			}
		}
	}
	if running == 0 {
		return errors.New("no container of it is seen to run")
	}
	return nil
}

func label(metric *dto.Metric, name string) string {
	for _, pair := range metric.GetLabel() {
		if pair.GetName() == name {
			return pair.GetValue()
		}
	}
	return ""
}
