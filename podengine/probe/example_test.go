package probe_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/virtual-kubelet/virtual-kubelet/podengine/probe"
)

func Example() {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	address := netip.MustParseAddrPort(server.Listener.Addr().String())

	changed := make(chan types.UID, 1)
	manager := probe.NewManager(probe.ManagerOptions{
		Runner: probe.NewProber(probe.Options{}),
		Notify: func(uid types.UID) { changed <- uid },
	})
	defer manager.Close()

	readiness := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{
		HTTPGet: &corev1.HTTPGetAction{Path: "/", Port: intstr.FromInt32(int32(address.Port()))},
	}}
	manager.Set(probe.Pod{
		Pod: &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "1"},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "nginx", ReadinessProbe: readiness}}},
		},
		IP:         address.Addr().String(),
		Containers: map[string]probe.Container{"nginx": {ID: "abc", StartedAt: time.Now()}},
	})
	uid := <-changed
	fmt.Println("ready:", manager.Results(uid)["nginx"].Ready)
	// Output: ready: true
}

// echo is a runtime whose commands do nothing but name themselves.
type echo struct{}

func (echo) Exec(_ context.Context, containerID string, cmd []string, _ time.Duration) ([]byte, error) {
	return fmt.Appendf(nil, "%s in %s", cmd, containerID), nil
}

func ExampleProber_Probe() {
	prober := probe.NewProber(probe.Options{Exec: echo{}})
	target := probe.Target{Pod: &corev1.Pod{}, Container: &corev1.Container{Name: "nginx"}, ContainerID: "abc"}
	fmt.Println(prober.Probe(context.Background(), target, &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}},
	}))
	// Output: success [true] in abc <nil>
}
