package nodecheck

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

var ephemeralContainerChecks = []Check{
	{Name: "ephemeral-container", Title: "a container that is added to a pod that runs is started", Needs: []Capability{EphemeralContainers}, run: checkEphemeralContainer},
}

func checkEphemeralContainer(ctx context.Context, s *Scope) error {
	pod, err := s.CreateRunning(ctx)
	if err != nil {
		return err
	}
	debugger := s.LongRunning("debugger")
	// A patch, since the kubelet may write the pod's status in the same moment.
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{
		"ephemeralContainers": []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
			Name: debugger.Name, Image: debugger.Image, Command: debugger.Command, TerminationMessagePolicy: debugger.TerminationMessagePolicy,
		}}},
	}})
	if err != nil {
		return err
	}
	before := pod
	if _, err = s.Client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "ephemeralcontainers"); err != nil {
		return err
	}
	pod, err = s.Follow(ctx, pod, "has a debugger that runs", nil, exists(func(pod *corev1.Pod) bool {
		list := pod.Status.EphemeralContainerStatuses
		return len(list) == 1 && list[0].State.Running != nil
	}))
	if err != nil {
		return err
	}
	return SameContainers(before, pod)
}

var resizeChecks = []Check{
	{Name: "resize", Title: "the CPU limit of a container can be changed while it runs", Needs: []Capability{Resize}, run: checkResize},
}

func checkResize(ctx context.Context, s *Scope) error {
	pod := s.Pod(s.LongRunning("main"))
	cpu := func(quantity string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(quantity)}
	}
	pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: cpu("50m"), Limits: cpu("100m")}
	pod, err := s.createAnd(ctx, pod, "runs", Running)
	if err != nil {
		return err
	}
	before := pod
	patch := []byte(`{"spec":{"containers":[{"name":"main","resources":{"limits":{"cpu":"200m"}}}]}}`)
	if _, err := s.Client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "resize"); err != nil {
		return fmt.Errorf("ask for another limit: %w", err)
	}
	pod, err = s.Follow(ctx, pod, "has a limit of 200m", nil, exists(func(pod *corev1.Pod) bool {
		list := pod.Status.ContainerStatuses
		return len(list) == 1 && list[0].Resources != nil && list[0].Resources.Limits.Cpu().Cmp(resource.MustParse("200m")) == 0
	}))
	if err != nil {
		return err
	}
	return SameContainers(before, pod)
}
