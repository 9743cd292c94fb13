package fargate

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/providers/fargate/internal/datachannel"
)

// clientVersion is the version of AWS's client whose messages these are.
const clientVersion = "1.2.694.0"

const (
	// window is how many messages may be under way.
	window = 64
	// resendAfter is when a message is sent again that was not acknowledged, and pingEvery
	// how often the connection shows that it is in use.
	resendAfter, pingEvery = 3 * time.Second, time.Minute
	// maxChunk is how much input a message has: encoded, it is a line that a terminal takes.
	maxChunk = 180
	// writeTimeout is how long a write may take, and endTimeout the last one.
	writeTimeout, endTimeout = 10 * time.Second, time.Second
	// leaveTimeout is for how long the agent may take to end the command of a client that has
	// left: a message that was lost is sent again meanwhile.
	leaveTimeout = 8 * time.Second
	// maxEarly is how many messages are kept that came before their turn.
	maxEarly = 1000
)

// session connects a client with an agent of Session Manager.
type session struct {
	conn   *websocket.Conn
	attach api.AttachIO
	out    output
	early  map[int64]*datachannel.Message
	next   int64 // the sequence number of the next output

	ended chan struct{}
	begun chan struct{} // the agent is ready for input
	room  chan struct{} // for messages under way
	left  atomic.Bool   // output is not passed on any more

	mu         sync.Mutex // guards writes, and what follows
	sent       []sentMessage
	last       int64
	terminated bool // nothing may follow
}

type sentMessage struct {
	*datachannel.Message
	at time.Time
}

func newSession(conn *websocket.Conn, attach api.AttachIO, token string) *session {
	return &session{
		conn: conn, attach: attach, out: output{attach: attach, token: token}, early: map[int64]*datachannel.Message{},
		ended: make(chan struct{}), begun: make(chan struct{}), room: make(chan struct{}, window),
	}
}

// run runs the session until the command or ctx has ended, and closes the connection. A Read
// from the client may then still be blocked: it ends with the client's streams, which package
// node/api closes when the handler returns.
func (s *session) run(ctx context.Context, token string) (code int, err error) {
	defer s.conn.Close()
	defer close(s.ended)
	open := datachannel.Open{MessageSchemaVersion: "1.0", RequestID: string(uuid.NewUUID()), TokenValue: token, ClientID: string(uuid.NewUUID()), ClientVersion: clientVersion}
	if err := s.conn.WriteJSON(open); err != nil {
		return 0, errdefs.AsUnavailable(fmt.Errorf("the session cannot be opened: %w", err))
	}
	go s.keepUp() // ends with the session
	defer context.AfterFunc(ctx, s.leave)()
	if s.attach.Stdin() != nil {
		go s.sendInput() // ends with the client's stream
	}
	go s.sendSizes() // ends with the session
	for !s.out.ended && err == nil && (ctx.Err() == nil || !s.isSent()) {
		err = s.receive()
	}
	switch {
	case s.out.ended:
		s.terminate() // the shell may wait for input
	case ctx.Err() != nil:
		err = ctx.Err()
	default: // the client takes no more output, or the connection broke off
		s.leave()
		for !s.isSent() && s.receive() == nil {
		}
	}
	return s.out.code, err
}

// leave has the agent end the command of a client that has left, which would go on for as long as
// the session may be idle. What was sent before may have been lost: it is sent again, for
// leaveTimeout.
func (s *session) leave() {
	s.left.Store(true)
	s.terminate()
	_ = s.conn.SetReadDeadline(time.Now().Add(leaveTimeout)) // else the connection is closed
}

// isSent reports whether the agent has all that was sent.
func (s *session) isSent() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.terminated && len(s.sent) == 0
}

// terminate has the agent end the command.
func (s *session) terminate() {
	_ = s.transmit(datachannel.KindFlag, binary.BigEndian.AppendUint32(nil, datachannel.FlagTerminate), endTimeout) // without, it ends in some minutes
}

// receive takes a message of the agent, or of the service.
func (s *session) receive() error {
	_, data, err := s.conn.ReadMessage()
	if err != nil {
		return errdefs.AsUnavailable(fmt.Errorf("the session of the command broke off: %w", err))
	}
	m, err := datachannel.Parse(data)
	if err != nil {
		return err
	}
	switch m.Type {
	case datachannel.TypeAck:
		return s.acknowledged(m)
	case datachannel.TypeClosed:
		var closed datachannel.Closed
		_ = json.Unmarshal(m.Payload, &closed) // it may have no reason
		if !s.out.begun {
			return errdefs.InvalidInputf("the command did not begin: it needs sh in the image, and with input stty and base64; ECS reports %q", closed.Output+string(s.out.held))
		}
		return errdefs.AsUnavailable(fmt.Errorf("the session ended before the command: %q", closed.Output))
	case datachannel.TypeOutput:
		return s.output(m)
	}
	return nil
}

// output acknowledges output, and passes it on in its order.
func (s *session) output(m *datachannel.Message) error {
	if m.Sequence > s.next && len(s.early) >= maxEarly {
		return nil // it will be sent again
	}
	s.mu.Lock()
	err := s.write(websocket.BinaryMessage, m.Ack().Marshal(), writeTimeout)
	s.mu.Unlock()
	if err != nil || m.Sequence < s.next {
		return err
	}
	s.early[m.Sequence] = m
	for {
		m, ok := s.early[s.next]
		if !ok {
			return nil
		}
		delete(s.early, s.next)
		s.next++
		if err := s.take(m); err != nil {
			return err
		}
	}
}

