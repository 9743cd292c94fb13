package api

import (
	"bytes"
	"context"
	"net/http"
	"slices"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
)

// PrometheusTextFormatContentType is the Content-Type of the resource metrics.
const PrometheusTextFormatContentType = "text/plain; version=0.0.4"

// PodMetricsResourceHandlerFunc returns the resource metrics of the node and
// its pods (see ResourceMetricsFromSummary for a way to make them). Families
// that are nil or without metrics are left out. The handler only reads them,
// and leaves labels in their order.
type PodMetricsResourceHandlerFunc func(context.Context) ([]*dto.MetricFamily, error)

// HandlePodMetricsResource answers with the metrics in Prometheus' text format.
func HandlePodMetricsResource(h PodMetricsResourceHandlerFunc) http.HandlerFunc {
	return answer(func(w http.ResponseWriter, r *http.Request) error {
		if h == nil {
			return notImplemented("GetMetricsResource", "PodMetricsResourceHandlerFunc")
		}
		families, err := h(r.Context())
		if err != nil {
			return statusFailed(err)
		}
		var body bytes.Buffer
		for _, family := range families {
			if family = withoutNil(family); len(family.GetMetric()) == 0 {
				continue
			}
			if _, err := expfmt.MetricFamilyToText(&body, family); err != nil {
				return err
			}
		}
		w.Header().Set("Content-Type", PrometheusTextFormatContentType)
		_, _ = w.Write(body.Bytes())
		return nil
	})
}

// withoutNil returns family, or a copy without the metrics that are nil.
func withoutNil(family *dto.MetricFamily) *dto.MetricFamily {
	isNil := func(m *dto.Metric) bool { return m == nil }
	if !slices.ContainsFunc(family.GetMetric(), isNil) {
		return family
	}
	return &dto.MetricFamily{
		Name: family.Name, Help: family.Help, Type: family.Type, Unit: family.Unit,
		Metric: slices.DeleteFunc(slices.Clone(family.Metric), isNil),
	}
}
