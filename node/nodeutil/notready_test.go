package nodeutil_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
)

// Where a node says at its end that it is not ready, its pods say so, too; the next
// process corrects it.
func TestPodsAreNotReadyWhereTheirNodeSaysSo(t *testing.T) {
	for _, says := range []bool{false, true} {
		client := fake.NewSimpleClientset()
		running := pod("web", "vk")
		running.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
		provider := &tiny{pods: map[string]*corev1.Pod{"default/web": running.DeepCopy()}}
		if _, err := client.CoreV1().Pods("default").Create(t.Context(), running, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		option := func(cfg *nodeutil.NodeConfig) error {
			cfg.NotReadyAtShutdown = says
			return nil
		}
		n, stop := start(t, client, making(provider), option)
		eventually(t, "the pod is known", func() bool { return n.PodController() != nil && podReady(t, client, "web") == corev1.ConditionTrue })
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		want := corev1.ConditionTrue
		if says {
			want = corev1.ConditionFalse
		}
		if got := podReady(t, client, "web"); got != want {
			t.Errorf("NotReadyAtShutdown %v: after the end the pod is Ready=%q, want %q", says, got, want)
		}
		_, stop = start(t, client, making(provider), option)
		eventually(t, "the pod is ready again", func() bool { return podReady(t, client, "web") == corev1.ConditionTrue })
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	}
}

func podReady(t *testing.T, client kubernetes.Interface, name string) corev1.ConditionStatus {
	t.Helper()
	pod, err := client.CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status
		}
	}
	return ""
}
