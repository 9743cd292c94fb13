package nodeutil

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"

	"github.com/virtual-kubelet/virtual-kubelet/internal/podwatch"
)

// A pod of a node that has left the process waits for nothing more, although a resync may be under way.
func TestPodsOfANodeThatLeftAreNotMeasured(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "u1"}, Spec: corev1.PodSpec{NodeName: "vk"}}
	known := podwatch.NewPods()
	go podwatch.ForNode(fake.NewClientset(pod), metav1.NamespaceAll, 10*time.Millisecond, "vk", known).Run(t.Context())
	m := newStartMetrics()
	end := m.watch(known)
	<-known.Synced()
	if m.longestWait() <= 0 {
		t.Fatal("the pod does not wait")
	}
	end()
	m.forget(pod)
	for range 3 { // while it is resynced
		resynced := make(chan struct{})
		_, stop, _ := known.Subscribe(cache.ResourceEventHandlerFuncs{UpdateFunc: func(any, any) {
			select {
			case resynced <- struct{}{}:
			default:
			}
		}})
		<-resynced
		stop()
	}
	if wait := m.longestWait(); wait > 0 {
		t.Errorf("a pod of a node that has left waits for %v", wait)
	}
}
