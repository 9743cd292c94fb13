package podengine

import (
	"context"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/informers"

	"github.com/virtual-kubelet/virtual-kubelet/internal/fakeapi"
	"github.com/virtual-kubelet/virtual-kubelet/node"
)

// withController has the pods of an API run by the engine, and returns what ends that.
func (r *rig) withController(api *fakeapi.API) (stop func()) {
	r.t.Helper()
	factory := informers.NewSharedInformerFactory(api, 0)
	core := factory.Core().V1()
	controller, err := node.NewPodController(node.PodControllerConfig{
		PodClient: api.CoreV1(), PodInformer: core.Pods(), EventRecorder: r.events, Provider: r.Engine,
		ConfigMapInformer: core.ConfigMaps(), SecretInformer: core.Secrets(), ServiceInformer: core.Services(),
	})
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(r.ctx)
	factory.Start(ctx.Done())
	result := make(chan error, 1)
	go func() { result <- controller.Run(ctx, 10) }()
	<-controller.Ready()
	return func() {
		cancel()
		if err := <-result; err != nil {
			r.t.Errorf("the controller ended with %v", err)
		}
		factory.Shutdown()
	}
}

// How a pod has ended whose deletion ends after a restart, before the API server is reached,
// is in the API before the pod leaves it.
func TestDeletionThatEndsBeforeTheController(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.runtime.plans["a"] = plan{lingers: time.Hour}
		api := fakeapi.New(r.t)
		stop := r.withController(api)
		pod := makePod("a")
		pod.Namespace, pod.Spec.NodeName = "default", "vk"
		api.AddPod(pod)
		r.after(time.Minute)
		api.DeletePod(pod.Name, 600)
		r.after(time.Second)
		stop()
		r.end()
		r.runtime.exit(r.runtime.newest("a").Id, 3)
		r.beginUnheard()
		r.after(time.Minute)
		stop = r.withController(api)
		defer stop()
		r.after(time.Minute)
		if api.Pod(pod.Name) != nil {
			t.Error("the pod is still there")
		}
		if patches := strings.Join(api.Patches, "\n"); !strings.Contains(patches, `"exitCode":3`) {
			t.Errorf("its statuses were\n%s", patches)
		}
	})
}
