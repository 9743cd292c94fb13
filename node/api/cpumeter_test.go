package api

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// usedBy is a pod that has used so many seconds of CPU.
func usedBy(uid string, seconds uint64) stats.PodStats {
	nanos := seconds * uint64(time.Second)
	return stats.PodStats{PodRef: stats.PodReference{Name: "p", Namespace: "ns", UID: uid}, CPU: &stats.CPUStats{UsageCoreNanoSeconds: &nanos}}
}

// A pod that summaries lack for a while has used the difference when it is back; after an
// hour it is forgotten, as is the one that is absent for longest of too many.
func TestPodsThatAreAbsentForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m cpuMeter
		wantTotal := func(want uint64, pods ...stats.PodStats) {
			t.Helper()
			if got := *m.read(pods).UsageCoreNanoSeconds / uint64(time.Second); got != want {
				t.Errorf("the node has used %d s, want %d", got, want)
			}
		}
		wantTotal(10_020, usedBy("a", 10_000), usedBy("b", 20))
		wantTotal(10_021, usedBy("b", 21))
		time.Sleep(maxAbsence)
		wantTotal(10_026, usedBy("a", 10_005), usedBy("b", 21))
		wantTotal(10_027, usedBy("b", 22))
		wantTotal(10_027, usedBy("b", 1), usedBy("a", 3)) // restarted, one of them while it was absent
		wantTotal(10_028, usedBy("b", 1), usedBy("a", 4))
		wantTotal(10_032, usedBy("c", 4)) // another pod of the name

		time.Sleep(maxAbsence + 1)
		wantTotal(10_032, usedBy("d", 0), usedBy("c", 4))
		if len(m.last) != 1 {
			t.Errorf("%d readings are left, want that of c", len(m.last))
		}
		total := uint64(10_032)
		for i := range maxAbsent + 1 {
			time.Sleep(time.Second)
			total++
			wantTotal(total, usedBy(fmt.Sprint(i), 1))
		}
		if _, ok := m.last[fmt.Sprint("ns/p/", 0)]; len(m.last) != maxAbsent+1 || !ok {
			t.Errorf("%d readings are left, want %d that are absent and one", len(m.last), maxAbsent)
		}
		if _, ok := m.last["ns/p/c"]; ok {
			t.Error("the reading of the pod that was absent for longest is left")
		}
	})
}
