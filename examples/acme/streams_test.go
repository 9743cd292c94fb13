package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/exec"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
)

func TestLogs(t *testing.T) {
	p := newTestProvider()
	if err := p.CreatePod(t.Context(), newTestPod("main")); err != nil {
		t.Fatal(err)
	}
	log, err := p.GetContainerLogs(t.Context(), "default", "web", "main", api.ContainerLogOpts{Tail: 1})
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(log); string(text) != "hello from image nginx\n" {
		t.Errorf("the log is %q, %v", text, err)
	}
	if _, err := p.GetContainerLogs(t.Context(), "default", "web", "nobody", api.ContainerLogOpts{}); !errdefs.IsNotFound(err) {
		t.Errorf("of a container that there is not: %v", err)
	}
}

// kubectl logs -f ends with the container, whether the service keeps the task or forgets it.
func TestFollowedLogsEnd(t *testing.T) {
	for name, end := range map[string]func(*Provider) error{
		"by itself": func(p *Provider) error { p.service.end("1", 0); return nil },
		"stopped":   func(p *Provider) error { return p.DeletePod(t.Context(), newTestPod()) },
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			p := newTestProvider()
			if err := p.CreatePod(ctx, newTestPod("main")); err != nil {
				t.Fatal(err)
			}
			log, err := p.GetContainerLogs(ctx, "default", "web", "main", api.ContainerLogOpts{Follow: true})
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			time.AfterFunc(10*time.Second, func() { ended <- end(p) })
			text, err := io.ReadAll(log)
			if string(text) != "hello from image nginx\n" || err != nil {
				t.Errorf("%s: the log is %q, %v", name, text, err)
			}
			select {
			case err := <-ended:
				if err != nil {
					t.Error(err)
				}
			default:
				t.Errorf("%s: the log has ended before the container", name)
			}
		})
	}
}

func TestExec(t *testing.T) {
	p := newTestProvider()
	if err := p.CreatePod(t.Context(), newTestPod("main")); err != nil {
		t.Fatal(err)
	}
	session := &session{in: strings.NewReader("in")}
	err := p.RunInContainer(t.Context(), "default", "web", "main", []string{"sh", "-c", `cat; echo " $COLOUR"; exit 3`}, session)
	var exit exec.ExitError
	if !errors.As(err, &exit) || exit.ExitStatus() != 3 || session.out.String() != "in blue\n" {
		t.Errorf("it printed %q and ended with %v", &session.out, err)
	}
}

// session is a client of kubectl exec.
type session struct {
	in  io.Reader
	out bytes.Buffer
}

func (s *session) Stdin() io.Reader            { return s.in }
func (s *session) Stdout() io.WriteCloser      { return s }
func (s *session) Stderr() io.WriteCloser      { return s }
func (*session) TTY() bool                     { return false }
func (*session) Resize() <-chan api.TermSize   { return nil }
func (s *session) Write(p []byte) (int, error) { return s.out.Write(p) }
func (*session) Close() error                  { return nil }
