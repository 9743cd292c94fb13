package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/prometheus/common/expfmt"
	"google.golang.org/grpc"
	"k8s.io/utils/exec"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/providers/remote/internal/wire"
	pb "github.com/virtual-kubelet/virtual-kubelet/providers/remote/v1alpha1"
)

// GetLogs implements the protocol.
func (s *Server) GetLogs(in *pb.GetLogsRequest, stream grpc.ServerStreamingServer[pb.GetLogsResponse]) error {
	opts := api.ContainerLogOpts{
		Tail: int(in.GetTailLines()), LimitBytes: int(in.GetLimitBytes()),
		SinceSeconds: int(in.GetSinceSeconds()), Timestamps: in.GetTimestamps(), Follow: in.GetFollow(), Previous: in.GetPrevious(),
	}
	if since := in.GetSinceUnixNano(); since != 0 {
		opts.SinceTime = time.Unix(0, since)
	}
	log, err := s.openLog(stream.Context(), in, opts)
	if err != nil {
		return wire.ToStatus(err)
	}
	// A Read that waits for more ends when the reader is closed.
	stop := context.AfterFunc(stream.Context(), func() { _ = log.Close() })
	defer func() {
		if stop() {
			_ = log.Close()
		}
	}()
	if err := stream.Send(&pb.GetLogsResponse{}); err != nil {
		return err
	}
	_, err = io.Copy(wire.Writer{Mutex: new(sync.Mutex), Send: func(data []byte) error { return stream.Send(&pb.GetLogsResponse{Data: data}) }}, log)
	return wire.ToStatus(err)
}

// logStreamer is what a provider may be that keeps the streams of logs apart.
type logStreamer interface {
	GetContainerLogStream(ctx context.Context, namespace, podName, containerName, stream string, opts api.ContainerLogOpts) (io.ReadCloser, error)
}

func (s *Server) openLog(ctx context.Context, in *pb.GetLogsRequest, opts api.ContainerLogOpts) (io.ReadCloser, error) {
	namespace, name := in.GetPod().GetNamespace(), in.GetPod().GetName()
	switch {
	case in.GetStream() == "":
		return s.provider.GetContainerLogs(ctx, namespace, name, in.GetContainer(), opts)
	case s.logStreams == nil:
		return nil, fmt.Errorf("this provider does not keep the streams of logs apart: %w", errors.ErrUnsupported)
	}
	return s.logStreams.GetContainerLogStream(ctx, namespace, name, in.GetContainer(), in.GetStream(), opts)
}

type execStream = grpc.BidiStreamingServer[pb.ExecRequest, pb.ExecResponse]

// Exec implements the protocol.
func (s *Server) Exec(stream execStream) error {
	return session(stream, func(ctx context.Context, start *pb.ExecStart, attach api.AttachIO) error {
		pod := start.GetPod()
		return s.provider.RunInContainer(ctx, pod.GetNamespace(), pod.GetName(), start.GetContainer(), start.GetCommand(), attach)
	})
}

// Attach implements the protocol.
func (s *Server) Attach(stream execStream) error {
	return session(stream, func(ctx context.Context, start *pb.ExecStart, attach api.AttachIO) error {
		pod := start.GetPod()
		return s.provider.AttachToContainer(ctx, pod.GetNamespace(), pod.GetName(), start.GetContainer(), attach)
	})
}

func session(stream execStream, run func(context.Context, *pb.ExecStart, api.AttachIO) error) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	start := first.GetStart()
	if start == nil {
		return wire.ToStatus(errdefs.InvalidInput("the first message of a session has no start"))
	}
	attach := newAttachIO(stream, start)
	err = run(stream.Context(), start, attach)
	attach.end()
	exit := &pb.Exit{}
	var coded exec.ExitError
	switch {
	case errors.As(err, &coded) && coded.Exited():
		exit.Code = int32(coded.ExitStatus())
	case err != nil:
		return wire.ToStatus(err)
	}
	attach.turn.Lock() // a writer that the provider left behind may be at it
	defer attach.turn.Unlock()
	return stream.Send(&pb.ExecResponse{Response: &pb.ExecResponse_Exit{Exit: exit}})
}

// attachIO are the streams of a session as a provider sees them.
type attachIO struct {
	stdin          io.Reader
	stdout, stderr io.WriteCloser
	tty            bool
	sizes          chan api.TermSize
	input          chan []byte // what was received and is not read yet; closed at its end
	inputErr       error       // set before input is closed: why it has ended so early
	ended          chan struct{}
	turn           sync.Mutex // of Send
}

// unreadInput is how many messages of input are received before they are read: sizes of the
// terminal come in the same stream, and are not to wait for a command that does not read.
const unreadInput = 8

