package machine

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

func TestLabelsOf(t *testing.T) {
	client := fake.NewSimpleClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "vk", Labels: map[string]string{"zone": "a"}}})
	if labels, err := labelsOf(client, "vk")(t.Context()); labels["zone"] != "a" || err != nil {
		t.Errorf("the labels are %v, %v", labels, err)
	}
	if _, err := labelsOf(client, "other")(t.Context()); !apierrors.IsNotFound(err) {
		t.Errorf("a node that there is not: %v", err)
	}
}
