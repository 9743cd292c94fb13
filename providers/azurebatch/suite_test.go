package azurebatch

import (
	"net/http"
	"os"
	"testing"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/azurebatch/batchtest"
)

func TestMain(m *testing.M) {
	if directory := os.Getenv(dockerVariable); directory != "" {
		os.Exit(docker{directory}.run(os.Args[1:]))
	}
	goleak.VerifyTestMain(m)
}

func testConfig() Config {
	return Config{AccountName: batchtest.Account, AccountLocation: "westeurope", AccountKey: batchtest.Key, PoolID: batchtest.Pool, ClusterName: "home"}
}

// plain connects to a fake without TLS.
type plain struct{ *http.Transport }

func (p plain) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Scheme = "http"
	return p.Transport.RoundTrip(r)
}

func connect(t *testing.T, s *batchtest.Server) http.RoundTripper {
	t.Helper()
	return plain{grouptest.Serve(t, s, s.World).Transport(t)}
}

// On a pool for containers Batch itself runs the containers of the suite's pods, on another
// one a script does.
func TestSuite(t *testing.T) {
	// A script says of each start of a container, which has to be read.
	skip := map[string]map[string]string{"scripts": {"1000 pods": "their calls are those of the other pool"}}
	for name, policy := range map[string]corev1.RestartPolicy{"containers": corev1.RestartPolicyOnFailure, "scripts": corev1.RestartPolicyNever} {
		t.Run(name, func(t *testing.T) {
			grouptest.Suite{
				New: func(t *testing.T, w *grouptest.World) (podgroup.Backend, podgroup.Options) {
					s := batchtest.New(w)
					s.Containers, s.PageSize = name == "containers", 300
					b, err := newBackend(testConfig(), "vk", connect(t, s))
					if err != nil {
						t.Fatal(err)
					}
					return b, b.options()
				},
				Actions:       map[podgroup.Action]string{podgroup.ActionCreate: batchtest.ActionTask, podgroup.ActionList: batchtest.ActionList},
				Budget:        1_000_000, // Batch names no limit of calls
				RestartPolicy: policy,
				Skip:          skip[name],
			}.Run(t)
		})
	}
}
