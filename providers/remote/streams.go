package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"google.golang.org/grpc"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/exec"

	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/providers/remote/internal/wire"
	pb "github.com/virtual-kubelet/virtual-kubelet/providers/remote/v1alpha1"
)

// GetContainerLogs implements nodeutil.Provider.
func (p *Provider) GetContainerLogs(ctx context.Context, namespace, podName, container string, opts api.ContainerLogOpts) (io.ReadCloser, error) {
	return p.GetContainerLogStream(ctx, namespace, podName, container, "", opts)
}

// GetContainerLogStream is GetContainerLogs for one of a container's output streams, "Stdout" or
// "Stderr".
func (p *Provider) GetContainerLogStream(ctx context.Context, namespace, podName, container, output string, opts api.ContainerLogOpts) (io.ReadCloser, error) {
	if output != "" && p.Lacks("log-streams") { // it would send both
		return nil, fmt.Errorf("the provider does not keep the streams of logs apart: %w", errors.ErrUnsupported)
	}
	in := &pb.GetLogsRequest{
		Stream: output,
		Pod:    &pb.PodRef{Namespace: namespace, Name: podName}, Container: container,
		TailLines: int64(opts.Tail), LimitBytes: int64(opts.LimitBytes),
		Timestamps: opts.Timestamps, Follow: opts.Follow, Previous: opts.Previous,
	}
	in.SinceSeconds = int64(opts.SinceSeconds)
	if !opts.SinceTime.IsZero() {
		in.SinceUnixNano = opts.SinceTime.UnixNano()
	}
	ctx, cancel := context.WithCancel(ctx)
	stream, err := p.sessions.GetLogs(ctx, in)
	if err != nil {
		cancel()
		return nil, wire.FromStatus(err)
	}
	first, err := stream.Recv() // it says whether there is a log
	if err != nil && !errors.Is(err, io.EOF) {
		cancel()
		return nil, wire.FromStatus(err)
	}
	ended := err
	return &logReader{cancel: cancel, Reader: wire.Reader{Receive: func() ([]byte, error) {
		if ended != nil {
			return nil, ended
		}
		if first != nil {
			data := first.GetData()
			first = nil
			return data, nil
		}
		out, err := stream.Recv()
		return out.GetData(), err
	}}}, nil
}

type logReader struct {
	wire.Reader
	cancel context.CancelFunc
}

// Close implements io.Closer. A Read that waits ends.
func (l *logReader) Close() error {
	l.cancel()
	return nil
}

// RunInContainer implements nodeutil.Provider.
func (p *Provider) RunInContainer(ctx context.Context, namespace, podName, container string, command []string, attach api.AttachIO) error {
	return p.session(ctx, p.sessions.Exec, &pb.ExecStart{Pod: &pb.PodRef{Namespace: namespace, Name: podName}, Container: container, Command: command}, attach)
}

// AttachToContainer implements nodeutil.Provider.
func (p *Provider) AttachToContainer(ctx context.Context, namespace, podName, container string, attach api.AttachIO) error {
	return p.session(ctx, p.sessions.Attach, &pb.ExecStart{Pod: &pb.PodRef{Namespace: namespace, Name: podName}, Container: container}, attach)
}

type openSession = func(context.Context, ...grpc.CallOption) (grpc.BidiStreamingClient[pb.ExecRequest, pb.ExecResponse], error)

func (p *Provider) session(ctx context.Context, open openSession, start *pb.ExecStart, attach api.AttachIO) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := open(ctx)
	if err != nil {
		return wire.FromStatus(err)
	}
	start.Stdin, start.Stdout, start.Stderr, start.Tty = attach.Stdin() != nil, attach.Stdout() != nil, attach.Stderr() != nil, attach.TTY()
	var turn sync.Mutex
	send := func(request *pb.ExecRequest) error {
		turn.Lock()
		defer turn.Unlock()
		return stream.Send(request)
	}
	// An error of Send says only that the stream has ended: Recv says why.
	_ = send(&pb.ExecRequest{Request: &pb.ExecRequest_Start{Start: start}})
	if start.Stdin {
		// It ends with the client's input, which the API's handler ends with the session.
		go func() {
			if sendInput(attach.Stdin(), &turn, stream) != nil {
				cancel() // the client has gone
			}
		}()
	}
	// It ends with ctx, or with the channel, at the end of the session.
	go sendSizes(ctx, attach.Resize(), send)
	return receive(stream, attach)
}

