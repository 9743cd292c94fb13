package load

import (
	"testing"
	"time"
)

func TestPhase(t *testing.T) {
	var p Phase
	for i := range 100 {
		p.Latencies = append(p.Latencies, time.Duration(i+1)*time.Millisecond)
	}
	p.Took = 2 * time.Second
	for share, want := range map[float64]time.Duration{0: 1, 0.5: 50, 0.99: 99, 1: 100} {
		if got := p.Percentile(share); got != want*time.Millisecond {
			t.Errorf("percentile %v is %v", share, got)
		}
	}
	if p.Throughput() != 50 {
		t.Errorf("throughput is %v", p.Throughput())
	}
	if (Phase{}).Percentile(0.5) != 0 {
		t.Error("a phase without pods has latencies")
	}
}
