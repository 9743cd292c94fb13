package nodeutil_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
)

// What is authorized goes by the path as it was decoded, what answers by the router's
// segments. However a path is written, nothing is reached by other rights than its own:
// what opens a stream or reads a log needs nodes/proxy, and to open a stream the right to
// create.
func TestNoPathIsTakenForAnother(t *testing.T) {
	var asked string // of the provider
	reached := map[string]bool{}
	config := api.PodHandlerConfig{
		RunInContainer: func(context.Context, string, string, string, []string, api.AttachIO) error { return nil },
		GetContainerLogs: func(_ context.Context, namespace, pod, container string, _ api.ContainerLogOpts) (io.ReadCloser, error) {
			asked = "logs of " + namespace + "/" + pod + "/" + container
			return nil, nil
		},
		GetPods: func(context.Context) ([]*corev1.Pod, error) { asked = "pods"; return nil, nil },
		FindPod: func(context.Context, string, string) (*corev1.Pod, error) {
			return &corev1.Pod{}, nil
		},
	}
	handler := api.PodHandler(config, true)
	for _, path := range []string{
		"/containerLogs/ns/p/c",
		"/pods/../containerLogs/ns/p/c", "/pods/%2e%2e/containerLogs/ns/p/c", "/pods/%2E%2E%2FcontainerLogs/ns/p/c", "/pods%2f..%2fcontainerLogs/ns/p/c",
		"/healthz/..//containerLogs/ns/p/c", "/stats/../containerLogs/ns/p/c", "/stats/%2e%2e/containerLogs/ns/p/c", "/metrics/..%2fcontainerLogs/ns/p/c",
		"//containerLogs/ns/p/c", "/./containerLogs/ns/p/c", "/%63ontainerLogs/ns/p/c", "/containerLogs%2Fns/p/c", "/containerLogs/ns%2Fp/c", "/containerLogs/ns/p%2Fc",
		"/containerLogs//p/c", "/containerLogs/ns//c", "/containerLogs/ns/p/", "/containerLogs/ns/p/%20", "/containerLogs/ns/%2e%2e/c", "/containerLogs/ns/../p/c", "/containerLogs/%00/p/c",
		"/containerLogs/ns/p/c%00", "/containerLogs/ns/p/c/../../../../pods", "/containerLogs/ns/p/%2e%2e%2f%2e%2e%2fpods", "/pods%2f", "/pods/%2f", "/%70ods", "/runningpods%2f/", "/runningpods/%2e",
		"/exec/ns/p/c?command=x&output=1", "/pods/../exec/ns/p/c?command=x&output=1", "/%65xec/ns/p/c?command=x&output=1", "//exec/ns/p/c?command=x&output=1", "/exec%2fns/p/c?command=x&output=1",
		"/stats/%2e%2e/exec/ns/p/c?command=x&output=1", "/exec/ns/p/%2e%2e/c?command=x&output=1",
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodHead, http.MethodConnect, "get", "QUERY"} {
			asked = ""
			r, err := http.NewRequestWithContext(t.Context(), method, "http://node"+path, nil)
			if err != nil {
				continue // that cannot be sent
			}
			attributes := nodeutil.NodeRequestAttr{NodeName: "vk"}.GetRequestAttributes(&user.DefaultInfo{}, r).(authorizer.AttributesRecord)
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			if strings.Contains(w.Body.String(), "Upgrade request required") {
				asked = "exec"
			}
			may := attributes.Verb + " " + attributes.Subresource
			var needs string
			switch {
			case asked == "":
				continue
			case asked == "pods":
				needs = "get pods"
			case asked == "exec":
				needs = "create proxy"
			default:
				needs = "get proxy"
				if asked != "logs of ns/p/c" {
					t.Errorf("%s %s: the provider was asked for %s", method, path, asked)
				}
			}
			reached[asked] = true
			if may != needs {
				t.Errorf("%s %s: who may %q gets %s", method, path, may, asked)
			}
		}
	}
	if len(reached) != 3 {
		t.Errorf("only %v was reached by any path", reached)
	}
}
