package main

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// reloads tells how it goes with the file of the pools, under the names that
// Prometheus has for its own. It is safe for concurrent use.
type reloads struct {
	mu        sync.Mutex
	failing   map[*virtualFleet]struct{} // one for each shard
	succeeded time.Time
}

func newReloads() *reloads { return &reloads{failing: map[*virtualFleet]struct{}{}} }

// note takes what came of the file for a fleet, or one shard of it. A success that
// is no news, since the file is the same, does not count as another one.
func (r *reloads) note(of *virtualFleet, err error, changed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.failing[of] = struct{}{}
		return
	}
	if _, failed := r.failing[of]; failed || changed {
		r.succeeded = time.Now()
	}
	delete(r.failing, of)
}

// forget drops a shard that this process does not have any more.
func (r *reloads) forget(of *virtualFleet) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.failing, of)
}

var (
	reloadSuccessful = prometheus.NewDesc("vk_config_last_reload_successful",
		"Whether the file of the node pools could be used when it was last taken, and all nodes are as it wants them.", nil, nil)
	reloadTime = prometheus.NewDesc("vk_config_last_reload_success_timestamp_seconds",
		"When the file of the node pools was last taken with success, since unix epoch in seconds.", nil, nil)
)

// Describe implements prometheus.Collector.
func (r *reloads) Describe(descs chan<- *prometheus.Desc) {
	descs <- reloadSuccessful
	descs <- reloadTime
}

// Collect implements prometheus.Collector.
func (r *reloads) Collect(found chan<- prometheus.Metric) {
	r.mu.Lock()
	defer r.mu.Unlock()
	successful := 0.0
	if len(r.failing) == 0 {
		successful = 1
	}
	found <- prometheus.MustNewConstMetric(reloadSuccessful, prometheus.GaugeValue, successful)
	found <- prometheus.MustNewConstMetric(reloadTime, prometheus.GaugeValue, float64(r.succeeded.UnixMilli())/1000)
}

var _ prometheus.Collector = (*reloads)(nil)
