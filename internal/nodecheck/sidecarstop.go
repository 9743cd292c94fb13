package nodecheck

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// stubborn is the script of a container that runs until it is killed, from when it says
// that it runs.
const stubborn = "trap '' TERM; echo runs; while :; do sleep 1; done"

// checkSidecarPreStop deletes a pod whose container has to be killed at the end of the
// grace period. Until then the sidecar's hook has run, and only from then on the
// sidecar is stopped: it has at least two seconds for that. The sidecar's log has the
// time of the hook.
func checkSidecarPreStop(ctx context.Context, s *Scope) error {
	const grace = 15 // in which the hook runs also on a machine that has much else to do
	file := marker()
	pod := s.Pod(s.container("main", stubborn))
	// It starts no process in its two seconds, which on a busy machine may take longer than that.
	sidecar := s.sidecar("sidecar", "trap '{ read at <"+file+"; } 2>/dev/null; echo hook at $at; exit 0' TERM; echo runs; sleep 100000 & wait")
	sidecar.Lifecycle = &corev1.Lifecycle{PreStop: s.hook("date +%s > " + file)}
	pod.Spec.InitContainers = []corev1.Container{sidecar}
	pod, err := s.createAnd(ctx, pod, "runs", Running)
	if err != nil {
		return err
	}
	for _, name := range []string{"sidecar", "main"} {
		err := s.eventuallyLogs(ctx, pod, corev1.PodLogOptions{Container: name}, func(text string) error {
			if text != "runs\n" {
				return fmt.Errorf("the log of container %s is %q, not \"runs\\n\"", name, text)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	var last *corev1.Pod
	log, err := s.logsOnce(ctx, pod, corev1.PodLogOptions{Container: "sidecar", Follow: true}, func(ctx context.Context) (err error) {
		last, err = s.Follow(ctx, pod, "is gone", func(ctx context.Context) error { return s.Delete(ctx, pod, grace) }, Gone)
		return err
	})
	if err != nil {
		return err
	}
	return sidecarStoppedLast(last, log)
}

// sidecarStoppedLast returns what was wrong with the end of a pod of the containers
// "main", which was killed, and "sidecar", with this log.
func sidecarStoppedLast(pod *corev1.Pod, log string) error {
	main, err := terminated(pod, "main")
	if err != nil {
		return err
	}
	sidecar, err := terminated(pod, "sidecar")
	if err != nil {
		return err
	}
	if sidecar.FinishedAt.Before(&main.FinishedAt) {
		return fmt.Errorf("the sidecar was stopped at %v, before the container had ended, at %v: sidecars serve the containers until these have ended", sidecar.FinishedAt, main.FinishedAt)
	}
	_, at, ok := strings.Cut(log, "runs\nhook at ")
	if !ok {
		return fmt.Errorf("the sidecar ended with %d, and its log is %q: it was not stopped by SIGTERM, with at least two seconds to end, once the container had ended", sidecar.ExitCode, log)
	}
	seconds, err := strconv.ParseInt(strings.TrimSpace(at), 10, 64)
	if err != nil {
		return fmt.Errorf("the sidecar was stopped before its preStop hook had run: its log is %q", log)
	}
	if hook := time.Unix(seconds, 0); hook.After(main.FinishedAt.Time) {
		return fmt.Errorf("the sidecar's preStop hook ran at %v, after the container had ended, at %v: the hooks of all containers run when the deletion begins, only the stop has an order", hook, main.FinishedAt)
	}
	return nil
}
