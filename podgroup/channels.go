package podgroup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"

	"github.com/gorilla/websocket"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
)

// ChannelProtocols are the protocols of Kubernetes for commands over a WebSocket, for its
// handshake: the first byte of each message is the stream. The newer one has a message to
// close a stream.
var ChannelProtocols = []string{channelsV5, "v4.channel.k8s.io"}

const channelsV5 = "v5.channel.k8s.io"

// The streams.
const (
	channelStdin byte = iota
	channelStdout
	channelStderr
	channelError
	channelResize

	channelClose byte = 255
)

// channels connects a client with a WebSocket.
type channels struct {
	conn   *websocket.Conn
	attach api.AttachIO
	mu     sync.Mutex // guards writes
}

// RunChannels connects a client with a WebSocket that speaks one of ChannelProtocols, until
// the command or ctx has ended, and closes it. An exit code is an error that has it
// (k8s.io/utils/exec.ExitError); a command whose status does not arrive has failed. A Read
// from the client may then still be blocked: it ends with the client's streams, which
// package node/api closes when the handler returns.
func RunChannels(ctx context.Context, conn *websocket.Conn, attach api.AttachIO) error {
	s := &channels{conn: conn, attach: attach}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	defer conn.Close()
	ended := make(chan struct{})
	defer close(ended)
	if attach.Stdin() != nil {
		go s.sendInput() // ends with the client's stream
	}
	go s.sendSizes(ended) // ends with the session
	err := s.receive()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

func (s *channels) sendInput() {
	in := s.attach.Stdin()
	buf := make([]byte, 32<<10)
	for {
		n, err := in.Read(buf)
		if n > 0 && s.send(channelStdin, buf[:n]) != nil {
			return
		}
		if errors.Is(err, io.EOF) && s.conn.Subprotocol() == channelsV5 {
			_ = s.send(channelClose, []byte{channelStdin})
		}
		if err != nil {
			return
		}
	}
}

func (s *channels) sendSizes(ended <-chan struct{}) {
	for {
		select {
		case size, ok := <-s.attach.Resize():
			if !ok {
				return
			}
			text, err := json.Marshal(size)
			if err != nil || s.send(channelResize, text) != nil {
				return
			}
		case <-ended:
			return
		}
	}
}

func (s *channels) send(channel byte, data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conn.WriteMessage(websocket.BinaryMessage, append([]byte{channel}, data...))
}

// receive copies the output until it receives the status of the command.
func (s *channels) receive() error {
	for {
		_, message, err := s.conn.ReadMessage()
		if websocket.IsCloseError(err, websocket.CloseNormalClosure) {
			return errdefs.AsUnavailable(errors.New("the service has closed the WebSocket without the status of the command"))
		}
		if err != nil {
			return errdefs.AsUnavailable(fmt.Errorf("the WebSocket of the command failed: %w", err))
		}
		if len(message) == 0 {
			continue
		}
		data := message[1:]
		switch message[0] {
		case channelStdout:
			err = write(s.attach.Stdout(), data)
		case channelStderr:
			if s.attach.TTY() {
				err = write(s.attach.Stdout(), data)
			} else {
				err = write(s.attach.Stderr(), data)
			}
		case channelError:
			return commandError(data)
		}
		if err != nil {
			return err // the client is gone
		}
	}
}

func write(w io.Writer, data []byte) error {
	if w == nil {
		return nil
	}
	_, err := w.Write(data)
	return err
}

// commandError returns nil for a command that succeeded, or an error with its exit
// code.
func commandError(data []byte) error {
	var status metav1.Status
	if err := json.Unmarshal(data, &status); err != nil {
		return fmt.Errorf("decode the status of the command: %w", err)
	}
	if status.Status == metav1.StatusSuccess {
		return nil
	}
	if status.Details != nil {
		for _, cause := range status.Details.Causes {
			if cause.Type != "ExitCode" {
				continue
			}
			if code, err := strconv.Atoi(cause.Message); err == nil && code != 0 {
				return ExitError(code)
			}
		}
	}
	return fmt.Errorf("the command failed: %s", status.Message)
}
