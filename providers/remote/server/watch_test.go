package server

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
)

func reported(name string) *corev1.Pod {
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name = "default", name
	return pod
}

// Statuses are forgotten in time although nobody lists pods, and who has missed some does not
// go on from there.
func TestStatusesAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c changes
		var made creations
		c.start()
		for i := range 1000 {
			pod := reported(fmt.Sprint("pod-", i))
			c.record(pod)
			made.record(pod)
			time.Sleep(time.Second)
		}
		if most := int((keepFor + sweepInterval) / time.Second); len(c.pods) > most+1 || len(made.pods) > most+1 {
			t.Errorf("%d statuses and %d creations are kept, want %d at most", len(c.pods), len(made.pods), most)
		}
		if _, ok := c.since(c.token(1)); ok {
			t.Error("a token goes on although later statuses are forgotten")
		}
		if _, _, ok := c.after(1); ok {
			t.Error("a slow watch misses statuses")
		}
		number, ok := c.since(c.token(990))
		if found, _, all := c.after(number); !ok || !all || len(found) != 10 || found[0].number != 991 {
			t.Errorf("from 990 on there are %d statuses", len(found))
		}
	})
}
