package kubernetes

import (
	"context"
	"io"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/node/api"
)

// GetContainerLogs implements nodeutil.Provider.
func (p *Provider) GetContainerLogs(ctx context.Context, namespace, podName, containerName string, opts api.ContainerLogOpts) (io.ReadCloser, error) {
	remote, err := p.findCurrent(ctx, namespace, podName)
	if err != nil {
		return nil, err
	}
	options := &corev1.PodLogOptions{Container: containerName, Follow: opts.Follow, Previous: opts.Previous, Timestamps: opts.Timestamps}
	if opts.Tail > 0 {
		options.TailLines = positive(opts.Tail)
	}
	if opts.LimitBytes > 0 {
		options.LimitBytes = positive(opts.LimitBytes)
	}
	if opts.SinceSeconds > 0 {
		options.SinceSeconds = positive(opts.SinceSeconds)
	}
	if !opts.SinceTime.IsZero() {
		options.SinceTime = &metav1.Time{Time: opts.SinceTime}
	}
	return p.remote.CoreV1().Pods(remote.Namespace).GetLogs(remote.Name, options).Stream(ctx)
}

func positive(n int) *int64 {
	value := int64(n)
	return &value
}
