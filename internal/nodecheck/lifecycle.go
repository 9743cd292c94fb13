package nodecheck

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

var initContainerChecks = []Check{
	{Name: "init-order", Title: "init containers run one after the other, before the others", Needs: []Capability{InitContainers, Commands}, run: checkInitOrder},
	{Name: "init-failure", Title: "an init container that fails fails a pod with restartPolicy Never", Needs: []Capability{InitContainers, Commands}, run: checkInitFailure},
}

func checkInitOrder(ctx context.Context, s *Scope) error {
	pod := s.job("true")
	pod.Spec.InitContainers = []corev1.Container{s.container("first", "sleep 1"), s.container("second", "sleep 1")}
	pod, err := s.proves(ctx, pod)
	if err != nil {
		return err
	}
	var before *corev1.ContainerStateTerminated
	for _, name := range []string{"first", "second", "main"} {
		now, err := terminated(pod, name)
		if err != nil {
			return err
		}
		if before != nil && now.StartedAt.Before(&before.FinishedAt) {
			return fmt.Errorf("container %s started at %v, before the one before it had ended at %v", name, now.StartedAt, before.FinishedAt)
		}
		before = now
	}
	return nil
}

func checkInitFailure(ctx context.Context, s *Scope) error {
	pod := s.job("exit 0")
	pod.Spec.InitContainers = []corev1.Container{s.container("first", "exit 3"), s.container("second", "exit 0")}
	pod, err := s.createAnd(ctx, pod, "fails", ends(corev1.PodFailed))
	if err != nil {
		return err
	}
	first, err := terminated(pod, "first")
	if err != nil {
		return err
	}
	if first.ExitCode != 3 {
		return fmt.Errorf("the init container ended with %d, not 3", first.ExitCode)
	}
	for _, c := range append(pod.Status.InitContainerStatuses[1:], pod.Status.ContainerStatuses...) {
		if c.ContainerID != "" || c.State.Running != nil {
			return fmt.Errorf("container %s was started though an init container before it has failed: it is %s", c.Name, describeState(c.State))
		}
	}
	return nil
}

var sidecarChecks = []Check{
	{Name: "sidecar-order", Title: "a sidecar starts before the containers, and ends after them", Needs: []Capability{Sidecars, Commands}, run: checkSidecarOrder},
	{Name: "sidecar-restart", Title: "a sidecar that ends is started again, also in a pod with restartPolicy Never", Needs: []Capability{Sidecars, Commands}, run: checkSidecarRestart},
	{Name: "sidecar-pre-stop", Title: "a sidecar's preStop hook runs within the grace period of a pod whose container takes all of it, and the sidecar is stopped last", Needs: []Capability{Sidecars, Hooks, Commands, Logs}, run: checkSidecarPreStop},
}

func (n *Node) sidecar(name, script string) corev1.Container {
	c := n.container(name, script)
	c.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
	return c
}

func checkSidecarOrder(ctx context.Context, s *Scope) error {
	pod := s.job("sleep 1")
	pod.Spec.InitContainers = []corev1.Container{s.sidecar("sidecar", stay), s.container("init", "sleep 1")}
	pod, err := s.proves(ctx, pod)
	if err != nil {
		return err
	}
	sidecar, err := terminated(pod, "sidecar")
	if err != nil {
		return err
	}
	initial, err := terminated(pod, "init")
	if err != nil {
		return err
	}
	main, err := terminated(pod, "main")
	if err != nil {
		return err
	}
	switch {
	case initial.StartedAt.Before(&sidecar.StartedAt):
		return fmt.Errorf("the sidecar started at %v, after the init container behind it, at %v", sidecar.StartedAt, initial.StartedAt)
	case main.StartedAt.Before(&initial.FinishedAt):
		return fmt.Errorf("the container started at %v, before the init container had ended at %v", main.StartedAt, initial.FinishedAt)
	case sidecar.FinishedAt.Before(&main.FinishedAt):
		return fmt.Errorf("the sidecar ended at %v, before the container, at %v", sidecar.FinishedAt, main.FinishedAt)
	}
	return nil
}

func checkSidecarRestart(ctx context.Context, s *Scope) error {
	pod := s.job(stay)
	pod.Spec.InitContainers = []corev1.Container{s.sidecar("sidecar", "sleep 1; exit 1")}
	_, err := s.createAnd(ctx, pod, "has restarted its sidecar", exists(func(pod *corev1.Pod) bool {
		list := pod.Status.InitContainerStatuses
		return len(list) == 1 && list[0].RestartCount > 0
	}))
	return err
}

var restartChecks = []Check{
	{Name: "restart-always", Title: "a container that has ended is started again", Needs: []Capability{Restarts, Commands}, run: checkRestartAlways},
	{Name: "restart-on-failure", Title: "with restartPolicy OnFailure a container is started again until it succeeds", Needs: []Capability{Restarts, Commands}, run: checkRestartOnFailure},
}

