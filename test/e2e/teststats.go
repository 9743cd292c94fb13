package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// TestGetStatsSummary checks that a pod that runs is in the kubelet's
// /stats/summary, together with the node's name.
func (s *EndToEndTestSuite) TestGetStatsSummary(t *testing.T) {
	pod := s.createRunningPod(t, "stats-summary")
	s.eventually(t, "the pod is in "+statsPath, func(ctx context.Context) error {
		body, err := s.getFromKubelet(ctx, statsPath)
		if err != nil {
			return err
		}
		return checkSummary(body, s.cfg.NodeName, pod)
	})
}

func checkSummary(body []byte, node string, pod *corev1.Pod) error {
	var summary stats.Summary
	if err := json.Unmarshal(body, &summary); err != nil {
		return notYet("the answer is not a Summary: %w", err)
	}
	if summary.Node.NodeName != node {
		return notYet("the Summary is about node %q, not %q", summary.Node.NodeName, node)
	}
	for _, p := range summary.Pods {
		if p.PodRef.Namespace == pod.Namespace && p.PodRef.Name == pod.Name {
			return nil
		}
	}
	return notYet("it is not among the %d pods there", len(summary.Pods))
}

// TestGetMetricsResource checks that a pod that runs is in the kubelet's
// /metrics/resource.
func (s *EndToEndTestSuite) TestGetMetricsResource(t *testing.T) {
	pod := s.createRunningPod(t, "metrics-resource")
	s.eventually(t, "the pod is in "+metricsPath, func(ctx context.Context) error {
		body, err := s.getFromKubelet(ctx, metricsPath)
		if err != nil {
			return err
		}
		return checkMetrics(body, pod)
	})
}

func checkMetrics(body []byte, pod *corev1.Pod) error {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(body))
	if err != nil {
		return notYet("the answer is not in Prometheus' text format: %w", err)
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if label(metric, "namespace") == pod.Namespace && label(metric, "pod") == pod.Name {
				return nil
			}
		}
	}
	return notYet("none of the %d metrics there is about it", len(families))
}

func label(metric *dto.Metric, name string) string {
	for _, pair := range metric.GetLabel() {
		if pair.GetName() == name {
			return pair.GetValue()
		}
	}
	return ""
}
