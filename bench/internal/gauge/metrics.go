package gauge

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Metrics are the counters and gauges of a program, each the sum over its labels.
type Metrics map[string]float64

// ReadMetrics reads those that a program serves for Prometheus.
func ReadMetrics(ctx context.Context, url string) (Metrics, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", url, err)
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("read %s: %s", url, response.Status)
	}
	families, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", url, err)
	}
	metrics := Metrics{}
	for name, family := range families {
		for _, m := range family.GetMetric() {
			metrics[name] += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return metrics, nil
}

func parse(text []byte) (map[string]*dto.MetricFamily, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(bytes.NewReader(text))
}
