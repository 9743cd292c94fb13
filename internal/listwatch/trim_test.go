package listwatch_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/virtual-kubelet/virtual-kubelet/internal/listwatch"
)

var _ cache.TransformFunc = listwatch.Transform

// frozen is an object that a fake clientset has in its store, too.
type frozen struct {
	*corev1.Pod
	t *testing.T
}

func (f frozen) SetManagedFields([]metav1.ManagedFieldsEntry) {
	f.t.Error("an object was written to that has nothing to drop")
}

func TestTrim(t *testing.T) {
	listwatch.Trim(frozen{&corev1.Pod{}, t})
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", ManagedFields: make([]metav1.ManagedFieldsEntry, 2)}}
	obj, err := listwatch.Transform(pod)
	if err != nil || obj != any(pod) || pod.ManagedFields != nil || pod.Name != "web" {
		t.Errorf("Transform made %+v of a pod, and the error %v", obj, err)
	}
	last := cache.DeletedFinalStateUnknown{Key: "default/web"}
	if obj, err := listwatch.Transform(last); err != nil || obj != any(last) {
		t.Errorf("Transform made %+v of a tombstone, and the error %v", obj, err)
	}
}
