package enginetest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/podengine"
	"github.com/virtual-kubelet/virtual-kubelet/podengine/convert"
	"github.com/virtual-kubelet/virtual-kubelet/podengine/enginetest"
	"github.com/virtual-kubelet/virtual-kubelet/podspec/volume"
)

// objects are those of an API server that has none.
type objects struct{}

func (objects) Follow(*corev1.Pod) {}
func (objects) Forget(types.UID)   {}
func (objects) ConfigMap(_ context.Context, _, name string) (*corev1.ConfigMap, error) {
	return nil, errdefs.NotFoundf("ConfigMap %s does not exist", name)
}
func (objects) Secret(_ context.Context, _, name string) (*corev1.Secret, error) {
	return nil, errdefs.NotFoundf("Secret %s does not exist", name)
}
func (objects) Subscribe(func(kind, namespace, name string)) (unsubscribe func()) { return func() {} }

// newEngine makes an engine over a runtime.
func newEngine(root string, runtime *enginetest.Runtime) (*podengine.Engine, error) {
	return podengine.New(context.Background(), podengine.Config{
		Node:     convert.Node{Name: "vk", LogRoot: filepath.Join(root, "logs")},
		Runtime:  runtime,
		Images:   runtime,
		Root:     filepath.Join(root, "state"),
		Objects:  objects{},
		Services: corev1listers.NewServiceLister(cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})),
		Tokens:   volume.Client{},
		Events:   &record.FakeRecorder{},
		HostIPs:  func() []string { return []string{"192.0.2.7"} },
		ImageGC:  podengine.ImageGC{Off: true},
	})
}

func newPod() *corev1.Pod {
	no := false
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "1"}, Spec: corev1.PodSpec{
		AutomountServiceAccountToken: &no, EnableServiceLinks: &no, RestartPolicy: corev1.RestartPolicyAlways,
		Containers: []corev1.Container{{Name: "main", Image: "nginx:1"}},
	}}
}

// inBubble runs a test with an engine over a runtime, in virtual time.
func inBubble(t *testing.T, runtime *enginetest.Runtime, test func(t *testing.T, e *podengine.Engine)) {
	t.Helper()
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		e, err := newEngine(root, runtime)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		test(t, e)
	})
}

// phase returns that of the pod, after a while.
func phase(t *testing.T, e *podengine.Engine) corev1.PodPhase {
	t.Helper()
	time.Sleep(3 * time.Second)
	status, err := e.GetPodStatus(t.Context(), "default", "web")
	if err != nil {
		t.Fatal(err)
	}
	return status.Phase
}

// A runtime that has only what an engine needs runs pods; what it lacks is unsupported.
func TestPodsRunWithTheRequiredMethods(t *testing.T) {
	runtime := &enginetest.Runtime{}
	inBubble(t, runtime, func(t *testing.T, e *podengine.Engine) {
		pod := newPod()
		if err := e.CreatePod(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		if got := phase(t, e); got != corev1.PodRunning || runtime.Running() != 1 {
			t.Fatalf("the pod is %s, %d containers run", got, runtime.Running())
		}
		if err := e.Ping(t.Context()); err != nil {
			t.Error(err)
		}
		if !runtime.Exit("default", "web", "main", 1) || runtime.Exit("default", "web", "main", 1) || runtime.Exit("default", "web", "other", 1) {
			t.Error("it is not the one container that runs which exits")
		}
		time.Sleep(20 * time.Second)
		status, err := e.GetPodStatus(t.Context(), "default", "web")
		if err != nil || status.ContainerStatuses[0].RestartCount != 1 || runtime.Running() != 1 {
			t.Errorf("after its container has exited: %+v, %v", status, err)
		}
		if err := e.RunInContainer(t.Context(), "default", "web", "main", []string{"id"}, noStreams{}); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("exec: %v", err)
		}
		if _, err := e.GetStatsSummary(t.Context()); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("statistics: %v", err)
		}
		if err := e.DeletePod(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if pods, err := e.GetPods(t.Context()); len(pods) > 0 || err != nil || runtime.Running() != 0 {
			t.Errorf("after its deletion: %v, %v, %d containers run", pods, err, runtime.Running())
		}
	})
}

// noStreams is what a client of exec asks for that wants no streams.
type noStreams struct{ api.AttachIO }

func (noStreams) TTY() bool              { return false }
func (noStreams) Stdin() io.Reader       { return nil }
func (noStreams) Stdout() io.WriteCloser { return nil }
func (noStreams) Stderr() io.WriteCloser { return nil }

// A runtime that panics, or fails, is tried again.
func TestCallsThatPanicAreTriedAgain(t *testing.T) {
	var calls atomic.Int32
	runtime := &enginetest.Runtime{Before: func(method string) error {
		if method != "StartContainer" {
			return nil
		}
		switch calls.Add(1) {
		case 1:
			panic("a mistake of the runtime")
		case 2:
			return fmt.Errorf("not now")
		}
		return nil
	}}
	inBubble(t, runtime, func(t *testing.T, e *podengine.Engine) {
		if err := e.CreatePod(t.Context(), newPod()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if got := phase(t, e); got != corev1.PodRunning || calls.Load() != 3 {
			t.Errorf("the pod is %s after %d calls", got, calls.Load())
		}
	})
}
