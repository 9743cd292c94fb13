package mock

import (
	"context"
	"io"
	"sync"

	"github.com/virtual-kubelet/virtual-kubelet/node/api"
)

// AttachToContainer prints the container's log, follows it, and echoes what
// comes from stdin. It ends with stdin, if the client has one, or with the run
// of the container.
func (p *Provider) AttachToContainer(ctx context.Context, namespace, podName, containerName string, attach api.AttachIO) error {
	s, err := p.session(namespace, podName, containerName)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	logs, err := p.GetContainerLogs(ctx, namespace, podName, s.container, api.ContainerLogOpts{Follow: true})
	if err != nil {
		return err
	}
	defer logs.Close()
	out := &sharedWriter{w: io.Discard}
	if w := attach.Stdout(); w != nil {
		out.w = w
	}
	// As with exec, these end with the client's streams.
	ended := make(chan error, 2)
	go func() {
		_, err := io.Copy(out, logs)
		ended <- err
	}()
	if in := attach.Stdin(); in != nil {
		go func() { // ends with the client's stream
			_, err := io.Copy(out, in)
			ended <- err
		}()
	}
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// sharedWriter is a writer for several goroutines.
type sharedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (s *sharedWriter) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.Write(b)
}
