package nodecheck

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/remotecommand"
	utilexec "k8s.io/client-go/util/exec"
)

var execChecks = []Check{
	{Name: "exec-output", Title: "what a command prints arrives, its errors apart", Needs: []Capability{Exec}, run: checkExecOutput},
	{Name: "exec-input", Title: "a command reads what the client sends, to its end", Needs: []Capability{Exec}, run: checkExecInput},
	{Name: "exec-exit-code", Title: "the exit code of a command arrives", Needs: []Capability{Exec}, run: checkExecExitCode},
	{Name: "exec-terminal", Title: "a command can have a terminal", Needs: []Capability{Exec}, run: checkExecTerminal},
	{Name: "exec-unknown-container", Title: "a command in a container that there is not is an error that says so", Needs: []Capability{Exec}, run: checkExecUnknown},
	{Name: "exec-environment", Title: "a command has the environment of its container", Needs: []Capability{Exec, Commands}, run: checkExecEnvironment},
}

// inShell is a command that runs a script.
func (n *Node) inShell(script string) []string {
	if len(n.Shell) == 0 {
		return []string{"sh", "-c", script}
	}
	return append(n.Shell[:len(n.Shell):len(n.Shell)], script)
}

func checkExecOutput(ctx context.Context, s *Scope) error {
	pod, err := s.CreateRunning(ctx)
	if err != nil {
		return err
	}
	out, err := s.exec(ctx, pod, "main", nil, false, s.inShell("echo out; echo err >&2")...)
	if err != nil {
		return lacking{err}
	}
	if out.stdout != "out\n" || out.stderr != "err\n" {
		return fmt.Errorf("the command printed %q, and %q as errors", out.stdout, out.stderr)
	}
	return nil
}

func checkExecInput(ctx context.Context, s *Scope) error {
	pod, err := s.CreateRunning(ctx)
	if err != nil {
		return err
	}
	sent := strings.Repeat("0123456789abcde\n", 16<<10)
	out, err := s.exec(ctx, pod, "main", strings.NewReader(sent), false, "cat")
	if err != nil {
		return err
	}
	if out.stdout != sent {
		return fmt.Errorf("of %d bytes, cat returned %d, or others", len(sent), len(out.stdout))
	}
	return nil
}

func checkExecExitCode(ctx context.Context, s *Scope) error {
	pod, err := s.CreateRunning(ctx)
	if err != nil {
		return err
	}
	_, err = s.exec(ctx, pod, "main", nil, false, s.inShell("exit 3")...)
	var exit utilexec.CodeExitError
	if !errors.As(err, &exit) || exit.Code != 3 {
		if err == nil {
			return errors.New("a command that ends with 3 seems to have ended with 0")
		}
		return fmt.Errorf("a command that ends with 3 seems to have ended otherwise: %w", err)
	}
	return nil
}

// checkExecTerminal looks at what a terminal makes of the end of a line.
func checkExecTerminal(ctx context.Context, s *Scope) error {
	pod, err := s.CreateRunning(ctx)
	if err != nil {
		return err
	}
	out, err := s.exec(ctx, pod, "main", nil, true, s.inShell("echo out; echo err >&2")...)
	if err != nil {
		return err
	}
	if out.stdout != "out\r\nerr\r\n" {
		return fmt.Errorf("on a terminal the command printed %q", out.stdout)
	}
	return nil
}

// checkExecUnknown asks the API server, and the kubelet, which the API server
// would not ask.
func checkExecUnknown(ctx context.Context, s *Scope) error {
	pod, err := s.CreateRunning(ctx)
	if err != nil {
		return err
	}
	_, err = s.exec(ctx, pod, unknownContainer, nil, false, "true")
	if err := refusal(err); err != nil {
		return fmt.Errorf("asked for a command in a container that there is not, the API server answers: %w", err)
	}
	err = s.stream(ctx, s.execOnKubelet(pod, unknownContainer, "true"), remotecommand.StreamOptions{Stdout: new(strings.Builder)})
	if err := refusal(err); err != nil {
		return fmt.Errorf("asked for a command in a container that there is not, the kubelet answers: %w", err)
	}
	return nil
}

func (n *Node) execOnKubelet(pod *corev1.Pod, container, command string) *url.URL {
	address := n.Client.CoreV1().RESTClient().Post().AbsPath(n.proxyPath("/exec/" + pod.Namespace + "/" + pod.Name + "/" + container)).URL()
	address.RawQuery = url.Values{"command": {command}, "output": {"1"}}.Encode()
	return address
}

func checkExecEnvironment(ctx context.Context, s *Scope) error {
	pod := s.WithEnv(corev1.EnvVar{Name: "COLOUR", Value: "blue"})
	pod, err := s.createAnd(ctx, pod, "runs", Running)
	if err != nil {
		return err
	}
	out, err := s.exec(ctx, pod, "main", nil, false, s.inShell(`echo "$COLOUR"`)...)
	if err != nil {
		return err
	}
	if out.stdout != "blue\n" {
		return fmt.Errorf("the command has COLOUR=%q", out.stdout)
	}
	return nil
}
