//go:build !race

package mock_test

import (
	"testing"

	"github.com/virtual-kubelet/virtual-kubelet/internal/allocs"
	"github.com/virtual-kubelet/virtual-kubelet/providers/mock"
)

func TestAllocations(t *testing.T) {
	p := newProvider(t, mock.Config{})
	pod := newPod("p")
	held := newProvider(t, mock.Config{})
	mustCreate(t, held, newPod("p"))
	allocs.Compare(t, allocs.Operation{Name: "create-and-delete", Do: func() {
		if err := p.CreatePod(ctx, pod); err != nil {
			t.Fatal(err)
		}
		if err := p.DeletePod(ctx, pod); err != nil {
			t.Fatal(err)
		}
	}}, allocs.Operation{Name: "list-of-one", Do: func() {
		if pods, err := held.GetPods(ctx); err != nil || len(pods) != 1 {
			t.Fatal(pods, err)
		}
	}})
}
