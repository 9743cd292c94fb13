package podengine

import (
	"context"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// handlerFeatures are what the runtime says that a handler can do: nothing, if it
// does not say.
func (e *Engine) handlerFeatures(ctx context.Context, handler string) (*runtimeapi.RuntimeHandlerFeatures, error) {
	answer, err := e.runtimeStatus(ctx)
	if err != nil {
		return nil, err
	}
	for _, h := range answer.GetRuntimeHandlers() {
		if h.Name == handler {
			return h.GetFeatures(), nil
		}
	}
	return nil, nil
}

// runtimeStatus is what the runtime says that it can do. It is asked each time: few pods
// need to know, and the runtime may be replaced by a newer one.
func (e *Engine) runtimeStatus(ctx context.Context) (*runtimeapi.StatusResponse, error) {
	answer, err := e.cfg.Runtime.Status(ctx, false)
	if err != nil {
		return nil, fmt.Errorf("cannot ask the runtime what it can do: %w", err)
	}
	return answer, nil
}
