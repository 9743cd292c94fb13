package nodeutil

import (
	"context"
	"time"

	dto "github.com/prometheus/client_model/go"
	"golang.org/x/sync/singleflight"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/providercalls"
	"github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
)

// volumeStatsTimeout is how long a scrape waits for the provider's summary. What
// /metrics says of the process must be there also while the provider hangs.
const volumeStatsTimeout = 5 * time.Second

// volumeMetrics makes kubelet_volume_stats_* from the summary of a provider. However
// many scrapes there are, the provider is asked once at a time.
type volumeMetrics struct {
	summary api.PodStatsSummaryHandlerFunc // may be nil
	asking  singleflight.Group
}

// gather returns the metrics of the volumes, or none if the provider has no summary
// or does not return it in time.
func (m *volumeMetrics) gather(ctx context.Context) []*dto.MetricFamily {
	if m == nil || m.summary == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, volumeStatsTimeout)
	defer cancel()
	answer := m.asking.DoChan("", func() (_ any, err error) {
		defer func() {
			if v := recover(); v != nil {
				err = providercalls.Panicked(ctx, "GetStatsSummary", v)
			}
		}()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), volumeStatsTimeout)
		defer cancel()
		return m.summary(ctx)
	})
	var err error
	select {
	case result := <-answer:
		if result.Err == nil {
			summary, _ := result.Val.(*stats.Summary)
			return api.VolumeMetricsFromSummary(summary)
		}
		err = result.Err
	case <-ctx.Done():
		err = ctx.Err()
	}
	log.G(ctx).WithError(err).Debug("No metrics of volumes: the provider has no summary of them")
	return nil
}
