package fleet

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// reloads are metrics of the last use of the file, named after those that Prometheus has
// of its own configuration. They are safe for concurrent use.
type reloads struct {
	mu        sync.Mutex
	failing   map[*nodeSet]struct{} // one for each shard
	succeeded time.Time
}

func newReloads() *reloads { return &reloads{failing: map[*nodeSet]struct{}{}} }

// record records whether a set of nodes is as the file wants it. A success after another
// does not count again unless the file has changed.
func (r *reloads) record(of *nodeSet, err error, changed bool) {
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

// forget drops the nodes of a shard that this process no longer holds, or those of the
// start once a shard has loaded the file itself.
func (r *reloads) forget(of *nodeSet) {
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

// shardsHeld are metrics of the shards that this process serves, of those that there are.
type shardsHeld struct {
	held        atomic.Int64
	of          int
	total, mine *prometheus.Desc
}

// newShardsHeld makes the metrics of that many shards. Several groups of processes may be
// measured as one, so their name is a label.
func newShardsHeld(name string, count int) *shardsHeld {
	labels := prometheus.Labels{"name": name}
	return &shardsHeld{
		of:    count,
		total: prometheus.NewDesc("vk_shards", "Shards into which the nodes are divided.", nil, labels),
		mine:  prometheus.NewDesc("vk_shards_held", "Shards that this process serves.", nil, labels),
	}
}

// Describe implements prometheus.Collector.
func (s *shardsHeld) Describe(descs chan<- *prometheus.Desc) {
	descs <- s.total
	descs <- s.mine
}

// Collect implements prometheus.Collector.
func (s *shardsHeld) Collect(found chan<- prometheus.Metric) {
	found <- prometheus.MustNewConstMetric(s.total, prometheus.GaugeValue, float64(s.of))
	found <- prometheus.MustNewConstMetric(s.mine, prometheus.GaugeValue, float64(s.held.Load()))
}

var _ prometheus.Collector = (*shardsHeld)(nil)
