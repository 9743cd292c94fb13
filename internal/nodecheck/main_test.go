package nodecheck

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

func TestMain(m *testing.M) {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	goleak.VerifyTestMain(m)
}

// onServer is a node whose API server answers with h.
func onServer(t *testing.T, h http.HandlerFunc) *Node {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	n, err := New(&rest.Config{Host: server.URL}, Options{Name: "node", Image: "image"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Client.CoreV1().RESTClient().(*rest.RESTClient).Client.CloseIdleConnections() })
	return n
}

// onFake is a scope on a fake cluster that has one pod.
func onFake(t *testing.T, opts Options) (*Scope, *corev1.Pod) {
	t.Helper()
	opts.Name, opts.Image = "node", "image"
	s := NewForClient(nil, opts).Begin("fake")
	pod := s.Pod(s.LongRunning("main"))
	pod.Name, pod.UID = "fake", "uid"
	pod.Status.Phase = corev1.PodPending
	s.Client = fake.NewClientset(pod)
	return s, pod
}

func setPhase(t *testing.T, s *Scope, pod *corev1.Pod, phase corev1.PodPhase) {
	t.Helper()
	pod = pod.DeepCopy()
	pod.Status.Phase = phase
	if _, err := s.Client.CoreV1().Pods(pod.Namespace).UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		t.Error(err)
	}
}

func addEvent(t *testing.T, s *Scope, pod *corev1.Pod, name, reason, message string) {
	t.Helper()
	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: name},
		InvolvedObject: corev1.ObjectReference{UID: pod.UID}, Reason: reason, Message: message,
	}
	if _, err := s.Client.CoreV1().Events(pod.Namespace).Create(t.Context(), event, metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
}
