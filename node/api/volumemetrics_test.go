package api_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
)

func TestVolumeMetrics(t *testing.T) {
	number := func(n uint64) *uint64 { return &n }
	volume := func(claim string, fs stats.FsStats) stats.VolumeStats {
		v := stats.VolumeStats{Name: "v", FsStats: fs}
		if claim != "" {
			v.PVCRef = &stats.PVCReference{Namespace: "ns", Name: claim}
		}
		return v
	}
	full := stats.FsStats{CapacityBytes: number(100), AvailableBytes: number(60), UsedBytes: number(40),
		Inodes: number(10), InodesFree: number(7), InodesUsed: number(3)}
	sick := volume("b", stats.FsStats{UsedBytes: number(1)})
	sick.VolumeHealthStats = &stats.VolumeHealthStats{Abnormal: true}
	summary := &stats.Summary{Pods: []stats.PodStats{
		{VolumeStats: []stats.VolumeStats{sick, volume("", full)}}, // an emptyDir has no claim
		{VolumeStats: []stats.VolumeStats{volume("a", full)}},
		{VolumeStats: []stats.VolumeStats{volume("a", full)}}, // two pods share it
	}}
	var got bytes.Buffer
	for _, family := range api.VolumeMetricsFromSummary(summary) {
		if _, err := expfmt.MetricFamilyToText(&got, family); err != nil {
			t.Fatal(err)
		}
	}
	want := `# HELP kubelet_volume_stats_available_bytes [ALPHA] Number of available bytes in the volume
# TYPE kubelet_volume_stats_available_bytes gauge
kubelet_volume_stats_available_bytes{namespace="ns",persistentvolumeclaim="a"} 60
# HELP kubelet_volume_stats_capacity_bytes [ALPHA] Capacity in bytes of the volume
# TYPE kubelet_volume_stats_capacity_bytes gauge
kubelet_volume_stats_capacity_bytes{namespace="ns",persistentvolumeclaim="a"} 100
# HELP kubelet_volume_stats_health_status_abnormal [ALPHA] Abnormal volume health status. The count is either 1 or 0. 1 indicates the volume is unhealthy, 0 indicates volume is healthy
# TYPE kubelet_volume_stats_health_status_abnormal gauge
kubelet_volume_stats_health_status_abnormal{namespace="ns",persistentvolumeclaim="b"} 1
# HELP kubelet_volume_stats_inodes [ALPHA] Maximum number of inodes in the volume
# TYPE kubelet_volume_stats_inodes gauge
kubelet_volume_stats_inodes{namespace="ns",persistentvolumeclaim="a"} 10
# HELP kubelet_volume_stats_inodes_free [ALPHA] Number of free inodes in the volume
# TYPE kubelet_volume_stats_inodes_free gauge
kubelet_volume_stats_inodes_free{namespace="ns",persistentvolumeclaim="a"} 7
# HELP kubelet_volume_stats_inodes_used [ALPHA] Number of used inodes in the volume
# TYPE kubelet_volume_stats_inodes_used gauge
kubelet_volume_stats_inodes_used{namespace="ns",persistentvolumeclaim="a"} 3
# HELP kubelet_volume_stats_used_bytes [ALPHA] Number of used bytes in the volume
# TYPE kubelet_volume_stats_used_bytes gauge
kubelet_volume_stats_used_bytes{namespace="ns",persistentvolumeclaim="a"} 40
kubelet_volume_stats_used_bytes{namespace="ns",persistentvolumeclaim="b"} 1
`
	if got.String() != want {
		t.Errorf("got\n%s\nwant\n%s", &got, want)
	}
	if f := api.VolumeMetricsFromSummary(nil); len(f) > 0 {
		t.Errorf("without a summary there are %v", f)
	}
}

// Tests of existing providers look for these words. The class of the error counts
// as ever.
func TestErrorsOfStatisticsSayWhatFailed(t *testing.T) {
	failing := func(err error) api.PodHandlerConfig {
		return api.PodHandlerConfig{
			GetStatsSummary:    func(context.Context) (*stats.Summary, error) { return nil, err },
			GetMetricsResource: func(context.Context) ([]*dto.MetricFamily, error) { return nil, err },
		}
	}
	for _, path := range []string{"/metrics/resource", "/stats/summary"} {
		do(t, servePods(t, failing(errors.New("boom"))), "GET", path).
			want(t, http.StatusInternalServerError, "error getting status from provider: boom")
		do(t, servePods(t, failing(errdefs.AsUnavailable(errors.New("away")))), "GET", path).
			want(t, http.StatusServiceUnavailable, "error getting status from provider: away")
	}
}
