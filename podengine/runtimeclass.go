package podengine

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// RuntimeClasses resolves runtime classes.
type RuntimeClasses interface {
	// Handler returns the runtime's name of the handler of a class.
	Handler(ctx context.Context, class string) (string, error)
}

// runtimeHandler is what runs a pod: the runtime's default if it is empty.
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
