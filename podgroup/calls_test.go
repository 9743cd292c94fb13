package podgroup_test

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
	"github.com/virtual-kubelet/virtual-kubelet/trace"
)

// spans is a tracer that keeps the names of spans that have ended, and how.
type spans struct {
	trace.Tracer

	mu    sync.Mutex
	ended []string
}

func (s *spans) StartSpan(ctx context.Context, name string) (context.Context, trace.Span) {
	ctx, inner := s.Tracer.StartSpan(ctx, name)
	return ctx, &span{Span: inner, of: s, name: name}
}

type span struct {
	trace.Span
	of   *spans
	name string
	err  error
}

func (s *span) SetStatus(err error) { s.err = err }

func (s *span) End() {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	s.of.ended = append(s.of.ended, strings.TrimSpace(s.name+" "+string(errdefs.ClassOf(s.err))))
}

// Each call is measured, by action and class of its error, and has a span. Nodes of one process
// share the metrics.
func TestCallsAreMeasuredAndTraced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry, tracer := prometheus.NewRegistry(), &spans{Tracer: trace.T}
		ctx := trace.WithTracer(t.Context(), tracer)
		w, c := grouptest.New(0), grouptest.NewCluster("home")
		var nodes []nodeutil.Provider
		for _, name := range []string{"one", "two"} {
			config := c.Config()
			config.Metrics, config.Node.Name = registry, name
			p, _, err := podgroup.New(config, listing{memory{w}}, options())
			if err != nil {
				t.Fatal(err)
			}
			defer grouptest.Close(t, p)
			nodes = append(nodes, p)
		}
		for i, p := range nodes {
			pod := grouptest.NewPod([]string{"a", "b"}[i])
			c.SetPod(pod)
			if err := p.CreatePod(ctx, pod); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		w.Refuse(string(podgroup.ActionDelete), 1, &grouptest.Refusal{Status: http.StatusInternalServerError, Code: "InternalError"})
		if err := nodes[0].DeletePod(ctx, grouptest.NewPod("a")); !errdefs.IsUnavailable(err) {
			t.Errorf("the deletion returns %v", err)
		}

		counts, durations := map[string]float64{}, map[string]uint64{}
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, family := range families {
			for _, m := range family.Metric {
				var labels []string
				for _, label := range m.Label {
					labels = append(labels, label.GetName()+"="+label.GetValue())
				}
				switch key := strings.Join(labels, " "); family.GetName() {
				case "virtual_kubelet_podgroup_calls_total":
					counts[key] = m.GetCounter().GetValue()
				case "virtual_kubelet_podgroup_call_duration_seconds":
					durations[key] = m.GetHistogram().GetSampleCount()
				}
			}
		}
		want := map[string]float64{
			"action=create error= service=Memory": 2, "action=list error= service=Memory": 3, "action=delete error=unavailable service=Memory": 1,
		}
		if !maps.Equal(counts, want) {
			t.Errorf("the calls are counted as %v, want %v", counts, want)
		}
		if got := durations["action=list service=Memory"]; got != 3 {
			t.Errorf("the durations are %v", durations)
		}
		slices.Sort(tracer.ended)
		if got := strings.Join(tracer.ended, ", "); got != "Memory.create, Memory.create, Memory.delete unavailable, Memory.list, Memory.list, Memory.list" {
			t.Errorf("the spans are %s", got)
		}
	})
}
