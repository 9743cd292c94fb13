package nodecheck

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/remotecommand"
)

var attachChecks = []Check{
	{Name: "attach-output", Title: "a client that attaches sees what the container prints", Needs: []Capability{Attach}, run: checkAttachOutput},
	{Name: "attach-input", Title: "a container that has an input reads what the client sends", Needs: []Capability{Attach, Commands}, run: checkAttachInput},
}

// checkAttachOutput takes anything for output, since a container that is not
// really run prints what it likes.
func checkAttachOutput(ctx context.Context, s *Scope) error {
	pod := s.Pod(s.container("main", "trap 'exit 0' TERM; while :; do echo here; sleep 1; done"))
	pod, err := s.createAnd(ctx, pod, "runs", Running)
	if err != nil {
		return err
	}
	return s.attach(ctx, pod, nil, "")
}

func checkAttachInput(ctx context.Context, s *Scope) error {
	pod := s.Pod(s.container("main", "trap 'exit 0' TERM; while read -r line; do echo \"got $line\"; done"))
	pod.Spec.Containers[0].Stdin = true
	pod, err := s.createAnd(ctx, pod, "runs", Running)
	if err != nil {
		return err
	}
	stdin, hangUp := io.Pipe() // stays open
	defer hangUp.Close()
	go func() { _, _ = io.WriteString(hangUp, "hello\n") }() // ends with the pipe
	return s.attach(ctx, pod, stdin, "got hello\n")
}

// attach connects to a container until it has printed something with wanted in
// it.
func (s *Scope) attach(ctx context.Context, pod *corev1.Pod, stdin io.Reader, wanted string) error {
	ctx, cancel := s.patient(ctx)
	defer cancel()
	watching, enough := context.WithCancel(ctx)
	defer enough()
	seen := &watchedOutput{wanted: wanted, enough: enough}
	err := s.stream(watching, s.podURL(pod, "attach", &corev1.PodAttachOptions{
		Container: "main", Stdin: stdin != nil, Stdout: true,
	}), remotecommand.StreamOptions{Stdin: stdin, Stdout: seen})
	switch {
	case seen.satisfied():
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("waiting until the client that has attached sees %q: %w: it has seen %q", wanted, context.Cause(ctx), seen.text())
	case err != nil:
		return err
	}
	return fmt.Errorf("attach ended by itself, after %q", seen.text())
}

// watchedOutput signals when it has something with wanted in it.
type watchedOutput struct {
	wanted string
	enough func()

	mu   sync.Mutex
	data strings.Builder
}

func (w *watchedOutput) Write(p []byte) (int, error) {
	w.mu.Lock()
	w.data.Write(p)
	w.mu.Unlock()
	if w.satisfied() {
		w.enough()
	}
	return len(p), nil
}

func (w *watchedOutput) satisfied() bool {
	text := w.text()
	return text != "" && strings.Contains(text, w.wanted)
}

func (w *watchedOutput) text() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.data.String()
}
