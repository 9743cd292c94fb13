package ecitest

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/services/eci"
)

// Log makes a container print a line.
func (s *Server) Log(pod, container, text string) error {
	return s.of(pod, func(h *groupState) error {
		h.logs[container] = append(h.logs[container], line{s.now(), text})
		return nil
	})
}

// The default and maximum number of lines in a response.
const (
	defaultTail = 500
	maxTail     = 2000
)

// describeLog is DescribeContainerLog.
func (s *Server) describeLog(p params) (map[string]any, *apiError) {
	h, refused := s.find(p)
	if refused != nil {
		return nil, refused
	}
	name := p["ContainerName"]
	lines, ok := h.logs[name]
	if !ok {
		return nil, refuse(http.StatusNotFound, "ContainerNotFound", "There is no container %q, or it has not started.", name)
	}
	if c := h.containers[name]; c != nil && p["LastTime"] == "true" {
		lines = c.previous
	}
	var since time.Time
	switch {
	case p["StartTime"] != "":
		var err error
		if since, err = time.Parse(time.RFC3339, p["StartTime"]); err != nil {
			return nil, refuse(http.StatusBadRequest, "InvalidParameter.StartTime", "%q is no time.", p["StartTime"])
		}
	case p["SinceSeconds"] != "":
		since = s.now().Add(-time.Duration(p.integer("SinceSeconds")) * time.Second)
	}
	lines = slices.DeleteFunc(slices.Clone(lines), func(l line) bool { return l.at.Before(since) })
	tail := defaultTail
	if p["Tail"] != "" {
		if tail = p.integer("Tail"); tail < 1 || tail > maxTail {
			return nil, refuse(http.StatusBadRequest, "InvalidParameter.Tail", "The tail has to be from 1 to %d.", maxTail)
		}
	}
	lines = lines[max(0, len(lines)-tail):]
	var b strings.Builder
	for _, l := range lines {
		if p["Timestamps"] == "true" {
			b.WriteString(l.at.UTC().Format(time.RFC3339Nano) + " ")
		}
		b.WriteString(l.text + "\n")
	}
	return map[string]any{"ContainerName": name, "Content": b.String()}, nil
}

// describeMetric is DescribeContainerGroupMetric, with the same figures each time.
func (s *Server) describeMetric(p params) (map[string]any, *apiError) {
	h, refused := s.find(p)
	if refused != nil {
		return nil, refused
	}
	records := []eci.DescribeContainerGroupMetricRecord0{}
	if h.group.Status == "Running" {
		age := int64(s.now().Sub(h.started))
		r := eci.DescribeContainerGroupMetricRecord0{Timestamp: stamp(s.now())}
		for _, c := range h.group.Containers {
			one := eci.DescribeContainerGroupMetricContainer1{Name: c.Name}
			one.CPU.UsageNanoCores, one.CPU.UsageCoreNanoSeconds = 10_000_000, age/100
			one.Memory.UsageBytes, one.Memory.WorkingSet, one.Memory.Rss = 32<<20, 24<<20, 16<<20
			r.Containers = append(r.Containers, one)
			r.CPU.UsageNanoCores += one.CPU.UsageNanoCores
			r.CPU.UsageCoreNanoSeconds += one.CPU.UsageCoreNanoSeconds
			r.Memory.UsageBytes += one.Memory.UsageBytes
			r.Memory.WorkingSet += one.Memory.WorkingSet
			r.Memory.Rss += one.Memory.Rss
		}
		r.Network.Interfaces = []eci.DescribeContainerGroupMetricInterface2{
			{Name: "lo", RxBytes: 1, TxBytes: 1}, {Name: "eth0", RxBytes: 3 << 20, TxBytes: 2 << 20},
		}
		records = append(records, r)
	}
	return map[string]any{"ContainerGroupId": h.group.ContainerGroupId, "Records": records}, nil
}
