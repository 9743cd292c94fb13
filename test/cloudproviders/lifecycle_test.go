package cloudproviders

import (
	"context"
	"os"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	cloudprovider "k8s.io/cloud-provider"
	aws "k8s.io/cloud-provider-aws/pkg/providers/v1"
	"k8s.io/cloud-provider/controllers/nodelifecycle"
	fakecloud "k8s.io/cloud-provider/fake"
	"k8s.io/component-base/metrics/prometheus/controllers"
	"sigs.k8s.io/yaml"
)

// awsCloud has the instances of the cloud provider of AWS, without its API, which it must not ask.
type awsCloud struct{ *fakecloud.Cloud }

func (awsCloud) InstancesV2() (cloudprovider.InstancesV2, bool) { return &aws.Cloud{}, true }

// virtualNode returns the node of that managed cluster as the binary registers it.
func virtualNode(t *testing.T, cluster string) *corev1.Node {
	t.Helper()
	content, err := os.ReadFile("../../cmd/virtual-kubelet/testdata/managed-clusters/" + cluster + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	var n corev1.Node
	if err := yaml.UnmarshalStrict(content, &n); err != nil {
		t.Fatal(err)
	}
	return &n
}

// While a virtual kubelet is away, the cloud controller manager of EKS leaves its node, and with it the pods. The
// node of no managed cluster is deleted by one that does not know it, which shows that the controller looks.
func TestNodeThatIsNotReadyIsKept(t *testing.T) {
	for cluster, c := range map[string]struct {
		cloud cloudprovider.Interface
		kept  bool
	}{
		"eks":  {awsCloud{&fakecloud.Cloud{}}, true},
		"none": {&fakecloud.Cloud{}, false},
	} {
		t.Run(cluster, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := virtualNode(t, cluster)
				n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}
				client := fake.NewClientset(n)
				factory := informers.NewSharedInformerFactory(client, 0)
				controller, err := nodelifecycle.NewCloudNodeLifecycleController(factory.Core().V1().Nodes(), client, c.cloud, 5*time.Second)
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				factory.Start(ctx.Done())
				factory.WaitForCacheSync(ctx.Done())
				done := make(chan struct{})
				go func() {
					defer close(done)
					controller.Run(ctx, controllers.NewControllerManagerMetrics("test"))
				}()
				time.Sleep(time.Minute)
				_, err = client.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
				if kept := err == nil; kept != c.kept || err != nil && !apierrors.IsNotFound(err) {
					t.Errorf("kept: %v, %v", kept, err)
				}
				cancel()
				<-done
				factory.Shutdown()
			})
		})
	}
}
