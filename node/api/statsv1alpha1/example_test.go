package statsv1alpha1_test

import (
	"encoding/json"
	"fmt"

	"github.com/virtual-kubelet/virtual-kubelet/node/api/statsv1alpha1"
)

// What a provider's GetStatsSummary returns, and kubectl top shows.
func Example() {
	memory := uint64(64 << 20)
	summary := &statsv1alpha1.Summary{Pods: []statsv1alpha1.PodStats{{
		PodRef: statsv1alpha1.PodReference{Namespace: "default", Name: "web"},
		Memory: &statsv1alpha1.MemoryStats{WorkingSetBytes: &memory},
	}}}
	text, err := json.Marshal(summary.Pods[0].Memory.WorkingSetBytes)
	fmt.Println(string(text), err)
	// Output: 67108864 <nil>
}
