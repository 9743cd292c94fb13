package api

import (
	"context"
	"net/http"

	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

// PodStatsSummaryHandlerFunc returns what the node and its pods use. A nil
// Summary is an empty one. The handler only reads it.
type PodStatsSummaryHandlerFunc func(context.Context) (*stats.Summary, error)

// HandlePodStatsSummary answers with the Summary as JSON; with the query
// only_cpu_and_memory=true, reduced to that.
func HandlePodStatsSummary(h PodStatsSummaryHandlerFunc) http.HandlerFunc {
	return answer(func(w http.ResponseWriter, r *http.Request) error {
		if h == nil {
			return notImplemented("GetStatsSummary", "PodStatsSummaryHandlerFunc")
		}
		if err := r.ParseForm(); err != nil {
			return errdefs.InvalidInputf("parse only_cpu_and_memory param failed: %w", err)
		}
		summary, err := h(r.Context())
		if err != nil {
			return statusFailed(err)
		}
		if summary == nil {
			summary = &stats.Summary{Pods: []stats.PodStats{}}
		}
		if r.Form.Get("only_cpu_and_memory") == "true" {
			summary = cpuAndMemory(summary)
		}
		return writeJSON(w, summary)
	})
}

// cpuAndMemory returns a copy that has nothing else.
func cpuAndMemory(full *stats.Summary) *stats.Summary {
	reduced := &stats.Summary{
		Node: stats.NodeStats{
			NodeName:         full.Node.NodeName,
			StartTime:        full.Node.StartTime,
			CPU:              full.Node.CPU,
			Memory:           full.Node.Memory,
			SystemContainers: containersCPUAndMemory(full.Node.SystemContainers),
		},
		Pods: make([]stats.PodStats, 0, len(full.Pods)),
	}
	for _, pod := range full.Pods {
		reduced.Pods = append(reduced.Pods, stats.PodStats{
			PodRef:     pod.PodRef,
			StartTime:  pod.StartTime,
			CPU:        pod.CPU,
			Memory:     pod.Memory,
			Containers: containersCPUAndMemory(pod.Containers),
		})
	}
	return reduced
}

func containersCPUAndMemory(full []stats.ContainerStats) []stats.ContainerStats {
	reduced := make([]stats.ContainerStats, 0, len(full))
	for _, c := range full {
		reduced = append(reduced, stats.ContainerStats{Name: c.Name, StartTime: c.StartTime, CPU: c.CPU, Memory: c.Memory})
	}
	return reduced
}
