package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
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
	log, err := s.provider.GetContainerLogs(stream.Context(), in.GetPod().GetNamespace(), in.GetPod().GetName(), in.GetContainer(), opts)
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
	input          *io.PipeReader
	turn           sync.Mutex // of Send
}

func newAttachIO(stream execStream, start *pb.ExecStart) *attachIO {
	a := &attachIO{tty: start.GetTty(), sizes: make(chan api.TermSize, 1)}
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
	reader, writeEnd := io.Pipe()
	a.input = reader
	if start.GetStdin() {
		a.stdin = reader
	} else {
		_ = reader.Close() // nobody reads
	}
	// It ends with the stream, which ends with the handler.
	go a.receive(stream, writeEnd)
	return a
}

// receive hands on what the client sends.
func (a *attachIO) receive(stream execStream, stdin *io.PipeWriter) {
	defer close(a.sizes)
	for {
		in, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			_ = stdin.Close()
			return
		}
		if err != nil {
			_ = stdin.CloseWithError(wire.FromStatus(err))
			return
		}
		switch request := in.GetRequest().(type) {
		case *pb.ExecRequest_Stdin:
			// One that nobody reads any more is dropped: sizes may follow.
			_, _ = stdin.Write(request.Stdin)
		case *pb.ExecRequest_StdinClosed:
			_ = stdin.Close()
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

// end lets a goroutine go on that waits for its input to be read.
func (a *attachIO) end() { _ = a.input.Close() }

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
