package nodecheck

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
)

// What every node does.
var coreChecks = []Check{
	{Name: "node-ready", Title: "the node is Ready, and says what it has, what it is and where", noPods: true, run: checkNode},
	{Name: "node-lease", Title: "the node's lease is renewed", noPods: true, run: checkLease},
	{Name: "pod-runs", Title: "a pod gets Running and Ready, with addresses, times, container IDs and conditions", run: checkRuns},
	{Name: "pod-listed", Title: "the kubelet lists a pod that runs", run: checkListed},
	{Name: "pod-label", Title: "a changed label reaches the kubelet and leaves the containers alone", run: checkLabel},
	{Name: "delete-graceful", Title: "a pod that is deleted is marked first, and gone once it has stopped", run: checkGracefulDelete},
	{Name: "delete-force", Title: "a pod that is deleted with force is gone at once, and soon from the node", run: checkForceDelete},
	{Name: "delete-pending", Title: "a pod that has not started can be deleted", run: checkDeletePending},
	{Name: "recreate", Title: "a pod of the same name with another UID is another pod", run: checkRecreate},
	{Name: "env-missing-secret", Title: "a pod waits for a Secret that its environment needs, and an event says so", run: checkMissingSecret},
	{Name: "env-missing-configmap", Title: "a pod waits for a ConfigMap that its environment needs, and an event says so", run: checkMissingConfigMap},
	{Name: "env-optional", Title: "optional Secrets and ConfigMaps that do not exist hold nothing up", run: checkOptional},
	{Name: "twenty-pods", Title: "twenty pods at once run and go", run: checkManyPods},
}

func checkNode(ctx context.Context, s *Scope) error {
	return s.Poll(ctx, func(ctx context.Context) error {
		node, err := s.Client.CoreV1().Nodes().Get(ctx, s.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		return describesItself(node)
	})
}

// describesItself returns what is wrong with what a node says of itself.
func describesItself(node *corev1.Node) error {
	problems := []error{ready(node)}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods} {
		for what, list := range map[string]corev1.ResourceList{"capacity": node.Status.Capacity, "allocatable": node.Status.Allocatable} {
			if quantity := list[name]; quantity.Sign() <= 0 {
				problems = append(problems, fmt.Errorf("status.%s has no %s", what, name))
			}
		}
	}
	info := node.Status.NodeInfo
	for field, value := range map[string]string{"kubeletVersion": info.KubeletVersion, "operatingSystem": info.OperatingSystem, "architecture": info.Architecture} {
		if value == "" {
			problems = append(problems, fmt.Errorf("status.nodeInfo.%s is empty", field))
		}
	}
	if !slices.ContainsFunc(node.Status.Addresses, func(a corev1.NodeAddress) bool { return a.Type == corev1.NodeInternalIP }) {
		problems = append(problems, errors.New("status.addresses has no InternalIP"))
	}
	if node.Status.DaemonEndpoints.KubeletEndpoint.Port == 0 {
		problems = append(problems, errors.New("status.daemonEndpoints has no port of the kubelet API"))
	}
	return errors.Join(problems...)
}

// checkLease waits for two renewals, so that it does not matter when it began.
func checkLease(ctx context.Context, s *Scope) error {
	var first time.Time
	return s.Poll(ctx, func(ctx context.Context) error {
		lease, err := s.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, s.Name, metav1.GetOptions{})
		switch {
		case err != nil:
			return err
		case lease.Spec.RenewTime == nil || lease.Spec.LeaseDurationSeconds == nil || lease.Spec.HolderIdentity == nil:
			return errors.New("the lease lacks its renewTime, leaseDurationSeconds or holderIdentity")
		case *lease.Spec.HolderIdentity != s.Name:
			return fmt.Errorf("the lease is held by %q", *lease.Spec.HolderIdentity)
		case first.IsZero():
			first = lease.Spec.RenewTime.Time
		}
		if !lease.Spec.RenewTime.After(first) {
			return fmt.Errorf("the lease was not renewed since %v", first)
		}
		return nil
	})
}

