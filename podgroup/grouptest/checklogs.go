package grouptest

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
)

func followedLog(r *run) {
	pod := r.pod("log")
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	r.create(pod)
	r.until("that the pod runs", r.isRunning(pod))
	r.must(r.world.Print(pod.Name, "main", "first"))
	read := func(opts api.ContainerLogOpts) (string, error) {
		stream, err := r.p.GetContainerLogs(r.Context(), pod.Namespace, pod.Name, "main", opts)
		if err != nil {
			return "", err
		}
		defer stream.Close()
		text, err := io.ReadAll(stream)
		return string(text), err
	}
	text, err := read(api.ContainerLogOpts{})
	if err != nil || !strings.HasSuffix(text, "first\n") {
		r.Errorf("the log is %q, error %v", text, err)
	}
	if text, err := read(api.ContainerLogOpts{Tail: 1}); err != nil || text != "first\n" {
		r.Errorf("the last line of the log is %q, error %v", text, err)
	}
	if text, err := read(api.ContainerLogOpts{Previous: true}); !errdefs.IsInvalidInput(err) {
		r.Errorf("the log of a run that was not is %q, error %v", text, err)
	}
	var followed string
	var wg sync.WaitGroup
	wg.Go(func() { followed, err = read(api.ContainerLogOpts{Follow: true}) })
	for _, line := range []string{"second", "third"} {
		time.Sleep(5 * time.Second)
		r.must(r.world.Print(pod.Name, "main", line))
	}
	r.must(r.world.Exit(pod.Name, "main", 0))
	wg.Wait() // it ends with the container
	if err != nil || !strings.HasSuffix(followed, "first\nsecond\nthird\n") || strings.Count(followed, "second") != 1 {
		r.Errorf("the log that was followed is %q, error %v", followed, err)
	}
	ctx, cancel := context.WithCancel(r.Context())
	cancel()
	if _, err := r.p.GetContainerLogs(ctx, pod.Namespace, "nobody", "main", api.ContainerLogOpts{}); err == nil {
		r.Error("a pod that does not exist has a log")
	}
	if _, err := r.p.GetContainerLogs(r.Context(), pod.Namespace, pod.Name, "nobody", api.ContainerLogOpts{}); !errdefs.IsNotFound(err) && !errors.Is(err, context.Canceled) {
		r.Errorf("a container that does not exist has a log, error %v", err)
	}
}
