package mock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/virtual-kubelet/virtual-kubelet/providers/mock"
)

func TestPing(t *testing.T) {
	p := newProvider(t, mock.Config{})
	if err := p.Ping(ctx); err != nil {
		t.Error(err)
	}
	down := errors.New("down")
	p.SetPingError(down)
	if err := p.Ping(ctx); err != down {
		t.Errorf("got %v", err)
	}
	p.SetPingError(nil)
	if err := p.Ping(ctx); err != nil {
		t.Error(err)
	}
}

func TestNotifyNodeStatus(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p := newProvider(t, mock.Config{})
		ctx, cancel := context.WithCancel(ctx)
		var got []*corev1.Node
		p.NotifyNodeStatus(ctx, func(n *corev1.Node) { got = append(got, n) })
		n := &corev1.Node{}
		n.Labels = map[string]string{"a": "b"}
		p.ReportNode(n)
		if len(got) != 1 || got[0] == n || got[0].Labels["a"] != "b" {
			t.Errorf("got %v", got)
		}
		cancel()
		synctest.Wait()
		p.ReportNode(n)
		if len(got) != 1 {
			t.Error("notified after the end")
		}
	})
}

func TestStats(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p := newProvider(t, mock.Config{NodeName: "n"})
		pod := newPod("p")
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "limited", Resources: corev1.ResourceRequirements{
			Limits: corev1.ResourceList{"cpu": resource.MustParse("1m"), "memory": resource.MustParse("1Mi")},
		}})
		mustCreate(t, p, pod)
		mustCreate(t, p, newPod("pending", "start-delay", "1h"))
		pass(10 * time.Second)
		first, err := p.GetStatsSummary(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if first.Node.NodeName != "n" || *first.Node.CPU.UsageCoreNanoSeconds == 0 || *first.Node.Memory.WorkingSetBytes == 0 {
			t.Errorf("node is %+v", first.Node)
		}
		if len(first.Pods) != 1 || len(first.Pods[0].Containers) != 2 || first.Pods[0].PodRef.UID != "uid-p" {
			t.Fatalf("pods are %+v", first.Pods)
		}
		limited := first.Pods[0].Containers[1]
		if *limited.CPU.UsageNanoCores != 1_000_000 || *limited.CPU.UsageCoreNanoSeconds != 10_000_000 || *limited.Memory.WorkingSetBytes != 1<<20 {
			t.Errorf("limited uses %d, %d", *limited.CPU.UsageNanoCores, *limited.Memory.WorkingSetBytes)
		}
		pass(10 * time.Second)
		second, _ := p.GetStatsSummary(ctx)
		for i, c := range second.Pods[0].Containers {
			if got, want := *c.CPU.UsageCoreNanoSeconds, 2**first.Pods[0].Containers[i].CPU.UsageCoreNanoSeconds; got != want {
				t.Errorf("%s used %d, want %d", c.Name, got, want)
			}
			if c.StartTime.IsZero() || c.CPU.Time.IsZero() || *c.Memory.WorkingSetBytes == 0 {
				t.Errorf("%s is %+v", c.Name, c)
			}
		}
		if err := p.DeletePod(ctx, pod); err != nil {
			t.Fatal(err)
		}
		third, _ := p.GetStatsSummary(ctx)
		if *third.Node.CPU.UsageCoreNanoSeconds < *second.Node.CPU.UsageCoreNanoSeconds {
			t.Error("the node's CPU time went back when a pod ended")
		}
		if len(third.Pods) != 0 {
			t.Errorf("pods are %+v", third.Pods)
		}
	})
}

func TestMetricsForMetricsServer(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p := newProvider(t, mock.Config{})
		mustCreate(t, p, newPod("p"))
		pass(time.Second)
		families, err := p.GetMetricsResource(ctx)
		if err != nil {
			t.Fatal(err)
		}
		byName := map[string]*dto.MetricFamily{}
		for _, f := range families {
			byName[f.GetName()] = f
		}
		for _, name := range []string{
			"node_cpu_usage_seconds_total", "node_memory_working_set_bytes",
			"container_cpu_usage_seconds_total", "container_memory_working_set_bytes", "container_start_time_seconds",
		} {
			f := byName[name]
			if f == nil || len(f.Metric) != 1 {
				t.Errorf("%s is %v", name, f)
				continue
			}
			m := f.Metric[0]
			if m.GetCounter().GetValue()+m.GetGauge().GetValue() <= 0 {
				t.Errorf("%s is zero", name)
			}
			if name != "container_start_time_seconds" && m.GetTimestampMs() == 0 {
				t.Errorf("%s has no timestamp", name)
			}
		}
		if f := byName["resource_scrape_error"]; f == nil || f.Metric[0].GetGauge().GetValue() != 0 {
			t.Errorf("resource_scrape_error is %v", f)
		}
	})
}
