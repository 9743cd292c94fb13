package api_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/moby/spdystream/spdy"

	"github.com/virtual-kubelet/virtual-kubelet/node/api"
)

// spdyPaths are requests for SPDY, with their protocols.
var spdyPaths = map[string]string{
	"/exec/ns/p/c?command=x&input=1&output=1": "v4.channel.k8s.io",
	"/portForward/ns/p":                       "portforward.k8s.io",
}

// spdyClientOf returns functions that open a stream without waiting for the reply, and
// that read a frame.
func spdyClientOf(t *testing.T, conn net.Conn) (open func(http.Header), read func() (spdy.Frame, error)) {
	t.Helper()
	framer, err := spdy.NewFramer(conn, conn)
	if err != nil {
		t.Fatal(err)
	}
	id := spdy.StreamId(1)
	return func(header http.Header) {
		if err := framer.WriteFrame(&spdy.SynStreamFrame{StreamId: id, Headers: header}); err != nil {
			t.Fatal(err)
		}
		id += 2
	}, framer.ReadFrame
}

// Headers that are much larger than they were when they were compressed end the connection.
func TestLargeStreamHeadersEndTheConnection(t *testing.T) {
	many := http.Header{"Port": {"80"}, "Streamtype": {"error"}}
	for i := range 100 {
		many.Set(fmt.Sprint("x", i), "")
	}
	for name, header := range map[string]http.Header{
		"a long port":  {"Port": {strings.Repeat("8", 1<<17)}, "Streamtype": {"error"}},
		"a long kind":  {"Port": {"80"}, "Streamtype": {strings.Repeat("e", 1<<17)}},
		"a long ID":    {"Port": {"80"}, "Streamtype": {"error"}, "Requestid": {strings.Repeat("1", 1<<17)}},
		"another one":  {"Port": {"80"}, "Streamtype": {"error"}, strings.Repeat("x", 1<<17): {""}},
		"many headers": many,
	} {
		for path, protocol := range spdyPaths {
			conn := upgradeToSPDY(t, serveTLS(t, unreachable(t)), path, protocol)
			open, read := spdyClientOf(t, conn)
			open(header)
			for {
				frame, err := read()
				if err != nil {
					break
				}
				if _, ok := frame.(*spdy.GoAwayFrame); !ok {
					t.Errorf("%s, %s: got %T", path, name, frame)
					break
				}
			}
		}
	}
}

// Streams that are refused leave no line in the log of the library, where there is no
// limit for their number and length.
func TestRefusedStreamsAreNotLoggedByTheLibrary(t *testing.T) {
	before := rejections.Load()
	for path, protocol := range spdyPaths {
		conn := upgradeToSPDY(t, serveTLS(t, unreachable(t)), path, protocol)
		open, read := spdyClientOf(t, conn)
		for range 10 {
			open(http.Header{"Port": {"none"}, "Streamtype": {"odd"}})
		}
		for range 10 {
			if frame, err := read(); err != nil {
				t.Fatal(err)
			} else if _, ok := frame.(*spdy.RstStreamFrame); !ok {
				t.Errorf("%s: got %+v", path, frame)
			}
		}
	}
	if n := rejections.Load() - before; n > 0 {
		t.Errorf("%d lines", n)
	}
}

// Streams do not keep their headers, which are all the same and so cost the client nothing.
func TestStreamHeadersAreNotKept(t *testing.T) {
	const streams, maxStream = 400, 2 << 10
	header := http.Header{"Port": {"80"}, "Streamtype": {"error"}}
	for i := range 12 {
		header.Set(fmt.Sprintf("x%d%s", i, strings.Repeat("x", 240)), strings.Repeat("y", 250))
	}
	conn := upgradeToSPDY(t, serveTLS(t, unreachable(t)), "/portForward/ns/p", "portforward.k8s.io")
	open, read := spdyClientOf(t, conn)
	use := func(from, n int) {
		for i := range n {
			header.Set("Requestid", fmt.Sprint(from+i))
			open(header)
			if frame, err := read(); err != nil {
				t.Fatal(err)
			} else if _, ok := frame.(*spdy.SynReplyFrame); !ok {
				t.Fatalf("got %+v", frame)
			}
		}
	}
	use(0, 50) // makes what is made once
	before := inUse()
	use(50, streams)
	each := (inUse() - before) / streams
	t.Logf("each stream: %d bytes", each)
	if each > maxStream {
		t.Errorf("a stream costs %d bytes, more than %d", each, maxStream)
	}
}

// A client that begins the same stream again, and reads no answer, does not have one
// written for each: its connection ends.
func TestRepeatedStreamsEndTheConnection(t *testing.T) {
	for path, protocol := range spdyPaths {
		conn := upgradeToSPDY(t, serveTLS(t, unreachable(t)), path, protocol)
		framer, err := spdy.NewFramer(conn, conn)
		if err != nil {
			t.Fatal(err)
		}
		for range 10 { // of which later ones may find the connection closed
			_ = framer.WriteFrame(&spdy.SynStreamFrame{StreamId: 1, Headers: http.Header{"Port": {"80"}, "Streamtype": {"error"}}})
		}
		_ = framer.WriteFrame(&spdy.PingFrame{Id: 1})
		for {
			frame, err := framer.ReadFrame()
			if err != nil {
				break
			}
			if _, ok := frame.(*spdy.PingFrame); ok {
				t.Errorf("%s: the connection is served on", path)
				break
			}
		}
	}
}

// A session ends with what the client cannot go on after, also while its connection stays, and
// nobody reads its input.
func TestFramesThatEndASession(t *testing.T) {
	const input = "\x00\x00\x00\x03\x00\x00\x00\x01" + "x"
	for name, frame := range map[string]string{
		"a goaway":                    "\x80\x03\x00\x07\x00\x00\x00\x08" + "\x00\x00\x00\x00" + "\x00\x00\x00\x00",
		"a frame of no client":        "\x80\x03\x00\x08\x00\x00\x00\x00",
		"headers that cannot be read": "\x80\x03\x00\x01\x00\x00\x00\x0e" + "\x00\x00\x00\x63" + "\x00\x00\x00\x00" + "\x00\x00" + "\xff\xff\xff\xff",
	} {
		for before, sent := range map[string]string{"": "", " after input that nobody reads": input} {
			t.Run(name+before, func(t *testing.T) {
				started, ended := make(chan struct{}), make(chan error, 1)
				server := serveRun(t, func(ctx context.Context, _ []string, _ api.AttachIO) error {
					close(started)
					<-ctx.Done()
					ended <- ctx.Err()
					return nil
				})
				conn := upgradeToSPDY(t, server, "/exec/ns/p/c?command=x&input=1&output=1", "v4.channel.k8s.io")
				open, _ := spdyClientOf(t, conn)
				open(http.Header{"Streamtype": {"error"}})
				open(http.Header{"Streamtype": {"stdin"}})
				open(http.Header{"Streamtype": {"stdout"}})
				within(t, started, "start")
				if _, err := conn.Write([]byte(sent + frame)); err != nil {
					t.Fatal(err)
				}
				within(t, ended, "end of the context")
			})
		}
	}
}
