package fargate

import (
	"net/http"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/gorilla/websocket"
	"go.uber.org/goleak"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/fargate/ecstest"
)

const roleARN = "arn:aws:iam::123456789012:role/pods"

func testConfig() Config {
	return Config{ClusterName: ecstest.Cluster, Subnets: []string{"subnet-1"}, CloudWatchLogGroupName: "pods", ExecutionRoleArn: roleARN, TaskRoleArn: roleARN}
}

// connect returns a backend before a fake, connected in memory.
func connect(t *testing.T, s *ecstest.Server, cfg Config) *backend {
	t.Helper()
	d := grouptest.Serve(t, s, s.World)
	b, err := newBackend(cfg, aws.Config{
		Region: "eu-west-1", BaseEndpoint: new("http://ecs.test"), HTTPClient: &http.Client{Transport: d.Transport(t)},
		Credentials: credentials.NewStaticCredentialsProvider(ecstest.AccessKey, "secret", ""),
	})
	if err != nil {
		t.Fatal(err)
	}
	b.dialer = &websocket.Dialer{NetDialContext: d.DialContext}
	return b
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSuite(t *testing.T) {
	servers := map[*grouptest.World]*ecstest.Server{}
	grouptest.Suite{
		New: func(t *testing.T, w *grouptest.World) (podgroup.Backend, podgroup.Options) {
			if servers[w] == nil {
				servers[w] = ecstest.New(w)
			}
			b := connect(t, servers[w], testConfig())
			return b, b.options()
		},
		Actions:      map[podgroup.Action]string{podgroup.ActionCreate: "RunTask", podgroup.ActionList: "ListTasks"},
		Budget:       1_000_000,
		CallsPerList: 3,
	}.Run(t)
}
