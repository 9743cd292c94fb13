package nomad

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	"github.com/hashicorp/nomad/api"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	vkapi "github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
)

const (
	// execHeartbeat keeps the connection open.
	execHeartbeat = 10 * time.Second
	// execBegins is when the first heartbeat of a terminal is sent: commands have begun by then.
	execBegins = time.Second
	// execHandshake is how long the connection may take.
	execHandshake = 30 * time.Second
)

// Exec implements podgroup.Execer, through the agent. The client of Nomad's would try the
// machine first, and does not end with ctx while it connects.
func (b *backend) Exec(ctx context.Context, u *podgroup.Unit, container string, command []string, attach vkapi.AttachIO) error {
	ref, ok := u.Data.(allocRef)
	if !ok {
		return errdefs.NotFoundf("job %s has no allocation yet", u.ID)
	}
	conn, err := b.dialExec(ctx, ref.id, container, command, attach.TTY())
	if err != nil {
		return err
	}
	s := &execSession{conn: conn, attach: attach}
	return s.run(ctx)
}

func (b *backend) dialExec(ctx context.Context, alloc, task string, command []string, tty bool) (*websocket.Conn, error) {
	text, err := json.Marshal(command)
	if err != nil {
		return nil, err
	}
	q := url.Values{"task": {task}, "tty": {strconv.FormatBool(tty)}, "command": {string(text)}, "namespace": {b.cfg.Namespace}}
	if b.cfg.Region != "" {
		q.Set("region", b.cfg.Region)
	}
	address, err := url.Parse(b.api.Address())
	if err != nil {
		return nil, err
	}
	address.Scheme = "ws" + strings.TrimPrefix(address.Scheme, "http") // https becomes wss
	address.Path, address.RawQuery = strings.TrimSuffix(address.Path, "/")+"/v1/client/allocation/"+alloc+"/exec", q.Encode()
	header := http.Header{}
	if b.cfg.Token != "" {
		header.Set("X-Nomad-Token", b.cfg.Token.Reveal())
	}
	dialer := websocket.Dialer{
		NetDialContext: b.transport.DialContext, Proxy: b.transport.Proxy, TLSClientConfig: b.transport.TLSClientConfig, HandshakeTimeout: execHandshake,
	}
	conn, response, err := dialer.DialContext(ctx, address.String(), header)
	if response != nil && err != nil {
		defer response.Body.Close()
		body := make([]byte, maxErrorText)
		n, _ := response.Body.Read(body)
		err = fmt.Errorf("the server of Nomad answers %d: %s", response.StatusCode, strings.Join(strings.Fields(string(body[:n])), " "))
		return nil, codes.Classify(podgroup.ActionExec, strconv.Itoa(response.StatusCode), response.StatusCode, 0, err)
	}
	if err != nil {
		return nil, errdefs.AsUnavailable(fmt.Errorf("connect to Nomad for a command: %w", err))
	}
	return conn, nil
}

// execSession connects a client with a command.
type execSession struct {
	conn   *websocket.Conn
	attach vkapi.AttachIO
	mu     sync.Mutex // guards writes
}

// run copies until the command or ctx has ended. A Read from the client may then still be
// blocked; it ends with the client's streams, which node/api closes.
func (s *execSession) run(ctx context.Context) error {
	defer s.conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = s.conn.Close() })
	defer stop()
	ended := make(chan struct{})
	defer close(ended)
	go s.sendInput()      // ends with the client's stream
	go s.sendSizes(ended) // ends with the session
	code, err := s.receive()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return err
	}
	return podgroup.ExitError(code)
}

func (s *execSession) send(input *api.ExecStreamingInput) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conn.WriteJSON(input)
}

// sendInput sends what the client types, and its end; but not that of a terminal, with which
// Docker ends the output, too.
func (s *execSession) sendInput() {
	end := func() {
		if !s.attach.TTY() {
			_ = s.send(&api.ExecStreamingInput{Stdin: &api.ExecStreamingIOOperation{Close: true}})
		}
	}
	in := s.attach.Stdin()
	if in == nil {
		end()
		return
	}
	buf := make([]byte, 32<<10)
	for {
		n, err := in.Read(buf)
		if n > 0 && s.send(&api.ExecStreamingInput{Stdin: &api.ExecStreamingIOOperation{Data: buf[:n]}}) != nil {
			return
		}
		if err != nil {
			end()
			return
		}
	}
}

// sendSizes sends the sizes of the client's terminal, and heartbeats. These have the last size:
// the first one is lost if it comes before the command has begun.
func (s *execSession) sendSizes(ended <-chan struct{}) {
	first := execHeartbeat // none may be on its way when Nomad ends the connection: it could lose the exit code
	if s.attach.TTY() {
		first = execBegins
	}
	ticker := time.NewTicker(first)
	defer ticker.Stop()
	sizes := s.attach.Resize()
	input := &api.ExecStreamingInput{}
	for {
		select {
		case size, ok := <-sizes:
			if !ok {
				sizes = nil
				continue
			}
			input.TTYSize = &api.TerminalSize{Height: int(size.Height), Width: int(size.Width)}
		case <-ticker.C:
			ticker.Reset(execHeartbeat)
		case <-ended:
			return
		}
		if s.send(input) != nil {
			return
		}
	}
}

// receive copies the output until the exit code comes.
func (s *execSession) receive() (code int, err error) {
	for {
		var frame api.ExecStreamingOutput
		if err := s.conn.ReadJSON(&frame); err != nil {
			if closed, ok := errors.AsType[*websocket.CloseError](err); ok && closed.Text != "" {
				err = errors.New(closed.Text)
			}
			return 0, errdefs.AsUnavailable(fmt.Errorf("the server of Nomad has ended a command without its exit code: %w", err))
		}
		if out := s.attach.Stdout(); frame.Stdout != nil && out != nil && len(frame.Stdout.Data) > 0 {
			_, err = out.Write(frame.Stdout.Data)
		}
		if out := s.attach.Stderr(); frame.Stderr != nil && out != nil && len(frame.Stderr.Data) > 0 {
			_, err = out.Write(frame.Stderr.Data)
		}
		switch {
		case err != nil: // the client has gone
			return 0, err
		case frame.Exited && frame.Result != nil:
			return frame.Result.ExitCode, nil
		}
	}
}
