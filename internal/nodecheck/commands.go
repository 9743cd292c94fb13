package nodecheck

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/virtual-kubelet/virtual-kubelet/internal/podstatus"
)

var commandChecks = []Check{
	{Name: "exit-zero", Title: "a pod whose command ends with 0 is Succeeded", Needs: []Capability{Commands}, run: checkExitZero},
	{Name: "exit-code", Title: "a pod whose command ends with 3 is Failed, with the exit code and reason Error", Needs: []Capability{Commands}, run: checkExitCode},
	{Name: "arguments", Title: "a command gets its arguments, with $(VAR) expanded", Needs: []Capability{Commands}, run: checkArguments},
	{Name: "environment", Title: "a command gets its environment, with references and $(VAR) resolved", Needs: []Capability{Commands}, run: checkEnvironment},
	{Name: "downward-env", Title: "a command gets what the pod and its node are by its environment", Needs: []Capability{Commands}, run: checkDownwardEnvironment},
	{Name: "working-directory", Title: "a command runs in its working directory", Needs: []Capability{Commands}, run: checkWorkingDirectory},
	{Name: "stop-signal", Title: "a command that ends by itself on SIGTERM is waited for, and no longer", Needs: []Capability{Commands, Logs}, run: checkStopSignal},
}

// succeeds creates a pod and waits until it has succeeded.
func (s *Scope) succeeds(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	return s.createAnd(ctx, pod, "succeeds", ends(corev1.PodSucceeded))
}

// proven is the exit code of a script that has come to its end: one that nobody
// has by chance, or by not running the script at all.
const proven = 42

// proves creates a pod, whose containers run scripts, and waits until all of them
// have come to their ends.
func (s *Scope) proves(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	for i := range pod.Spec.Containers {
		command := pod.Spec.Containers[i].Command
		command[len(command)-1] += fmt.Sprintf("\nexit %d", proven)
	}
	pod, err := s.createAnd(ctx, pod, "ends", exists(ended))
	if err != nil {
		return nil, err
	}
	return pod, haveProven(pod)
}

// haveProven returns an error unless the containers of a pod have come to the
// ends of their scripts.
func haveProven(pod *corev1.Pod) error {
	for _, c := range pod.Spec.Containers {
		t, err := terminated(pod, c.Name)
		if err != nil {
			return err
		}
		if t.ExitCode != proven {
			return fmt.Errorf("container %s did not come to the end of its script: it has ended with %d, not %d: %s", c.Name, t.ExitCode, proven, strings.TrimSpace(t.Message))
		}
	}
	return nil
}

// terminated returns how a container has ended.
func terminated(pod *corev1.Pod, container string) (*corev1.ContainerStateTerminated, error) {
	for c := range podstatus.Containers(&pod.Status) {
		if c.Name != container {
			continue
		}
		if c.State.Terminated == nil {
			return nil, fmt.Errorf("container %s of pod %s, in phase %s, is %s", container, pod.Name, pod.Status.Phase, describeState(c.State))
		}
		return c.State.Terminated, nil
	}
	return nil, fmt.Errorf("container %s of pod %s has no status", container, pod.Name)
}

// checkExitZero and checkExitCode have the container run for a moment, since some
// runtimes take the time of a start after it: else the end may be before.
func checkExitZero(ctx context.Context, s *Scope) error {
	pod, err := s.succeeds(ctx, s.job("sleep 1; exit 0"))
	if err != nil {
		return lacking{err}
	}
	return endedWith(pod, 0, "Completed")
}

func checkExitCode(ctx context.Context, s *Scope) error {
	pod, err := s.createAnd(ctx, s.job("sleep 1; exit 3"), "fails", ends(corev1.PodFailed))
	if err != nil {
		return err
	}
	return endedWith(pod, 3, "Error")
}

func endedWith(pod *corev1.Pod, code int32, reason string) error {
	t, err := terminated(pod, "main")
	if err != nil {
		return err
	}
	var problems []error
	if t.ExitCode != code || t.Reason != reason {
		problems = append(problems, fmt.Errorf("the container ended with code %d and reason %q, not %d and %q", t.ExitCode, t.Reason, code, reason))
	}
	if t.StartedAt.IsZero() || t.FinishedAt.Before(&t.StartedAt) {
		problems = append(problems, fmt.Errorf("the container started at %v and finished at %v", t.StartedAt, t.FinishedAt))
	}
	return errors.Join(problems...)
}

