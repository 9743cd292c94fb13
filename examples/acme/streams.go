package main

import (
	"context"
	"errors"
	"io"
	"time"

	"k8s.io/utils/exec"

	"github.com/virtual-kubelet/virtual-kubelet/node/api"
)

// GetContainerLogs is what kubectl logs shows. NewLogReader applies opts, and asks again each
// second while the log is followed.
func (p *Provider) GetContainerLogs(ctx context.Context, namespace, name, container string, opts api.ContainerLogOpts) (io.ReadCloser, error) {
	if opts.Previous { // the service starts nothing again
		return nil, errors.ErrUnsupported
	}
	pod, err := p.GetPod(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	if _, _, _, err := p.service.Log(ctx, string(pod.UID), container); err != nil {
		return nil, classify(err)
	}
	return api.NewLogReader(ctx, opts, func(ctx context.Context, _ time.Time) ([]api.LogLine, error) {
		text, at, ended, err := p.service.Log(ctx, string(pod.UID), container)
		switch {
		case errors.Is(err, ErrNoTask): // it was stopped
			return nil, io.EOF
		case err == nil && ended: // by itself: these are its last lines
			return []api.LogLine{{Time: at, Text: text}}, io.EOF
		}
		return []api.LogLine{{Time: at, Text: text}}, classify(err)
	}), nil
}

// RunInContainer is what kubectl exec does.
func (p *Provider) RunInContainer(ctx context.Context, namespace, name, container string, command []string, attach api.AttachIO) error {
	if attach.TTY() {
		return errors.ErrUnsupported
	}
	pod, err := p.GetPod(ctx, namespace, name)
	if err != nil {
		return err
	}
	code, err := p.service.Exec(ctx, string(pod.UID), container, command, attach.Stdin(), attach.Stdout(), attach.Stderr())
	if err == nil && code != 0 {
		return exec.CodeExitError{Err: errors.New("the command has failed"), Code: code}
	}
	return classify(err)
}
