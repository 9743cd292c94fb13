package listwatch

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Trim drops what nobody reads from an object that is to be cached: half of many objects.
// An object without that is not written to: client-go's fake clientsets, which tests of
// providers use, send the objects of their store to watches.
func Trim(object metav1.Object) {
	if len(object.GetManagedFields()) > 0 {
		object.SetManagedFields(nil)
	}
}

// Transform is Trim as a cache.TransformFunc.
func Transform(obj any) (any, error) {
	if object, err := meta.Accessor(obj); err == nil {
		Trim(object)
	}
	return obj, nil
}
