package zun

import (
	"net/http"
	"testing"

	"go.uber.org/goleak"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/zun/zuntest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func testConfig() Config {
	return Config{AuthURL: "http://keystone.test/v3", Username: zuntest.User, Password: zuntest.Password, ProjectName: zuntest.Project, Region: zuntest.Region, ClusterName: "home"}
}

func connect(t *testing.T, s *zuntest.Server) http.RoundTripper {
	t.Helper()
	return grouptest.Serve(t, s, s.World).Transport(t)
}

func TestSuite(t *testing.T) {
	grouptest.Suite{
		New: func(t *testing.T, w *grouptest.World) (podgroup.Backend, podgroup.Options) {
			b, err := newBackend(testConfig(), connect(t, zuntest.New(w)))
			if err != nil {
				t.Fatal(err)
			}
			return b, b.options()
		},
		Actions: map[podgroup.Action]string{podgroup.ActionCreate: zuntest.ActionCreate, podgroup.ActionList: zuntest.ActionList},
		Budget:  1_000_000, // Zun has no limit of calls
	}.Run(t)
}
