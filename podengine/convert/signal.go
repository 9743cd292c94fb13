package convert

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The CRI has SIGRTMINPLUS1 for the API's SIGRTMIN+1.
var signalName = strings.NewReplacer("+", "PLUS", "-", "MINUS")

// stopSignal is lifecycle.stopSignal (KEP-4960), else the image's or the runtime's.
func stopSignal(c *corev1.Container) (runtimeapi.Signal, error) {
	if c.Lifecycle == nil || c.Lifecycle.StopSignal == nil {
		return runtimeapi.Signal_RUNTIME_DEFAULT, nil
	}
	name := string(*c.Lifecycle.StopSignal)
	number, ok := runtimeapi.Signal_value[signalName.Replace(name)]
	if !ok || !strings.HasPrefix(name, "SIG") {
		return 0, fmt.Errorf("container %q has an unknown stopSignal %q", c.Name, name)
	}
	return runtimeapi.Signal(number), nil
}