func (s *session) take(m *datachannel.Message) error {
	switch m.Kind {
	case datachannel.KindHandshakeRequest:
		return s.handshake(m.Payload)
	case datachannel.KindData, datachannel.KindStderr:
		if s.left.Load() {
			return nil
		}
		wasBegun := s.out.begun
		err := s.out.write(m.Payload)
		if s.out.begun && !wasBegun {
			close(s.begun)
		}
		return err
	case datachannel.KindExitCode: // of sessions without a terminal
		code, err := strconv.Atoi(string(m.Payload))
		s.out.ended, s.out.code = true, code
		return err
	}
	return nil
}

// handshake answers what the agent asks of its client.
func (s *session) handshake(payload []byte) error {
	var request datachannel.HandshakeRequest
	if err := json.Unmarshal(payload, &request); err != nil {
		return fmt.Errorf("decode the handshake of the session: %w", err)
	}
	response := datachannel.HandshakeResponse{ClientVersion: clientVersion}
	var refused error
	for _, action := range request.RequestedClientActions {
		done := datachannel.ProcessedAction{ActionType: action.ActionType, ActionStatus: datachannel.ActionDone}
		if action.ActionType != "SessionType" {
			refused = fmt.Errorf("the cluster wants %s of sessions, which this provider does not have: %w", action.ActionType, errors.ErrUnsupported)
			done.ActionStatus, done.Error = datachannel.ActionUnsupported, "unsupported action "+action.ActionType
			response.Errors = append(response.Errors, done.Error)
		}
		response.ProcessedClientActions = append(response.ProcessedClientActions, done)
	}
	text, err := json.Marshal(response)
	if err == nil {
		err = s.send(datachannel.KindHandshakeResponse, text)
	}
	return errors.Join(refused, err)
}

// acknowledged makes room for another message.
func (s *session) acknowledged(m *datachannel.Message) error {
	var ack datachannel.Acknowledged
	if err := json.Unmarshal(m.Payload, &ack); err != nil {
		return fmt.Errorf("decode an acknowledgement of the session: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	before := len(s.sent)
	s.sent = slices.DeleteFunc(s.sent, func(m sentMessage) bool { return m.Sequence == ack.Sequence })
	if len(s.sent) < before {
		select {
		case <-s.room:
		default: // it took none
		}
	}
	return nil
}

// send sends a message as input, when there is room.
func (s *session) send(kind datachannel.Kind, payload []byte) error {
	select {
	case s.room <- struct{}{}:
	case <-s.ended:
		return net.ErrClosed
	}
	return s.transmit(kind, payload, writeTimeout)
}

func (s *session) transmit(kind datachannel.Kind, payload []byte, timeout time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.terminated {
		return net.ErrClosed
	}
	s.terminated = kind == datachannel.KindFlag
	m := datachannel.New(datachannel.TypeInput, s.last, kind, payload)
	s.last++
	s.sent = append(s.sent, sentMessage{m, time.Now()})
	return s.write(websocket.BinaryMessage, m.Marshal(), timeout)
}

// write writes to the connection. The caller holds s.mu.
func (s *session) write(kind int, data []byte, timeout time.Duration) error {
	if err := s.conn.SetWriteDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	return s.conn.WriteMessage(kind, data)
}

// keepUp sends the oldest message again that was not acknowledged in time.
func (s *session) keepUp() {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	pinged := time.Now()
	for {
		select {
		case <-tick.C:
		case <-s.ended:
			return
		}
		s.mu.Lock()
		if now := time.Now(); len(s.sent) > 0 && now.Sub(s.sent[0].at) >= resendAfter {
			s.sent[0].at = now
			_ = s.write(websocket.BinaryMessage, s.sent[0].Marshal(), writeTimeout) // the reader notices that it broke off
		} else if now.Sub(pinged) >= pingEvery {
			pinged = now
			_ = s.write(websocket.PingMessage, []byte("keepalive"), writeTimeout)
		}
		s.mu.Unlock()
	}
}

// sendInput sends what the client sends: as it is on a terminal, else in lines, whose end is that
// of a terminal's input.
func (s *session) sendInput() {
	select {
	case <-s.begun:
	case <-s.ended:
		return
	}
	in, buf, encode := s.attach.Stdin(), make([]byte, maxChunk), !s.attach.TTY()
	for {
		n, err := in.Read(buf)
		part := buf[:n]
		if encode && n > 0 {
			part = line(part)
		}
		if errors.Is(err, io.EOF) && encode {
			part = append(part, endOfInput)
		}
		if len(part) > 0 && s.send(datachannel.KindData, bytes.Clone(part)) != nil || err != nil {
			return
		}
	}
}

// endOfInput at the beginning of a line ends the input of a terminal.
const endOfInput = 4

// line returns data as a line without controls, of which printf %b makes the data again.
func line(data []byte) (text []byte) {
	for _, c := range data {
		if c < ' ' || c > '~' || c == '\\' {
			text = fmt.Appendf(text, `\0%03o`, c)
		} else {
			text = append(text, c)
		}
	}
	return append(text, '\n')
}

func (s *session) sendSizes() {
	select {
	case <-s.begun:
	case <-s.ended:
		return
	}
	for {
		select {
		case size, ok := <-s.attach.Resize():
			if !ok {
				return
			}
			text, err := json.Marshal(datachannel.Size{Cols: uint32(size.Width), Rows: uint32(size.Height)})
			if err != nil || s.send(datachannel.KindSize, text) != nil {
				return
			}
		case <-s.ended:
			return
		}
	}
}
