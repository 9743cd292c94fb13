package eviction

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Level is how much there is of something.
type Level struct{ Available, Capacity int64 }

// Levels are those of a machine; what is not known is left out.
type Levels map[Signal]Level

// TransitionPeriod is how long a node is under pressure after the last time that it
// had too little of something: a kubelet's default.
const TransitionPeriod = 5 * time.Minute

// Met are the signals of which there is too little, memory first, as in a kubelet,
// the others by name.
func (t Thresholds) Met(levels Levels) (met []Signal) {
	for signal, threshold := range t {
		if level, known := levels[signal]; known && level.Available < threshold.Of(level.Capacity) {
			met = append(met, signal)
		}
	}
	slices.SortFunc(met, func(a, b Signal) int {
		switch {
		case a == MemoryAvailable && b != a:
			return -1
		case b == MemoryAvailable && a != b:
			return 1
		case a < b:
			return -1
		case a > b:
			return 1
		}
		return 0
	})
	return met
}

// Pressure is what a node is short of, over time. The zero value is of one that is
// short of nothing.
type Pressure struct {
	last map[corev1.NodeConditionType]time.Time // when it was seen
}

// Observe counts what was seen at a time.
func (p *Pressure) Observe(met []Signal, now time.Time) {
	if p.last == nil {
		p.last = map[corev1.NodeConditionType]time.Time{}
	}
	for _, signal := range met {
		p.last[signal.Condition()] = now
	}
}

// Conditions are those that hold, in the order of their names.
func (p *Pressure) Conditions(now time.Time) (held []corev1.NodeConditionType) {
	for condition, last := range p.last {
		if now.Sub(last) < TransitionPeriod {
			held = append(held, condition)
		}
	}
	slices.Sort(held)
	return held
}
