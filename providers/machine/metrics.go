package machine

import (
	"errors"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// reserveMetrics are those of the reserves of all nodes of a process, whose numbers are added up. It
// is safe for concurrent use.
type reserveMetrics struct {
	machines, wanted *prometheus.Desc

	mu  sync.Mutex
	all map[*backend]bool
}

var _ prometheus.Collector = (*reserveMetrics)(nil)

// The states of machines in reserve, all of which are paid for.
const (
	reserveReady    = "ready"
	reserveStarting = "starting"
	reserveEnding   = "ending"
)

// newReserveMetrics returns the metrics of a process, which another node may have registered.
func newReserveMetrics(to prometheus.Registerer) *reserveMetrics {
	r := &reserveMetrics{
		machines: prometheus.NewDesc("virtual_kubelet_machine_reserve", "Machines in reserve, by type and state: ready, starting (also those that cannot be used at the moment) and ending.", []string{"type", "state"}, nil),
		wanted:   prometheus.NewDesc("virtual_kubelet_machine_reserve_wanted", "How many machines the configuration wants in reserve, by type.", []string{"type"}, nil),
		all:      map[*backend]bool{},
	}
	if to == nil {
		return r
	}
	if known, ok := errors.AsType[prometheus.AlreadyRegisteredError](to.Register(r)); ok {
		if same, ok := known.ExistingCollector.(*reserveMetrics); ok {
			return same
		}
	}
	return r
}

// set adds a node that acts, or removes one that has ended.
func (r *reserveMetrics) set(b *backend, acts bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if acts {
		r.all[b] = true
	} else {
		delete(r.all, b)
	}
}

// Describe implements prometheus.Collector.
func (r *reserveMetrics) Describe(to chan<- *prometheus.Desc) {
	to <- r.machines
	to <- r.wanted
}

// Collect implements prometheus.Collector. A type without a reserve has no numbers.
func (r *reserveMetrics) Collect(to chan<- prometheus.Metric) {
	machines, wanted := map[[2]string]int{}, map[string]int{}
	r.mu.Lock()
	for b := range r.all {
		b.countReserve(machines, wanted)
	}
	r.mu.Unlock()
	for labels, n := range machines {
		to <- prometheus.MustNewConstMetric(r.machines, prometheus.GaugeValue, float64(n), labels[:]...)
	}
	for name, n := range wanted {
		to <- prometheus.MustNewConstMetric(r.wanted, prometheus.GaugeValue, float64(n), name)
	}
}

// countReserve adds the machines in reserve, by type and state, and how many there are to be.
func (b *backend) countReserve(machines map[[2]string]int, wanted map[string]int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.kinds {
		name := b.kinds[i].name()
		wanted[name] += b.kinds[i].count
		for _, state := range []string{reserveReady, reserveStarting, reserveEnding} { // also of which there are none
			machines[[2]string{name, state}] += 0
		}
	}
	for _, m := range b.members {
		if isReserve(m.machine) && m.machine.State != Ended && (m.spec == nil || m.listed) {
			machines[[2]string{m.machine.Tags[tagType], b.reserveStateLocked(m)}]++
		}
	}
}

// reserveStateLocked is the state of a machine in reserve. b.mu is held.
func (b *backend) reserveStateLocked(m *member) string {
	switch {
	case m.ending || m.isUnknown():
		return reserveEnding
	case b.isReadyLocked(m) && m.greeted:
		return reserveReady
	}
	return reserveStarting
}