func newAttachIO(stream execStream, start *pb.ExecStart) *attachIO {
	a := &attachIO{tty: start.GetTty(), sizes: make(chan api.TermSize, 1), input: make(chan []byte, unreadInput), ended: make(chan struct{})}
	writer := func(response func(data []byte) *pb.ExecResponse) io.WriteCloser {
		return wire.Writer{Mutex: &a.turn, Send: func(data []byte) error { return stream.Send(response(data)) }}
	}
	if start.GetStdout() {
		a.stdout = writer(func(data []byte) *pb.ExecResponse {
			return &pb.ExecResponse{Response: &pb.ExecResponse_Stdout{Stdout: data}}
		})
	}
	if start.GetStderr() && !a.tty {
		a.stderr = writer(func(data []byte) *pb.ExecResponse {
			return &pb.ExecResponse{Response: &pb.ExecResponse_Stderr{Stderr: data}}
		})
	}
	if start.GetStdin() {
		a.stdin = &wire.Reader{Receive: a.nextInput}
	}
	// It ends with the stream, which ends with the handler.
	go a.receive(stream, start.GetStdin())
	return a
}

// nextInput returns the next message of the client's input.
func (a *attachIO) nextInput() ([]byte, error) {
	select {
	case data, ok := <-a.input:
		switch {
		case ok:
			return data, nil
		case a.inputErr != nil:
			return nil, a.inputErr
		}
		return nil, io.EOF
	case <-a.ended:
		return nil, io.ErrClosedPipe
	}
}

// receive hands on what the client sends. Input that nobody reads is dropped: sizes may follow.
func (a *attachIO) receive(stream execStream, reads bool) {
	defer close(a.sizes)
	closeInput := sync.OnceFunc(func() { close(a.input) })
	defer closeInput()
	for open := reads; ; {
		in, err := stream.Recv()
		if err != nil {
			if open && !errors.Is(err, io.EOF) {
				a.inputErr = err
			}
			return
		}
		switch request := in.GetRequest().(type) {
		case *pb.ExecRequest_Stdin:
			if !open {
				continue
			}
			select {
			case a.input <- request.Stdin:
			case <-a.ended:
			}
		case *pb.ExecRequest_StdinClosed:
			open = false
			closeInput()
		case *pb.ExecRequest_Resize:
			size := api.TermSize{Width: uint16(request.Resize.GetWidth()), Height: uint16(request.Resize.GetHeight())}
			select {
			case <-a.sizes: // nobody took the last one
			default:
			}
			a.sizes <- size
		}
	}
}

// end ends the input.
func (a *attachIO) end() { close(a.ended) }

func (a *attachIO) Stdin() io.Reader            { return a.stdin }
func (a *attachIO) Stdout() io.WriteCloser      { return a.stdout }
func (a *attachIO) Stderr() io.WriteCloser      { return a.stderr }
func (a *attachIO) TTY() bool                   { return a.tty }
func (a *attachIO) Resize() <-chan api.TermSize { return a.sizes }

// PortForward implements the protocol.
func (s *Server) PortForward(stream grpc.BidiStreamingServer[pb.PortForwardRequest, pb.PortForwardResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	start := first.GetStart()
	if start == nil {
		return wire.ToStatus(errdefs.InvalidInput("the first message of a forwarded connection has no start"))
	}
	input, received := io.Pipe()
	// It ends with the stream, which ends with the handler.
	go func() {
		_, err := io.Copy(received, &wire.Reader{Receive: func() ([]byte, error) {
			in, err := stream.Recv()
			return in.GetData(), err
		}})
		_ = received.CloseWithError(err) // nil is the end
	}()
	defer input.Close()
	output := wire.Writer{Mutex: new(sync.Mutex), Send: func(data []byte) error { return stream.Send(&pb.PortForwardResponse{Data: data}) }}
	return wire.ToStatus(s.provider.PortForward(stream.Context(), start.GetPod().GetNamespace(), start.GetPod().GetName(), start.GetPort(), forwarded{input, output}))
}

// forwarded is a forwarded connection. Its Close ends Reads that wait.
type forwarded struct {
	*io.PipeReader
	wire.Writer
}

// Close implements io.Closer.
func (f forwarded) Close() error { return f.PipeReader.Close() }

// GetStats implements the protocol.
func (s *Server) GetStats(ctx context.Context, _ *pb.GetStatsRequest) (*pb.GetStatsResponse, error) {
	summary, err := s.provider.GetStatsSummary(ctx)
	if err != nil {
		return nil, wire.ToStatus(err)
	}
	data, err := json.Marshal(summary)
	return &pb.GetStatsResponse{Summary: data}, wire.ToStatus(err)
}

// GetMetrics implements the protocol.
func (s *Server) GetMetrics(ctx context.Context, _ *pb.GetMetricsRequest) (*pb.GetMetricsResponse, error) {
	families, err := s.provider.GetMetricsResource(ctx)
	if err != nil {
		return nil, wire.ToStatus(err)
	}
	var text bytes.Buffer
	for _, family := range families {
		if _, err := expfmt.MetricFamilyToText(&text, family); err != nil {
			return nil, wire.ToStatus(err)
		}
	}
	return &pb.GetMetricsResponse{Text: text.Bytes()}, nil
}
