package api_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/virtual-kubelet/virtual-kubelet/node/api"
)

func TestCadvisorMetricsLikeTheKubelet(t *testing.T) {
	summary := goldenSummary(t)
	smoke := &summary.Pods[0]
	smoke.Network = summary.Node.Network
	config := summaryOf(summary)
	pod := &v1.Pod{}
	pod.Name, pod.Namespace = "smoke", "default"
	pod.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "c", Image: "agnhost:2", ContainerID: "containerd://abc"}}
	config.GetPods = func(context.Context) ([]*v1.Pod, error) { return []*v1.Pod{pod}, nil }
	text := do(t, servePods(t, config), "GET", "/metrics/cadvisor").body
	known := strings.Split(string(golden(t, "metrics_cadvisor_names.txt")), "\n")
	found := 0
	for _, line := range strings.Split(text, "\n") {
		if nameAndType, ok := strings.CutPrefix(line, "# TYPE "); ok {
			found++
			if !slices.Contains(known, nameAndType) {
				t.Errorf("a kubelet has no metric %q", nameAndType)
			}
		}
	}
	if found < 8 {
		t.Errorf("only %d metrics in\n%s", found, text)
	}
	for _, want := range []string{
		`container_cpu_usage_seconds_total{container="",cpu="total",id="/",image="",name="",namespace="",pod=""} 5673.563912694 `,
		`container_cpu_usage_seconds_total{container="",cpu="total",id="/kubepods/pod` + smoke.PodRef.UID + `",image="",name="",namespace="default",pod="smoke"} `,
		`container_memory_working_set_bytes{container="c",id="/kubepods/pod` + smoke.PodRef.UID + `/c",image="agnhost:2",name="abc",namespace="default",pod="smoke"} `,
		`,interface="eth0",name="",namespace="default",pod="smoke"} `,
		"container_scrape_error 0\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is missing in\n%s", want, text)
		}
	}
}

func TestCadvisorMetricsWithoutFigures(t *testing.T) {
	failing := api.PodHandlerConfig{GetStatsSummary: func(context.Context) (*stats.Summary, error) { return nil, errors.New("no") }}
	for _, c := range []struct {
		config api.PodHandlerConfig
		failed string
	}{{api.PodHandlerConfig{}, "0"}, {summaryOf(nil), "1"}, {summaryOf(&stats.Summary{Pods: []stats.PodStats{{Containers: []stats.ContainerStats{{Name: "c"}}}}}), "0"}, {failing, "1"}} {
		got := do(t, servePods(t, c.config), "GET", "/metrics/cadvisor")
		got.want(t, 200, "container_scrape_error "+c.failed+"\n")
		if strings.Count(got.body, "# TYPE") != 1 {
			t.Errorf("got %s", got.body)
		}
	}
}

// The usual rules of Prometheus leave out what has no image.
func TestCadvisorMetricsHaveImages(t *testing.T) {
	config := summaryOf(goldenSummary(t))
	pod := &v1.Pod{}
	pod.Name, pod.Namespace = "smoke", "default"
	pod.Spec.Containers = []v1.Container{{Name: "b", Image: "image-of-b"}, {Name: "c", Image: "image-of-c"}}
	pod.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "b"}, {Name: "c", Image: "pulled-c"}}
	config.GetPods = func(context.Context) ([]*v1.Pod, error) { return []*v1.Pod{nil, pod}, nil }
	text := do(t, servePods(t, config), "GET", "/metrics/cadvisor").body
	for _, want := range []string{`container="b",cpu="total",id="/kubepods/pod29820b5e-38b7-4d6e-8116-28f985ec3cb4/b",image="image-of-b"`, `image="pulled-c"`} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is missing in\n%s", want, text)
		}
	}
	config.GetPods = func(context.Context) ([]*v1.Pod, error) { return nil, errors.New("no pods today") }
	do(t, servePods(t, config), "GET", "/metrics/cadvisor").want(t, 200, `container="b"`)
}
