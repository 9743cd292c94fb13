package eviction_test

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/podengine/eviction"
)

// Of two pods without requests the one that uses more memory goes first.
func ExampleVictim() {
	thresholds, err := eviction.Parse(map[string]string{"memory.available": "5%"})
	if err != nil {
		fmt.Println(err)
		return
	}
	level := eviction.Level{Available: 100 << 20, Capacity: 4 << 30}
	fmt.Println("short of memory:", level.Available < thresholds[eviction.MemoryAvailable].Of(level.Capacity))

	use := map[string]int64{"small": 10 << 20, "large": 500 << 20}
	var pods []*corev1.Pod
	for _, name := range []string{"small", "large"} {
		pods = append(pods, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	victim := eviction.Victim(eviction.MemoryAvailable, pods, func(pod *corev1.Pod) eviction.Usage {
		return eviction.Usage{Memory: use[pod.Name]}
	})
	fmt.Println("to be evicted:", victim.Name)
	// Output:
	// short of memory: true
	// to be evicted: large
}
