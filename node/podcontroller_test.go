package node

import (
	"strings"
	"testing"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/record"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/fakeapi"
)

// noProvider is a provider that is not asked.
type noProvider struct{ PodLifecycleHandler }

func TestConfigIsChecked(t *testing.T) {
	_, err := NewPodController(PodControllerConfig{})
	if !errdefs.IsInvalidInput(err) {
		t.Fatalf("got %v, want an error of class InvalidInput", err)
	}
	for _, field := range []string{"PodClient", "PodInformer", "EventRecorder", "Provider", "ConfigMapInformer", "SecretInformer", "ServiceInformer"} {
		if !strings.Contains(err.Error(), field) {
			t.Errorf("%v does not name %s", err, field)
		}
	}
	api := fakeapi.New(t)
	_, err = NewPodController(PodControllerConfig{
		PodClient: api.CoreV1(), EventRecorder: &record.FakeRecorder{}, Provider: noProvider{}, SkipDownwardAPIResolution: true,
		PodInformer: informers.NewSharedInformerFactory(api, 0).Core().V1().Pods(),
	})
	if err != nil {
		t.Errorf("without the informers that it does not need: %v", err)
	}
}