func checkRuns(ctx context.Context, s *Scope) error {
	pod, err := s.CreateRunning(ctx)
	if err != nil {
		return lacking{err}
	}
	if pod, err = s.Follow(ctx, pod, "is ready", nil, Ready); err != nil {
		return err
	}
	node, err := s.Client.CoreV1().Nodes().Get(ctx, s.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	return runsInFull(pod, node)
}

// runsInFull returns what is wrong with the status of a pod that is ready.
func runsInFull(pod *corev1.Pod, node *corev1.Node) error {
	var problems []error
	problem := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	status := &pod.Status
	if !slices.ContainsFunc(node.Status.Addresses, func(a corev1.NodeAddress) bool { return a.Address == status.HostIP }) {
		problem("status.hostIP is %q, which is no address of the node", status.HostIP)
	}
	if status.PodIP == "" || len(status.PodIPs) == 0 || status.PodIPs[0].IP != status.PodIP {
		problem("status.podIP is %q, podIPs are %v", status.PodIP, status.PodIPs)
	}
	if status.StartTime.IsZero() {
		problem("status.startTime is empty")
	}
	for _, kind := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		if got := conditionStatus(pod, kind); got != corev1.ConditionTrue {
			problem("condition %s is %q", kind, got)
		}
	}
	if len(status.ContainerStatuses) != len(pod.Spec.Containers) {
		problem("there are %d statuses of %d containers", len(status.ContainerStatuses), len(pod.Spec.Containers))
	}
	for _, c := range status.ContainerStatuses {
		if !strings.Contains(c.ContainerID, "://") {
			problem("container %s has the ID %q, which is not RUNTIME://ID", c.Name, c.ContainerID)
		}
		if c.State.Running == nil || c.State.Running.StartedAt.IsZero() {
			problem("container %s is %s, or without the time of its start", c.Name, describeState(c.State))
		}
		if !c.Ready || c.Started == nil || !*c.Started {
			problem("container %s is not reported as ready and started", c.Name)
		}
		if c.Image == "" || c.ImageID == "" {
			problem("container %s lacks its image or imageID", c.Name)
		}
	}
	return errors.Join(problems...)
}

func checkListed(ctx context.Context, s *Scope) error {
	pod, err := s.CreateRunning(ctx)
	if err != nil {
		return err
	}
	for _, path := range []string{PodsPath, RunningPodsPath} {
		if err := s.WaitListed(ctx, path, pod); err != nil {
			return err
		}
	}
	return nil
}