// restarted is met by a pod whose one container has been restarted, and had ended
// with the given exit code.
func restarted(code int32) PodCondition {
	return func(pod *corev1.Pod, deleted bool) (bool, error) {
		if deleted {
			return false, errDeleted
		}
		list := pod.Status.ContainerStatuses
		if len(list) != 1 || list[0].RestartCount == 0 {
			if ended(pod) {
				return false, fmt.Errorf("it has ended as %s", pod.Status.Phase)
			}
			return false, nil
		}
		last := list[0].LastTerminationState.Terminated
		if last == nil {
			return false, errors.New("its container was restarted, but has no last state")
		}
		if last.ExitCode != code {
			return false, fmt.Errorf("its container ended with %d before it was restarted, not with %d", last.ExitCode, code)
		}
		return true, nil
	}
}

func checkRestartAlways(ctx context.Context, s *Scope) error {
	pod, err := s.createAnd(ctx, s.Pod(s.container("main", "sleep 1; exit 0")), "is restarted", restarted(0))
	if err != nil {
		return err
	}
	if pod.Status.Phase != corev1.PodRunning {
		return fmt.Errorf("a pod that is restarted is in phase %s", pod.Status.Phase)
	}
	return nil
}

// checkRestartOnFailure has a container that fails, and one that succeeds.
func checkRestartOnFailure(ctx context.Context, s *Scope) error {
	failing := s.job("exit 1")
	failing.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
	if _, err := s.createAnd(ctx, failing, "is restarted", restarted(1)); err != nil {
		return err
	}
	good := s.job("exit 0")
	good.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
	pod, err := s.succeeds(ctx, good)
	if err != nil {
		return err
	}
	if count := pod.Status.ContainerStatuses[0].RestartCount; count != 0 {
		return fmt.Errorf("a container that succeeded was restarted %d times", count)
	}
	return nil
}

var deadlineChecks = []Check{
	{Name: "deadline", Title: "a pod that outlives its activeDeadlineSeconds is Failed with DeadlineExceeded", Needs: []Capability{Deadlines}, run: checkDeadline},
}

func checkDeadline(ctx context.Context, s *Scope) error {
	pod := s.Pod(s.LongRunning("main"))
	pod.Spec.ActiveDeadlineSeconds = ptr.To[int64](3)
	pod, err := s.createAnd(ctx, pod, "fails", ends(corev1.PodFailed))
	if err != nil {
		return err
	}
	if pod.Status.Reason != "DeadlineExceeded" {
		return fmt.Errorf("the reason is %q, not DeadlineExceeded", pod.Status.Reason)
	}
	return nil
}

var probeChecks = []Check{
	{Name: "readiness-probe", Title: "a pod is Ready while its readiness probe succeeds, and only then", Needs: []Capability{Probes, Commands}, run: checkReadinessProbe},
	{Name: "liveness-probe", Title: "a container whose liveness probe fails is restarted, and an event says so", Needs: []Capability{Probes, Commands}, run: checkLivenessProbe},
	{Name: "startup-probe", Title: "a container counts as started once its startup probe succeeds", Needs: []Capability{Probes, Commands}, run: checkStartupProbe},
}

// probe runs a script once a second.
func (n *Node) probe(script string, failures int32) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler:     corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: n.inShell(script)}},
		PeriodSeconds:    1,
		FailureThreshold: failures,
		TimeoutSeconds:   10, // a busy machine is no failure
	}
}

// marker is a file by which a container and its probes and hooks speak: there is
// no other of its name, also where containers share /tmp.
func marker() string { return "/tmp/" + missingName() }

func checkReadinessProbe(ctx context.Context, s *Scope) error {
	file := marker()
	pod := s.Pod(s.container("main", "trap 'exit 0' TERM; while sleep 3; do touch "+file+"; sleep 3; rm "+file+"; done"))
	pod.Spec.Containers[0].ReadinessProbe = s.probe("test -e "+file, 1)
	isReady := func(wanted corev1.ConditionStatus) PodCondition {
		return func(pod *corev1.Pod, deleted bool) (bool, error) {
			met, err := Running(pod, deleted)
			return met && conditionStatus(pod, corev1.PodReady) == wanted, err
		}
	}
	_, err := s.createAnd(ctx, pod, "runs, is ready, and then no longer ready", isReady(corev1.ConditionFalse), isReady(corev1.ConditionTrue), isReady(corev1.ConditionFalse))
	return err
}

func checkLivenessProbe(ctx context.Context, s *Scope) error {
	file := marker()
	pod := s.Pod(s.container("main", "trap 'exit 0' TERM; touch "+file+"; sleep 3; rm "+file+"; sleep 100000 & wait"))
	pod.Spec.Containers[0].LivenessProbe = s.probe("test -e "+file, 2)
	pod.Spec.Containers[0].LivenessProbe.InitialDelaySeconds = 1
	pod, err := s.createAnd(ctx, pod, "is restarted", exists(func(pod *corev1.Pod) bool {
		list := pod.Status.ContainerStatuses
		return len(list) == 1 && list[0].RestartCount > 0
	}))
	if err != nil {
		return err
	}
	return s.FollowEvents(ctx, pod, "an event Unhealthy", func(event *corev1.Event) bool { return event.Reason == "Unhealthy" })
}

