//go:build !race

package podstatus

import (
	"testing"

	"github.com/virtual-kubelet/virtual-kubelet/internal/allocs"
)

func TestAllocations(t *testing.T) {
	was, is := started()
	same := is.DeepCopy()
	allocs.Compare(t,
		allocs.Operation{Name: "Equal", Do: func() { Equal(is, same) }},
		allocs.Operation{Name: "Patch", Do: func() {
			if _, err := Patch("u1", was, is); err != nil {
				t.Fatal(err)
			}
		}},
		allocs.Operation{Name: "Patch-of-nothing", Do: func() { _, _ = Patch("u1", is, same) }},
	)
}
