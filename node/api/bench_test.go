package api_test

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/client-go/tools/remotecommand"

	"github.com/virtual-kubelet/virtual-kubelet/node/api"
)

const benchmarkBytes = 32 << 20

// zeros is so many bytes of input.
func zeros(n int64) io.Reader { return io.LimitReader(zeroReader{}, n) }

type zeroReader struct{}

func (zeroReader) Read(p []byte) (int, error) { return len(p), nil }

// BenchmarkExec sends 32 MiB to a container, which sends them back. "bare" is
// the same over a TLS connection without anything else.
func BenchmarkExec(b *testing.B) {
	benchmarkBare(b)
	for protocol := range protocols {
		b.Run(protocol, func(b *testing.B) {
			server := serveRun(b, func(_ context.Context, _ []string, attach api.AttachIO) error {
				_, err := io.Copy(attach.Stdout(), attach.Stdin())
				return err
			})
			b.ReportAllocs()
			b.SetBytes(benchmarkBytes)
			for b.Loop() {
				err := stream(b.Context(), server, protocol, "/exec/ns/p/c", []string{"cat"}, remotecommand.StreamOptions{
					Stdin: zeros(benchmarkBytes), Stdout: io.Discard,
				})
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// benchmarkBare is what the others are to be compared with.
func benchmarkBare(b *testing.B) {
	b.Run("bare", func(b *testing.B) {
		server := httptest.NewUnstartedServer(http.NotFoundHandler())
		server.StartTLS() // for its certificate
		defer server.Close()
		listener, err := tls.Listen("tcp", "127.0.0.1:0", server.TLS)
		if err != nil {
			b.Fatal(err)
		}
		defer listener.Close()
		go func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				go func() {
					defer conn.Close()
					_, _ = io.Copy(conn, conn)
				}()
			}
		}()
		b.ReportAllocs()
		b.SetBytes(benchmarkBytes)
		for b.Loop() {
			conn, err := tls.Dial("tcp", listener.Addr().String(), &tls.Config{InsecureSkipVerify: true})
			if err != nil {
				b.Fatal(err)
			}
			sendAndReceive(b, conn)
			conn.Close()
		}
	})
}

type halfCloser interface {
	io.ReadWriter
	CloseWrite() error
}

// sendAndReceive sends zeros to a peer that sends them back.
func sendAndReceive(b *testing.B, conn halfCloser) {
	go func() {
		_, _ = io.Copy(conn, zeros(benchmarkBytes))
		_ = conn.CloseWrite()
	}()
	if n, err := io.Copy(io.Discard, conn); err != nil || n != benchmarkBytes {
		b.Fatal(n, err)
	}
}

// BenchmarkExecTrue is a whole exec with next to no data.
func BenchmarkExecTrue(b *testing.B) {
	for protocol := range protocols {
		b.Run(protocol, func(b *testing.B) {
			server := serveRun(b, func(context.Context, []string, api.AttachIO) error { return nil })
			b.ReportAllocs()
			for b.Loop() {
				if err := stream(b.Context(), server, protocol, "/exec/ns/p/c", []string{"true"}, remotecommand.StreamOptions{Stdout: io.Discard}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkPortForward sends 32 MiB over one connection, and gets them back. As
// with kubectl, they also pass a local TCP connection.
func BenchmarkPortForward(b *testing.B) {
	benchmarkBare(b)
	for how := range dialers {
		b.Run(how, func(b *testing.B) {
			server := serveForward(b, func(_ context.Context, _ int32, stream io.ReadWriteCloser) error {
				_, err := io.Copy(stream, stream)
				return err
			})
			f := forward(b, server, how, "/portForward/ns/p", "0:80")
			b.ReportAllocs()
			b.SetBytes(benchmarkBytes)
			for b.Loop() {
				sendAndReceive(b, f.dial(b, 0))
			}
		})
	}
}

// BenchmarkLogs reads 32 MiB of log.
func BenchmarkLogs(b *testing.B) {
	server := servePods(b, api.PodHandlerConfig{
		GetContainerLogs: func(context.Context, string, string, string, api.ContainerLogOpts) (io.ReadCloser, error) {
			return io.NopCloser(zeros(benchmarkBytes)), nil
		},
	})
	b.ReportAllocs()
	b.SetBytes(benchmarkBytes)
	for b.Loop() {
		resp, err := server.Client().Get(server.URL + "/containerLogs/ns/p/c")
		if err != nil {
			b.Fatal(err)
		}
		if n, err := io.Copy(io.Discard, resp.Body); err != nil || n != benchmarkBytes {
			b.Fatal(n, err)
		}
		resp.Body.Close()
	}
}