func checkStartupProbe(ctx context.Context, s *Scope) error {
	file := marker()
	pod := s.Pod(s.container("main", "trap 'exit 0' TERM; sleep 5; touch "+file+"; sleep 100000 & wait"))
	pod.Spec.Containers[0].StartupProbe = s.probe("test -e "+file, 60)
	waited := false
	pod, err := s.createAnd(ctx, pod, "runs, and has then started and is ready", exists(func(pod *corev1.Pod) bool {
		list := pod.Status.ContainerStatuses
		if len(list) != 1 || list[0].State.Running == nil {
			return false
		}
		started, ready := list[0].Started != nil && *list[0].Started, conditionStatus(pod, corev1.PodReady) == corev1.ConditionTrue
		waited = waited || !started && !ready
		return started && ready
	}))
	if err != nil || waited {
		return err
	}
	return readySince(pod, 5*time.Second)
}

// readySince checks by the times in its status that a pod has become ready no earlier than so long after the
// start of its container: a busy node may show only the last of several statuses.
func readySince(pod *corev1.Pod, start time.Duration) error {
	for _, c := range pod.Status.Conditions {
		took := c.LastTransitionTime.Sub(pod.Status.ContainerStatuses[0].State.Running.StartedAt.Time)
		if c.Type == corev1.PodReady && took < start-time.Second { // times in a status have whole seconds
			return fmt.Errorf("the pod was ready %v after the start of its container, whose startup probe fails for %v", took, start)
		}
	}
	return nil
}

var hookChecks = []Check{
	{Name: "post-start", Title: "a postStart hook runs when its container has started", Needs: []Capability{Hooks, Commands}, run: checkPostStart},
	{Name: "pre-stop", Title: "a preStop hook runs before its container is stopped", Needs: []Capability{Hooks, Commands, Logs}, run: checkPreStop},
}

func (n *Node) hook(script string) *corev1.LifecycleHandler {
	return &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: n.inShell(script)}}
}

func checkPostStart(ctx context.Context, s *Scope) error {
	file := marker()
	pod := s.job("until [ -e " + file + " ]; do sleep 0.1; done")
	pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: s.hook("touch " + file)}
	_, err := s.proves(ctx, pod)
	return err
}

// checkPreStop reads the log of a container that prints, when it is stopped,
// whether the hook has run.
func checkPreStop(ctx context.Context, s *Scope) error {
	file := marker()
	pod := s.Pod(s.container("main", "trap 'if [ -e "+file+" ]; then echo after the hook; else echo without a hook; fi; exit 0' TERM; echo runs; sleep 100000 & wait"))
	pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: s.hook("touch " + file)}
	pod, err := s.createSaying(ctx, pod, "runs\n")
	if err != nil {
		return err
	}
	text, err := s.logsOnce(ctx, pod, corev1.PodLogOptions{Follow: true}, func(ctx context.Context) error { return s.Delete(ctx, pod, 30) })
	if err != nil {
		return err
	}
	if !strings.HasSuffix(text, "\nafter the hook\n") {
		return fmt.Errorf("the log of a container that was stopped is %q", text)
	}
	return nil
}

var terminationMessageChecks = []Check{
	{Name: "termination-message", Title: "what a container leaves in its termination message file is in its status", Needs: []Capability{TerminationMessages, Commands}, run: checkTerminationMessage},
	{Name: "termination-message-from-log", Title: "the end of the log of a container that fails can be its message", Needs: []Capability{TerminationMessages, Commands}, run: checkTerminationMessageFromLog},
}

func checkTerminationMessage(ctx context.Context, s *Scope) error {
	return s.leaves(ctx, "echo -n last words > /dev/termination-log; exit 0", corev1.TerminationMessageReadFile, corev1.PodSucceeded, "last words")
}

func checkTerminationMessageFromLog(ctx context.Context, s *Scope) error {
	return s.leaves(ctx, "echo last words; exit 1", corev1.TerminationMessageFallbackToLogsOnError, corev1.PodFailed, "last words\n")
}

func (s *Scope) leaves(ctx context.Context, script string, policy corev1.TerminationMessagePolicy, phase corev1.PodPhase, wanted string) error {
	pod := s.job(script)
	pod.Spec.Containers[0].TerminationMessagePolicy = policy
	pod, err := s.createAnd(ctx, pod, "ends", ends(phase))
	if err != nil {
		return err
	}
	t, err := terminated(pod, "main")
	if err != nil {
		return err
	}
	if t.Message != wanted {
		return fmt.Errorf("the container's message is %q, not %q", t.Message, wanted)
	}
	return nil
}
