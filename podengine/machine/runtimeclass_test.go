package machine

import (
	"testing"

	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

func TestRuntimeClasses(t *testing.T) {
	client := fake.NewSimpleClientset(&nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "fast"}, Handler: "kata"})
	classes := runtimeClasses{client.NodeV1().RuntimeClasses()}
	if handler, err := classes.Handler(t.Context(), "fast"); handler != "kata" || err != nil {
		t.Errorf("the handler is %q, %v", handler, err)
	}
	if _, err := classes.Handler(t.Context(), "slow"); !apierrors.IsNotFound(err) {
		t.Errorf("a class that there is not: %v", err)
	}
}
