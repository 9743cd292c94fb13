package podenv_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/podenv"
)

// BenchmarkResolve resolves a pod of three containers with twenty references
// each. The copy of the pod is part of it, as it is in production.
func BenchmarkResolve(b *testing.B) {
	resolve := resolveRichPod(b)
	b.ReportAllocs()
	for b.Loop() {
		resolve()
	}
}

func resolveRichPod(t testing.TB) (resolve func()) {
	f := objects()
	for i := range 10 {
		f.services = append(f.services, service("ns", fmt.Sprint("svc-", i), "10.0.0.1", "http:80", "https:443"))
	}
	var c corev1.Container
	for i := range 10 {
		data := map[string]string{"key": "value"}
		f.configMaps[fmt.Sprint("ns/cm-", i)] = data
		f.secrets[fmt.Sprint("ns/s-", i)] = data
		c.Env = append(c.Env,
			fromConfigMap(fmt.Sprint("CM_", i), fmt.Sprint("cm-", i), "key"),
			fromSecret(fmt.Sprint("S_", i), fmt.Sprint("s-", i), "key"),
			value(fmt.Sprint("V_", i), fmt.Sprintf("$(CM_%d) and $(S_%d)", i, i)))
	}
	pod := newPod(c)
	pod.Spec.EnableServiceLinks = nil
	for range 2 {
		pod.Spec.Containers = append(pod.Spec.Containers, *pod.Spec.Containers[0].DeepCopy())
	}
	return func() {
		if _, err := podenv.Resolve(pod.DeepCopy(), f, podenv.Options{}); err != nil {
			t.Fatal(err)
		}
	}
}
