package vkubelet

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/virtual-kubelet/virtual-kubelet/node/api"
)

// credulous is a provider that has a log for every name, and counts the requests.
type credulous struct {
	capable
	asked int
}

func (p *credulous) GetContainerLogs(context.Context, string, string, string, api.ContainerLogOpts) (io.ReadCloser, error) {
	p.asked++
	return io.NopCloser(strings.NewReader("a log")), nil
}

// The routes of a Server answer 404 for pods that its node does not have, without asking
// the provider, wherever the Server has its pods from.
func TestServerKnowsItsPods(t *testing.T) {
	for name, withInformer := range map[string]bool{"its own watch": false, "an informer": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := fake.NewClientset(newPod("default", "web", "node"), newPod("default", "elsewhere", "other"))
				provider := &credulous{}
				cfg := Config{Client: client, NodeName: "node", Provider: provider}
				ctx, cancel := context.WithCancel(t.Context())
				if withInformer {
					factory := informers.NewSharedInformerFactory(client, 0)
					cfg.PodInformer = factory.Core().V1().Pods()
					cfg.PodInformer.Informer()
					factory.StartWithContext(ctx)
					defer factory.Shutdown()
				}
				defer cancel()
				server := New(cfg)
				attached := http.NewServeMux()
				server.AttachPodRoutes(attached)
				handler := server.PodHandler()
				if status, _ := get(t, handler, "/containerLogs/default/web/c"); status != http.StatusServiceUnavailable {
					t.Errorf("before it runs: %d", status)
				}
				ended := make(chan error, 1)
				go func() { ended <- server.Run(ctx) }()
				<-server.Ready()
				for path, want := range map[string]int{
					"/containerLogs/default/web/c":          200,
					"/containerLogs/default/elsewhere/c":    404,
					"/containerLogs/default/none/c":         404,
					"/containerLogs/other/web/c":            404,
					"/exec/default/elsewhere/c":             404,
					"/exec/default/web/uid-of-elsewhere/c":  404,
					"/attach/default/elsewhere/c":           404,
					"/portForward/default/elsewhere":        404,
					"/portForward/default/web/another-uid1": 404,
				} {
					for _, h := range []http.Handler{handler, attached} {
						before := provider.asked
						if status, body := get(t, h, path); status != want || (provider.asked > before) != (want == 200) {
							t.Errorf("%s: %d %q, the provider was asked %d times", path, status, body, provider.asked-before)
						}
					}
				}
				if _, body := get(t, handler, "/pods"); !strings.Contains(body, `"name":"web"`) || strings.Contains(body, "elsewhere") {
					t.Errorf("/pods: %s", body)
				}
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			})
		})
	}
}
