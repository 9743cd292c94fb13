package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/moby/spdystream"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// openSPDY waits for the streams of a SPDY client. Where it returns nil, the
// client has got the error, as far as that is possible.
//
// The library's own server (remotecommand.ServeExec) leaves goroutines behind
// when a client opens more streams than it announced.
func openSPDY(w *streamConn, r *http.Request, want execStreams, failed string, creation time.Duration) *execClient {
	protocol, err := httpstream.Handshake(r, w, remotecommand.SupportedStreamingProtocols)
	if err != nil {
		return nil
	}
	streams := newStreamCollector(streamTypes(want, protocol), w.flight)
	w.maxStreams = maxExecStreams
	conn, err := upgradeSPDY(r.Context(), w, streams.accept)
	if err != nil {
		log.G(r.Context()).WithError(err).Debug("no SPDY for exec or attach")
		return nil
	}
	closeAll := func() {
		streams.refuse()
		_ = conn.Close()
	}
	asJSON := protocol == remotecommand.StreamProtocolV4Name
	if err := streams.wait(r.Context(), conn, creation); err != nil {
		log.G(r.Context()).WithError(err).Debug("exec or attach without its streams")
		if status := streams.get(remotecommand.StreamTypeError); status != nil {
			writeStatus(status, asJSON, err, failed)
		}
		closeAll()
		return nil
	}
	status := streams.get(remotecommand.StreamTypeError)
	client := &execClient{
		stdin:  streams.get(remotecommand.StreamTypeStdin),
		stdout: streams.get(remotecommand.StreamTypeStdout),
		stderr: streams.get(remotecommand.StreamTypeStderr),
		finish: func(err error) { writeStatus(status, asJSON, err, failed) },
		close:  closeAll,
	}
	if resize := streams.get(remotecommand.StreamTypeResize); resize != nil {
		client.resize = resize
	}
	return client
}

// maxExecStreams is how many streams a client may try to open: more than there are.
const maxExecStreams = 16

// streamTypes are the streams that a client of a SPDY protocol opens.
func streamTypes(want execStreams, protocol string) []string {
	resizes := protocol == remotecommand.StreamProtocolV4Name || protocol == remotecommand.StreamProtocolV3Name
	types := []string{remotecommand.StreamTypeError}
	for name, wanted := range map[string]bool{
		remotecommand.StreamTypeStdin:  want.stdin,
		remotecommand.StreamTypeStdout: want.stdout,
		remotecommand.StreamTypeStderr: want.stderr,
		remotecommand.StreamTypeResize: want.tty && resizes,
	} {
		if wanted {
			types = append(types, name)
		}
	}
	return types
}

// streamCollector takes the streams that a client should open, each once.
type streamCollector struct {
	complete chan struct{} // closed when all are there
	flight   *inFlight

	mu      sync.Mutex
	refused bool
	missing map[string]bool
	streams map[string]httpstream.Stream
}

func newStreamCollector(types []string, flight *inFlight) *streamCollector {
	c := &streamCollector{complete: make(chan struct{}), flight: flight, missing: map[string]bool{}, streams: map[string]httpstream.Stream{}}
	for _, name := range types {
		c.missing[name] = true
	}
	return c
}

// accept is a streamHandler.
func (c *streamCollector) accept(stream *spdystream.Stream) error {
	name := stream.Headers().Get(remotecommand.StreamType)
	if err := c.check(name); err != nil {
		return err
	}
	if err := reply(stream); err != nil {
		return err
	}
	return c.add(name, &countedStream{stream, c.flight})
}

func (c *streamCollector) check(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.checkLocked(name)
}

func (c *streamCollector) checkLocked(name string) error {
	if c.refused || !c.missing[name] {
		return fmt.Errorf("unexpected stream of type %q", shortText(name))
	}
	return nil
}

func (c *streamCollector) add(name string, stream httpstream.Stream) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.checkLocked(name); err != nil {
		return err
	}
	delete(c.missing, name)
	c.streams[name] = stream
	if len(c.missing) == 0 {
		close(c.complete)
	}
	return nil
}

// wait waits until the client has opened all its streams.
func (c *streamCollector) wait(ctx context.Context, conn *spdystream.Connection, limit time.Duration) error {
	expired := time.NewTimer(limit)
	defer expired.Stop()
	select {
	case <-c.complete:
		return nil
	case <-expired.C:
		return errors.New("timed out waiting for the client to create streams")
	case <-conn.CloseChan():
		return errors.New("the client has gone")
	case <-ctx.Done():
		return ctx.Err()
	}
}

// get returns the stream of a type, or nil.
func (c *streamCollector) get(name string) io.ReadWriteCloser {
	c.mu.Lock()
	defer c.mu.Unlock()
	if stream, ok := c.streams[name]; ok {
		return stream
	}
	return nil
}

// refuse lets no more streams in, and resets those that are.
func (c *streamCollector) refuse() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refused = true
	for _, stream := range c.streams {
		_ = stream.Reset()
	}
}