// WaitListed waits until the kubelet lists a pod at a path. RunningPodsPath is
// not served by every kubelet; then there is nothing to wait for.
func (n *Node) WaitListed(ctx context.Context, path string, pod *corev1.Pod) error {
	err := n.Poll(ctx, func(ctx context.Context) error {
		pods, err := n.ListOnKubelet(ctx, path)
		switch {
		case path == RunningPodsPath && statusCode(err) == 404:
			return nil
		case err != nil:
			return err
		case FindPod(pods, pod) == nil:
			return fmt.Errorf("it is not among the %d pods there", len(pods))
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("waiting until pod %s is listed at %s: %w", pod.Name, path, err)
	}
	return nil
}

func checkLabel(ctx context.Context, s *Scope) error {
	const label = "nodecheck/colour"
	pod, err := s.createAnd(ctx, s.Pod(s.LongRunning("main")), "is ready", Ready)
	if err != nil {
		return err
	}
	before := pod
	patch := []byte(`{"metadata":{"labels":{"` + label + `":"blue"}}}`)
	if _, err := s.Client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return err
	}
	err = s.Poll(ctx, func(ctx context.Context) error {
		pods, err := s.ListOnKubelet(ctx, PodsPath)
		if err != nil {
			return err
		}
		if held := FindPod(pods, pod); held == nil || held.Labels[label] != "blue" {
			return errors.New("the kubelet does not list the pod with its new label")
		}
		return nil
	})
	if err != nil {
		return err
	}
	// Any effect of the label on the pod is over when the pod is gone.
	_, err = s.Follow(ctx, pod, "is gone, with the containers that it had", func(ctx context.Context) error {
		return s.Delete(ctx, pod, *pod.Spec.TerminationGracePeriodSeconds)
	}, func(pod *corev1.Pod, deleted bool) (bool, error) { return deleted, SameContainers(before, pod) })
	return err
}

// SameContainers returns an error if the containers of a pod are not those that
// they were before.
func SameContainers(before, pod *corev1.Pod) error {
	for _, was := range before.Status.ContainerStatuses {
		for _, is := range pod.Status.ContainerStatuses {
			if is.Name == was.Name && (is.ContainerID != was.ContainerID || is.RestartCount != was.RestartCount) {
				return fmt.Errorf("container %s was %s with %d restarts, and is %s with %d restarts",
					is.Name, was.ContainerID, was.RestartCount, is.ContainerID, is.RestartCount)
			}
		}
	}
	return nil
}

func checkGracefulDelete(ctx context.Context, s *Scope) error {
	return s.deleteRunning(ctx, 10, "is marked as terminating, and then gone", Terminating, Gone)
}

func checkForceDelete(ctx context.Context, s *Scope) error {
	return s.deleteRunning(ctx, 0, "is gone", Gone)
}

func (s *Scope) deleteRunning(ctx context.Context, graceSeconds int64, what string, conditions ...PodCondition) error {
	pod, err := s.CreateRunning(ctx)
	if err != nil {
		return err
	}
	if err := s.WaitHeld(ctx, pod, true); err != nil {
		return err
	}
	_, err = s.Follow(ctx, pod, what, func(ctx context.Context) error { return s.Delete(ctx, pod, graceSeconds) }, conditions...)
	if err != nil {
		return err
	}
	return s.WaitHeld(ctx, pod, false)
}

func checkDeletePending(ctx context.Context, s *Scope) error {
	name := missingName()
	pod, err := s.Create(ctx, s.WithEnv(FromConfigMap(name, false)))
	if err != nil {
		return err
	}
	if err := s.WaitMentioned(ctx, pod, name); err != nil {
		return err
	}
	_, err = s.Follow(ctx, pod, "is gone", func(ctx context.Context) error { return s.Delete(ctx, pod, 10) }, Gone)
	return err
}

func checkRecreate(ctx context.Context, s *Scope) error {
	first := s.Pod(s.LongRunning("main"))
	chooseName(&first.ObjectMeta)
	second := first.DeepCopy()
	first, err := s.createAnd(ctx, first, "runs", Running)
	if err != nil {
		return err
	}
	if err := s.Delete(ctx, first, 0); err != nil {
		return err
	}
	if second, err = s.createAnd(ctx, second, "runs, under the name of another", Ready); err != nil {
		return err
	}
	if a, b := first.Status.ContainerStatuses, second.Status.ContainerStatuses; len(a) > 0 && len(b) > 0 && a[0].ContainerID == b[0].ContainerID {
		return fmt.Errorf("the container %s of the first pod is that of the second", a[0].ContainerID)
	}
	return nil
}

// MissingKey is the key that is asked for in an object that does not exist.
const MissingKey = "colour"

func missingName() string { return "nodecheck-missing-" + rand.String(10) }

// FromSecret is a variable with what a Secret has under one key.
func FromSecret(name string, optional bool) corev1.EnvVar {
	return corev1.EnvVar{Name: "SECRET_COLOUR", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: name}, Key: MissingKey, Optional: &optional,
	}}}
}

// FromConfigMap is FromSecret for a ConfigMap.
func FromConfigMap(name string, optional bool) corev1.EnvVar {
	return corev1.EnvVar{Name: "CONFIG_COLOUR", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: name}, Key: MissingKey, Optional: &optional,
	}}}
}

// WithEnv is a pod whose one container runs until it is stopped, with an
// environment.
func (s *Scope) WithEnv(env ...corev1.EnvVar) *corev1.Pod {
	pod := s.Pod(s.LongRunning("main"))
	pod.Spec.Containers[0].Env = env
	return pod
}

