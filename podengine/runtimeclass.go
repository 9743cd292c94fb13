package podengine

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// RuntimeClasses resolves runtime classes (KEP-585).
type RuntimeClasses interface {
	// Handler returns the runtime's name of the handler of a class. It is asked
	// for each sandbox, and again after an error; containers take the handler
	// of their sandbox.
	Handler(ctx context.Context, class string) (string, error)
}

// runtimeHandler is what is to run a pod: the runtime's default if it is empty.
func (e *Engine) runtimeHandler(ctx context.Context, pod *corev1.Pod) (string, error) {
	class := pod.Spec.RuntimeClassName
	if class == nil || *class == "" {
		return "", nil
	}
	if e.cfg.RuntimeClasses == nil {
		return "", fmt.Errorf("RuntimeClass %q: this node has no runtime classes: remove runtimeClassName from the pod, or have it run elsewhere", *class)
	}
	handler, err := e.cfg.RuntimeClasses.Handler(ctx, *class)
	if err != nil {
		return "", fmt.Errorf("failed to get the handler of RuntimeClass %q: %w", *class, err)
	}
	return handler, nil
}