// sendInput sends what the client types, and its end. The error is that of the client.
func sendInput(stdin io.Reader, turn *sync.Mutex, stream grpc.BidiStreamingClient[pb.ExecRequest, pb.ExecResponse]) error {
	var refused bool
	_, err := io.Copy(wire.Writer{Mutex: turn, Send: func(data []byte) error {
		err := stream.Send(&pb.ExecRequest{Request: &pb.ExecRequest_Stdin{Stdin: data}})
		refused = err != nil
		return err
	}}, stdin)
	if refused { // the session has ended
		return nil
	}
	if err == nil {
		turn.Lock()
		defer turn.Unlock()
		_ = stream.Send(&pb.ExecRequest{Request: &pb.ExecRequest_StdinClosed{StdinClosed: true}})
	}
	return err
}

func sendSizes(ctx context.Context, sizes <-chan api.TermSize, send func(*pb.ExecRequest) error) {
	for {
		select {
		case <-ctx.Done():
			return
		case size, ok := <-sizes:
			if !ok || send(&pb.ExecRequest{Request: &pb.ExecRequest_Resize{Resize: &pb.TerminalSize{Width: uint32(size.Width), Height: uint32(size.Height)}}}) != nil {
				return
			}
		}
	}
}

// receive hands the output to the client, and returns how the session ended.
func receive(stream grpc.BidiStreamingClient[pb.ExecRequest, pb.ExecResponse], attach api.AttachIO) error {
	for {
		out, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return errors.New("the provider ended the session without its exit code")
		}
		if err != nil {
			return wire.FromStatus(err)
		}
		var to io.Writer
		var data []byte
		switch response := out.GetResponse().(type) {
		case *pb.ExecResponse_Stdout:
			data = response.Stdout
			if w := attach.Stdout(); w != nil {
				to = w
			}
		case *pb.ExecResponse_Stderr:
			data = response.Stderr
			if w := attach.Stderr(); w != nil {
				to = w
			}
		case *pb.ExecResponse_Exit:
			if code := response.Exit.GetCode(); code != 0 {
				message := wire.Text(response.Exit.GetMessage())
				if message == "" {
					message = fmt.Sprintf("command terminated with exit code %d", code)
				}
				return exec.CodeExitError{Err: errors.New(message), Code: int(code)}
			}
			return nil
		}
		if to == nil { // nobody wants it
			continue
		}
		if _, err := to.Write(data); err != nil {
			return err
		}
	}
}

// PortForward implements nodeutil.Provider.
func (p *Provider) PortForward(ctx context.Context, namespace, podName string, port int32, conn io.ReadWriteCloser) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := p.sessions.PortForward(ctx)
	if err != nil {
		return wire.FromStatus(err)
	}
	// An error of Send says only that the stream has ended: Recv says why.
	_ = stream.Send(&pb.PortForwardRequest{Request: &pb.PortForwardRequest_Start{Start: &pb.PortForwardStart{Pod: &pb.PodRef{Namespace: namespace, Name: podName}, Port: port}}})
	// It ends when conn is closed, below.
	go func() {
		_, _ = io.Copy(wire.Writer{Mutex: new(sync.Mutex), Send: func(data []byte) error {
			return stream.Send(&pb.PortForwardRequest{Request: &pb.PortForwardRequest_Data{Data: data}})
		}}, conn)
		_ = stream.CloseSend()
	}()
	defer conn.Close()
	_, err = io.Copy(conn, &wire.Reader{Receive: func() ([]byte, error) {
		out, err := stream.Recv()
		return out.GetData(), err
	}})
	return err
}

// GetStatsSummary implements nodeutil.Provider.
func (p *Provider) GetStatsSummary(ctx context.Context) (*statsv1alpha1.Summary, error) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.CallTimeout.Duration)
	defer cancel()
	out, err := p.client.GetStats(ctx, &pb.GetStatsRequest{})
	if err != nil {
		return nil, wire.FromStatus(err)
	}
	summary := &statsv1alpha1.Summary{}
	if err := json.Unmarshal(out.GetSummary(), summary); err != nil {
		return nil, fmt.Errorf("the provider sent statistics that cannot be read: %w", err)
	}
	return summary, nil
}

// GetMetricsResource implements nodeutil.Provider.
func (p *Provider) GetMetricsResource(ctx context.Context) ([]*dto.MetricFamily, error) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.CallTimeout.Duration)
	defer cancel()
	out, err := p.client.GetMetrics(ctx, &pb.GetMetricsRequest{})
	if err != nil {
		return nil, wire.FromStatus(err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(out.GetText()))
	if err != nil {
		return nil, fmt.Errorf("the provider sent metrics that cannot be read: %w", err)
	}
	return slices.SortedFunc(maps.Values(families), func(a, b *dto.MetricFamily) int { return bytes.Compare([]byte(a.GetName()), []byte(b.GetName())) }), nil
}