// WaitMentioned waits until an event on a pod, which is not to start, names an object that it
// lacks.
func (s *Scope) WaitMentioned(ctx context.Context, pod *corev1.Pod, name string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel(nil)
	watching.Go(func() { // ends with ctx
		_, _ = s.follow(ctx, pod, nil, func(pod *corev1.Pod, _ bool) (bool, error) {
			err := noContainerStarted(pod)
			if err != nil {
				cancel(fmt.Errorf("it lacks %s, but %w", name, err))
			}
			return false, err
		})
	})
	return s.FollowEvents(ctx, pod, "an event that names "+name, func(event *corev1.Event) bool {
		return strings.Contains(event.Message, name)
	})
}

func checkMissingSecret(ctx context.Context, s *Scope) error {
	name := missingName()
	return s.RunsOnce(ctx, FromSecret(name, false),
		func(ctx context.Context, pod *corev1.Pod) error { return s.WaitMentioned(ctx, pod, name) },
		func(ctx context.Context) error {
			_, err := s.CreateSecret(ctx, name, map[string]string{MissingKey: "blue"})
			return err
		})
}

func checkMissingConfigMap(ctx context.Context, s *Scope) error {
	name := missingName()
	return s.RunsOnce(ctx, FromConfigMap(name, false),
		func(ctx context.Context, pod *corev1.Pod) error { return s.WaitMentioned(ctx, pod, name) },
		func(ctx context.Context) error {
			_, err := s.CreateConfigMap(ctx, name, map[string]string{MissingKey: "blue"})
			return err
		})
}

// RunsOnce checks that a pod whose environment lacks something waits, that this
// is reported, and that it runs once it is there.
func (s *Scope) RunsOnce(ctx context.Context, env corev1.EnvVar, reported func(context.Context, *corev1.Pod) error, create func(context.Context) error) error {
	pod, err := s.Create(ctx, s.WithEnv(env))
	if err != nil {
		return err
	}
	if err := reported(ctx, pod); err != nil {
		return err
	}
	now, err := s.Client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	s.seen(now)
	if err := notStarted(now); err != nil {
		return fmt.Errorf("the environment is incomplete, but %w", err)
	}
	if err := create(ctx); err != nil {
		return err
	}
	_, err = s.Follow(ctx, pod, "runs, now that what it needs exists", nil, Running)
	return err
}

// notStarted returns an error unless no container of the pod was started.
func notStarted(pod *corev1.Pod) error {
	if pod.Status.Phase != corev1.PodPending {
		return fmt.Errorf("the pod is in phase %s, not %s", pod.Status.Phase, corev1.PodPending)
	}
	return noContainerStarted(pod)
}

func noContainerStarted(pod *corev1.Pod) error {
	for _, c := range pod.Status.ContainerStatuses {
		if c.State.Running != nil || c.State.Terminated != nil || c.LastTerminationState.Terminated != nil {
			return fmt.Errorf("container %s was started: it is %s", c.Name, describeState(c.State))
		}
	}
	return nil
}

func checkOptional(ctx context.Context, s *Scope) error {
	_, err := s.createAnd(ctx, s.WithEnv(FromSecret(missingName(), true), FromConfigMap(missingName(), true)), "runs", Running)
	return err
}

func checkManyPods(ctx context.Context, s *Scope) error {
	const count = 20
	var pods []*corev1.Pod
	for range count {
		pod, err := s.Create(ctx, s.Pod(s.LongRunning("main")))
		if err != nil {
			return err
		}
		pods = append(pods, pod)
	}
	for _, pod := range pods {
		if _, err := s.Follow(ctx, pod, "runs", nil, Running); err != nil {
			return err
		}
	}
	for _, pod := range pods {
		if err := s.Delete(ctx, pod, 10); err != nil {
			return err
		}
	}
	for _, pod := range pods {
		if err := s.waitGone(ctx, pod); err != nil {
			return err
		}
	}
	return s.waitNoneHeld(ctx, pods)
}

// waitNoneHeld waits until the kubelet lists none of the pods.
func (n *Node) waitNoneHeld(ctx context.Context, pods []*corev1.Pod) error {
	for _, pod := range pods {
		if err := n.WaitHeld(ctx, pod, false); err != nil {
			return err
		}
	}
	return nil
}
