package nodeutil

import (
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
)

// eventMetrics count what becomes of events. What is recorded and is not written
// waits, was merged with one of its like, or was dropped by client-go, which does
// not show: its queue holds a thousand events, and of those about one pod it writes
// 25, and then one every five minutes.
type eventMetrics struct {
	recorded *prometheus.CounterVec
	limited  prometheus.Counter
	written  prometheus.Counter
}

func newEventMetrics() eventMetrics {
	m := eventMetrics{
		recorded: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "vk_events_recorded_total",
			Help: "Number of events that were to be written to the API server, by type."}, []string{"type"}),
		limited: prometheus.NewCounter(prometheus.CounterOpts{Name: "vk_events_limited_total",
			Help: "Number of events of type Normal that were dropped since there were more than the limit allows (--event-qps)."}),
		written: prometheus.NewCounter(prometheus.CounterOpts{Name: "vk_events_written_total",
			Help: "Number of writes of events that the API server took, such as that an event has occurred again."}),
	}
	for _, eventtype := range []string{corev1.EventTypeNormal, corev1.EventTypeWarning} {
		m.recorded.WithLabelValues(eventtype)
	}
	return m
}

func (m *eventMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.recorded, m.limited, m.written}
}

// countedSink counts the events that an EventSink has written.
type countedSink struct {
	record.EventSink
	written prometheus.Counter
}

func (s countedSink) Create(event *corev1.Event) (*corev1.Event, error) {
	return s.count(s.EventSink.Create(event))
}

func (s countedSink) Update(event *corev1.Event) (*corev1.Event, error) {
	return s.count(s.EventSink.Update(event))
}

func (s countedSink) Patch(event *corev1.Event, data []byte) (*corev1.Event, error) {
	return s.count(s.EventSink.Patch(event, data))
}

func (s countedSink) count(event *corev1.Event, err error) (*corev1.Event, error) {
	if err == nil {
		s.written.Inc()
	}
	return event, err
}
