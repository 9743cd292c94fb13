//go:build !race

package podenv_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/internal/allocs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/podenv"
)

func TestAllocations(t *testing.T) {
	plain, none := newPod(corev1.Container{Name: "c"}), &fake{}
	allocs.Compare(t,
		allocs.Operation{Name: "copy-and-resolve-60-references", Do: resolveRichPod(t)},
		allocs.Operation{Name: "resolve-nothing", Do: func() { _, _ = podenv.Resolve(plain, none, podenv.Options{}) }},
	)
}