// expect is a script that fails, and says why, unless an expression of the shell
// has a value.
func expect(expression, value string) string {
	return fmt.Sprintf("got=%s\nif [ \"$got\" != %s ]; then echo %s is \"$got\"; exit 1; fi\n", expression, quote(value), quote(expression))
}

// quote makes one word of the shell.
func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

func checkArguments(ctx context.Context, s *Scope) error {
	pod := s.job(expect(`"$1"`, "one word") + expect(`"$2"`, "a blue sky") + expect(`"$3"`, "$(NONE)") + expect(`"$4"`, "$$(COLOUR)"))
	main := &pod.Spec.Containers[0]
	main.Env = []corev1.EnvVar{{Name: "COLOUR", Value: "blue"}}
	main.Args = []string{"script", "one word", "a $(COLOUR) sky", "$(NONE)", "$$(COLOUR)"}
	_, err := s.proves(ctx, pod)
	return err
}

func checkEnvironment(ctx context.Context, s *Scope) error {
	configMap, err := s.CreateConfigMap(ctx, "", map[string]string{"colour": "blue", "SIZE": "big"})
	if err != nil {
		return err
	}
	secret, err := s.CreateSecret(ctx, "", map[string]string{"colour": "red", "WORD": "xyzzy"})
	if err != nil {
		return err
	}
	pod := s.job(expect(`"$CONFIG_COLOUR"`, "blue") + expect(`"$SECRET_COLOUR"`, "red") + expect(`"$MY_SIZE"`, "big") +
		expect(`"$WORD"`, "xyzzy") + expect(`"$BOTH"`, "blue and red") + expect(`"$EMPTY"`, ""))
	main := &pod.Spec.Containers[0]
	main.Env = []corev1.EnvVar{
		FromConfigMap(configMap.Name, false), FromSecret(secret.Name, false),
		{Name: "BOTH", Value: "$(CONFIG_COLOUR) and $(SECRET_COLOUR)"}, {Name: "EMPTY", Value: ""},
	}
	main.EnvFrom = []corev1.EnvFromSource{
		{Prefix: "MY_", ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: configMap.Name}}},
		{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: secret.Name}}},
	}
	_, err = s.proves(ctx, pod)
	return err
}

func checkDownwardEnvironment(ctx context.Context, s *Scope) error {
	field := func(name, path string) corev1.EnvVar {
		return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
	}
	pod := s.job(expect(`"$NAMESPACE"`, s.Namespace) + expect(`"$NODE"`, s.Name) + expect(`"$COLOUR"`, "blue") + expect(`"$CPU"`, "500") +
		`if [ -z "$NAME" ] || [ -z "$IP" ] || [ -z "$HOST_IP" ] || [ -z "$ID" ]; then echo name "$NAME", IP "$IP", host IP "$HOST_IP", UID "$ID"; exit 1; fi`)
	pod.Annotations = map[string]string{"colour": "blue"}
	main := &pod.Spec.Containers[0]
	main.Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m"), corev1.ResourceMemory: resource.MustParse("64Mi")}
	main.Env = []corev1.EnvVar{
		field("NAME", "metadata.name"), field("NAMESPACE", "metadata.namespace"), field("ID", "metadata.uid"), field("NODE", "spec.nodeName"),
		field("IP", "status.podIP"), field("HOST_IP", "status.hostIP"), field("COLOUR", "metadata.annotations['colour']"),
		{Name: "CPU", ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.cpu", Divisor: resource.MustParse("1m")}}},
	}
	_, err := s.proves(ctx, pod)
	return err
}

func checkWorkingDirectory(ctx context.Context, s *Scope) error {
	pod := s.job(expect(`"$(pwd)"`, "/tmp"))
	pod.Spec.Containers[0].WorkingDir = "/tmp"
	_, err := s.proves(ctx, pod)
	return err
}

// checkStopSignal gives the pod more time than the check has. Its log says when it
// waits for the signal, which comes to nothing before: the first process of a
// container does not get those that it has not asked for.
func checkStopSignal(ctx context.Context, s *Scope) error {
	pod, err := s.createSaying(ctx, s.Pod(s.container("main", "trap 'exit 0' TERM; echo waits; sleep 100000 & wait")), "waits\n")
	if err != nil {
		return err
	}
	_, err = s.Follow(ctx, pod, "is gone, although it may take an hour", func(ctx context.Context) error { return s.Delete(ctx, pod, 3600) }, Terminating, Gone)
	return err
}
