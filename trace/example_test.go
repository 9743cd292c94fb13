package trace_test

import (
	"context"
	"errors"

	"github.com/virtual-kubelet/virtual-kubelet/trace"
)

func ExampleStartSpan() {
	create := func(ctx context.Context, pod string) (err error) {
		ctx, span := trace.StartSpan(ctx, "CreatePod")
		defer span.End()
		defer func() { span.SetStatus(err) }()
		_ = span.WithField(ctx, "pod", pod)
		return errors.New("not today")
	}
	_ = create(context.Background(), "default/web")
	// Output:
}
