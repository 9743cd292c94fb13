// Package resourcelist compares lists of resources.
package resourcelist

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Same reports whether one list can stand for another: their quantities are equal, and written alike, too.
func Same(a, b corev1.ResourceList) bool {
	return maps.EqualFunc(a, b, func(a, b resource.Quantity) bool { return a.Format == b.Format && a.Equal(b) })
}
