package mock_test

import (
	"fmt"
	"testing"

	"github.com/virtual-kubelet/virtual-kubelet/providers/mock"
)

func BenchmarkCreateAndDelete(b *testing.B) {
	p := newProvider(b, mock.Config{})
	pod := newPod("p")
	b.ReportAllocs()
	for b.Loop() {
		if err := p.CreatePod(ctx, pod); err != nil {
			b.Fatal(err)
		}
		if err := p.DeletePod(ctx, pod); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkGetPods(b *testing.B) {
	p := newProvider(b, mock.Config{})
	for i := range 1000 {
		if err := p.CreatePod(ctx, newPod(fmt.Sprint("p", i))); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		if pods, err := p.GetPods(ctx); err != nil || len(pods) != 1000 {
			b.Fatal(len(pods), err)
		}
	}
}
