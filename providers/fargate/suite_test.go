package fargate

import (
	"net/http"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/fargate/ecstest"
)

const roleARN = "arn:aws:iam::123456789012:role/pods"

func testConfig() Config {
	return Config{ClusterName: ecstest.Cluster, Subnets: []string{"subnet-1"}, CloudWatchLogGroupName: "pods", ExecutionRoleArn: roleARN}
}

// connect returns the credentials and the connection for a fake.
func connect(t *testing.T, s *ecstest.Server) aws.Config {
	t.Helper()
	return aws.Config{
		Region: "eu-west-1", BaseEndpoint: new("http://ecs.test"), HTTPClient: &http.Client{Transport: grouptest.Serve(t, s).Transport(t)},
		Credentials: credentials.NewStaticCredentialsProvider(ecstest.AccessKey, "secret", ""),
	}
}

// newTestBackend returns a backend before a fake, connected in memory.
func newTestBackend(t *testing.T, s *ecstest.Server) *backend {
	t.Helper()
	b, err := newBackend(testConfig(), connect(t, s))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestSuite(t *testing.T) {
	servers := map[*grouptest.World]*ecstest.Server{}
	grouptest.Suite{
		New: func(t *testing.T, w *grouptest.World) (podgroup.Backend, podgroup.Options) {
			if servers[w] == nil {
				servers[w] = ecstest.New(w)
			}
			b := newTestBackend(t, servers[w])
			return b, b.options()
		},
		Actions:      map[podgroup.Action]string{podgroup.ActionCreate: "RunTask", podgroup.ActionList: "ListTasks"},
		Budget:       1_000_000,
		CallsPerList: 3,
	}.Run(t)
}
