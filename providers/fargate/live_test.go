//go:build fargatelive

package fargate

import (
	"cmp"
	"os"
	"strings"
	"testing"

	awsconfig "github.com/aws/aws-sdk-go-v2/config"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
)

// TestLive runs a pod in a real account, with AWS's variables, and FARGATE_TEST_SUBNETS (with
// commas), FARGATE_TEST_EXECUTION_ROLE and FARGATE_TEST_LOG_GROUP. It fails without.
func TestLive(t *testing.T) {
	account, err := awsconfig.LoadDefaultConfig(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	image := cmp.Or(os.Getenv("FARGATE_TEST_IMAGE"), "public.ecr.aws/docker/library/busybox:1.36")
	config := Config{
		ClusterName: "virtual-kubelet-live", Subnets: strings.Split(os.Getenv("FARGATE_TEST_SUBNETS"), ","), AssignPublicIPv4Address: true,
		ExecutionRoleArn: os.Getenv("FARGATE_TEST_EXECUTION_ROLE"), CloudWatchLogGroupName: os.Getenv("FARGATE_TEST_LOG_GROUP"), FilesImage: image,
	}
	cluster := grouptest.NewCluster("live")
	p, err := New(cluster.Config(), config, account)
	if err != nil {
		t.Fatal(err)
	}
	defer grouptest.Close(t, p)
	grouptest.Live(t, p, p, cluster, image)
}
