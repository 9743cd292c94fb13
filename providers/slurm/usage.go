package slurm

import (
	"context"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
)

// Usage implements podgroup.Meter, by sstat, where the site gathers figures. They are those
// of jobs: of a pod, and of its container, if it has one only.
func (b *backend) Usage(ctx context.Context, units []*podgroup.Unit) ([]stats.PodStats, error) {
	var ids []string
	for _, u := range units {
		ids = append(ids, u.ID)
	}
	out, err := b.run(ctx, podgroup.ActionUsage, nil, "usage", strings.Join(ids, ","))
	if err != nil {
		return nil, err
	}
	used, at := parseUsage(out), metav1.Now()
	all := make([]stats.PodStats, len(units))
	for i, u := range units {
		job, ok := used[u.ID]
		if !ok {
			continue
		}
		cpu := &stats.CPUStats{Time: at, UsageCoreNanoSeconds: &job.nanoseconds}
		memory := &stats.MemoryStats{Time: at, RSSBytes: &job.bytes, WorkingSetBytes: &job.bytes, UsageBytes: &job.bytes}
		all[i] = stats.PodStats{CPU: cpu, Memory: memory}
		if len(u.Containers) == 1 {
			all[i].Containers = []stats.ContainerStats{{Name: u.Containers[0].Name, CPU: cpu, Memory: memory}}
		}
	}
	return all, nil
}

// usage is what a job has used of processors since its start, and uses of memory.
type usage struct{ nanoseconds, bytes uint64 }

// parseUsage adds up the steps of jobs that sstat prints. Those without memory are of a site
// that gathers no figures.
func parseUsage(out string) map[string]usage {
	used := map[string]usage{}
	for line := range strings.Lines(out) {
		fields := strings.Split(strings.TrimSpace(line), "|")
		if len(fields) < 3 {
			continue
		}
		id, _, _ := strings.Cut(fields[0], ".")
		if bytes := parseBytes(fields[2]); bytes > 0 {
			sum := used[id]
			used[id] = usage{sum.nanoseconds + uint64(parseDuration(fields[1])), sum.bytes + bytes} //nolint:gosec // not negative
		}
	}
	return used
}

// parseBytes reads a size, such as 1234K; 0 if it is none.
func parseBytes(text string) uint64 {
	number := strings.TrimRight(text, "KMGT")
	unit := 10 * (1 + strings.Index("KMGT", strings.TrimPrefix(text, number)))
	if number == text {
		unit = 0
	}
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || n < 0 {
		return 0
	}
	return uint64(n * float64(uint64(1)<<unit))
}

// parseDuration reads a time of Slurm, [DAYS-][HOURS:]MINUTES:SECONDS; 0 if it is none.
func parseDuration(text string) time.Duration {
	days, rest, ok := strings.Cut(text, "-")
	if !ok {
		days, rest = "0", text
	}
	seconds, err := strconv.ParseUint(days, 10, 16)
	seconds *= 24
	parts := strings.Split(rest, ":")
	for len(parts) < 3 {
		parts = append([]string{"0"}, parts...)
	}
	for i, part := range parts {
		whole, _, _ := strings.Cut(part, ".")
		n, partErr := strconv.ParseUint(whole, 10, 32)
		if err != nil || partErr != nil || i > 2 {
			return 0
		}
		if i > 0 {
			seconds *= 60
		}
		seconds += n
	}
	return time.Duration(seconds) * time.Second //nolint:gosec // some centuries at most
}
