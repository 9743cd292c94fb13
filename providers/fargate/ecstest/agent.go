package ecstest

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/creack/pty"
	"github.com/gorilla/websocket"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/fargate/internal/datachannel"
)

// channelPath is where sessions are connected to.
const channelPath = "/v1/data-channel/"

// commandSession is a session that was not connected to yet.
type commandSession struct{ token, command string }

func (s *Server) executeCommand(in ecs.ExecuteCommandInput) (any, error) {
	if err := s.hasCluster(in.Cluster); err != nil {
		return nil, err
	}
	u, err := s.World.Unit(strings.TrimPrefix(*in.Task, arn(taskARN)))
	if errors.Is(err, grouptest.ErrNotFound) {
		return nil, invalid("The referenced task was not found.")
	}
	task, c := u.Spec.Data.(Task), u.Container(*in.Container)
	switch {
	case !in.Interactive:
		return nil, invalid("Interactive is the only mode supported currently.")
	case !task.Run.EnableExecuteCommand:
		return nil, invalid("The execute command failed because execute command was not enabled when the task was run or the execute command agent isn’t running. Wait and try again or run a new task with execute command enabled and try again.")
	case c == nil:
		return nil, invalid("Container with name " + *in.Container + " not found")
	case u.Phase != podgroup.Running || c.Now.State != podgroup.Executing:
		return nil, refuse("TargetNotConnectedException", "The execute command failed due to an internal error. Try again later.")
	}
	id := "ecs-execute-command-" + rand.Text()
	session := commandSession{rand.Text(), *in.Command}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions[id] = session
	return object{"interactive": true, "session": object{"sessionId": id, "streamUrl": "ws://ssmmessages.test" + channelPath + id + "?role=publish_subscribe", "tokenValue": session.token}}, nil
}

// serveChannel is the service of sessions, and the agent in the task: it runs the command on
// this machine, in a terminal.
func (s *Server) serveChannel(w http.ResponseWriter, r *http.Request) {
	id := strings.TrimPrefix(r.URL.Path, channelPath)
	s.mu.Lock()
	session, found := s.sessions[id]
	delete(s.sessions, id)
	s.mu.Unlock()
	conn, err := (&websocket.Upgrader{}).Upgrade(w, r, nil)
	if err != nil {
		return // the client has its answer
	}
	defer conn.Close()
	var open struct{ MessageSchemaVersion, RequestId, TokenValue, ClientId, ClientVersion string } //nolint:revive // the service's names
	if err := conn.ReadJSON(&open); err != nil || !found || open.TokenValue != session.token || open.MessageSchemaVersion != "1.0" || open.RequestId == "" || open.ClientId == "" {
		return
	}
	a := &agent{conn: conn, faults: s.Faults, sizes: make(chan datachannel.Size, 10), queue: make(chan []byte, 10000), input: make(chan []byte, 10000), ready: make(chan struct{}), acks: map[int64]bool{}}
	a.serve(session.command)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.abandoned {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.abandoned++
	}
}

// Abandoned is how many commands had not ended when their client went, which did not end them:
// the service has them go on until the session has been idle for too long.
func (s *Server) Abandoned() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.abandoned
}

// Faults are what goes wrong on the way to and from an agent.
type Faults struct {
	// Swap has every second message of output arrive before the one before it, and Repeat has
	// all arrive twice. DropInput is how many messages of input are lost.
	Swap, Repeat bool
	// LoseEnd has the terminal lose what is printed just before it closes.
	LoseEnd   bool
	DropInput int
	// Encrypt has the agent ask for encryption.
	Encrypt bool
}

// overtakenFor is how long a message is held that the next one overtakes.
const overtakenFor = 20 * time.Millisecond

// agent is a session of an agent.
type agent struct {
	conn   *websocket.Conn
	faults Faults
	sizes  chan datachannel.Size
	queue  chan []byte   // what is to be written
	input  chan []byte   // of the command
	ready  chan struct{} // the handshake is complete

	mu                          sync.Mutex // guards writes, and what follows
	next                        int64      // of the output
	held                        []byte     // a message that the next one overtakes
	acks                        map[int64]bool
	want                        int64 // the next input
	stop                        func()
	gone                        bool // the client
	over, terminated, abandoned bool // the command: it has ended, was ended by the client, or was not
}

func (a *agent) serve(command string) {
	var reading sync.WaitGroup
	reading.Go(a.read) // ends with the connection
	defer reading.Wait()
	defer a.conn.Close()
	var writing sync.WaitGroup
	queue := a.queue
	writing.Go(func() {
		for data := range queue {
			_ = a.conn.WriteMessage(websocket.BinaryMessage, data) // the client may have gone
		}
	})
	defer writing.Wait()
	defer a.end()
	actions := []datachannel.Action{{ActionType: "SessionType", ActionParameters: json.RawMessage(`{"SessionType":"InteractiveCommands","Properties":{}}`)}}
	if a.faults.Encrypt {
		actions = append(actions, datachannel.Action{ActionType: "KMSEncryption", ActionParameters: json.RawMessage(`{"KMSKeyID":"key"}`)})
	}
	request, _ := json.Marshal(datachannel.HandshakeRequest{AgentVersion: "3.3.0.0", RequestedClientActions: actions})
	a.control(datachannel.TypeStart, nil)
	a.send(datachannel.KindHandshakeRequest, request)
	<-a.ready
	a.send(datachannel.KindHandshakeComplete, []byte(`{"HandshakeTimeToComplete":1000000,"CustomerMessage":""}`))
	reason := a.run(command)
	a.mu.Lock()
	a.over = true
	a.mu.Unlock()
	a.flush()
	text, _ := json.Marshal(datachannel.Closed{Output: reason})
	a.control(datachannel.TypeClosed, text)
}

// run runs a command in a terminal, and returns why it could not.
func (a *agent) run(command string) string {
	words, err := split(command)
	if err != nil {
		return "Failed to parse commands input: " + err.Error()
	}
	cmd := exec.Command(words[0], words[1:]...) // #nosec G204 -- of a test
	master, err := pty.Start(cmd)
	if err != nil {
		return "Unable to start command: Failed to start pty: " + err.Error()
	}
	defer master.Close()
	fd, err := syscall.Dup(int(master.Fd())) // #nosec G115 -- a file descriptor
	if err != nil {
		return err.Error()
	}
	_ = syscall.SetNonblock(fd, true)               // so that it can be closed
	terminal := os.NewFile(uintptr(fd), "terminal") // #nosec G115 -- as above
	a.mu.Lock()
	a.stop = func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	if a.gone {
		a.stop()
	}
	a.mu.Unlock()
	var feeding sync.WaitGroup
	defer feeding.Wait()
	ended := make(chan struct{})
	defer close(ended)
	defer terminal.Close()
	feeding.Go(func() {
		for {
			select {
			case data := <-a.input:
				_, _ = terminal.Write(data) // the command may have ended
			case <-ended:
				return
			}
		}
	})
	feeding.Go(func() {
		for {
			select {
			case size := <-a.sizes:
				_ = pty.Setsize(master, &pty.Winsize{Cols: uint16(size.Cols), Rows: uint16(size.Rows)}) // #nosec G115 -- of a test
				_ = syscall.SetNonblock(fd, true)                                                       // which that has undone
			case <-ended:
				return
			}
		}
	})
	buf := make([]byte, 1000)
	var last []byte // before it is known whether the terminal closes
	for {
		if len(last) > 0 {
			_ = terminal.SetReadDeadline(time.Now().Add(overtakenFor))
		}
		n, err := terminal.Read(buf)
		waited := errors.Is(err, os.ErrDeadlineExceeded)
		if len(last) > 0 && (err == nil || waited) {
			a.send(datachannel.KindData, last)
		}
		_ = terminal.SetReadDeadline(time.Time{})
		last = nil
		switch {
		case n > 0 && a.faults.LoseEnd:
			last = slices.Clone(buf[:n])
		case n > 0:
			a.send(datachannel.KindData, slices.Clone(buf[:n]))
		}
		if err != nil && !waited { // the terminal has no other end any more
			break
		}
	}
	_ = cmd.Wait()
	return ""
}

// read takes what the client sends, until the connection ends.
func (a *agent) read() {
	defer func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.abandoned = !a.over && !a.terminated
		if a.gone = true; a.stop != nil {
			a.stop()
		}
		a.complete()
	}()
	for {
		_, data, err := a.conn.ReadMessage()
		if err != nil {
			return
		}
		m, err := datachannel.Parse(data)
		if err != nil || !a.take(m) {
			return
		}
	}
}

// complete ends the handshake. The caller holds a.mu.
func (a *agent) complete() {
	select {
	case <-a.ready:
	default:
		close(a.ready)
	}
}

// take takes a message, and reports whether the session goes on.
func (a *agent) take(m *datachannel.Message) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if m.Type == datachannel.TypeAck {
		var ack datachannel.Acknowledged
		if err := json.Unmarshal(m.Payload, &ack); err != nil || ack.Type != datachannel.TypeOutput || len(ack.ID) != 36 {
			return false
		}
		a.acks[ack.Sequence] = true
		return true
	}
	if a.faults.DropInput > 0 && m.Kind == datachannel.KindData {
		a.faults.DropInput--
		return true
	}
	if m.Sequence != a.want { // it was repeated, or came too early and is sent again
		if m.Sequence < a.want {
			a.write(m.Ack().Marshal())
		}
		return true
	}
	a.want++
	a.write(m.Ack().Marshal())
	switch m.Kind {
	case datachannel.KindHandshakeResponse:
		var response datachannel.HandshakeResponse
		if err := json.Unmarshal(m.Payload, &response); err != nil || len(response.Errors) > 0 || len(response.ProcessedClientActions) != 1 {
			return false
		}
		a.complete()
	case datachannel.KindData:
		a.input <- m.Payload
	case datachannel.KindSize:
		var size datachannel.Size
		if json.Unmarshal(m.Payload, &size) == nil {
			a.sizes <- size
		}
	case datachannel.KindFlag:
		a.terminated = binary.BigEndian.Uint32(m.Payload) == datachannel.FlagTerminate
		return !a.terminated
	}
	return true
}

// send sends output.
func (a *agent) send(kind datachannel.Kind, payload []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	data := datachannel.New(datachannel.TypeOutput, a.next, kind, payload).Marshal()
	a.next++
	if a.faults.Swap && a.held == nil && kind == datachannel.KindData {
		a.held = data
		time.AfterFunc(overtakenFor, a.flush) // no other may follow
		return
	}
	a.write(data)
	if a.held != nil {
		a.write(a.held)
		a.held = nil
	}
	if a.faults.Repeat {
		a.write(data)
	}
}

// flush sends what was held.
func (a *agent) flush() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.held != nil {
		a.write(a.held)
		a.held = nil
	}
}

func (a *agent) control(kind string, payload []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.write(datachannel.New(kind, 0, 0, payload).Marshal())
}

// end ends the writing.
func (a *agent) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	close(a.queue)
	a.queue = nil
}

// write sends a message. The caller holds a.mu.
func (a *agent) write(data []byte) {
	if a.queue != nil {
		a.queue <- data
	}
}

// split splits a command into words, as the agent does: quotes and backslashes count, and
// nothing else.
func split(command string) (words []string, err error) {
	var word strings.Builder
	in, quote, escaped := false, rune(0), false
	for _, c := range command {
		switch {
		case escaped:
			word.WriteRune(c)
			escaped = false
		case c == '\\' && quote != '\'':
			in, escaped = true, true
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '\'' || c == '"'):
			in, quote = true, c
		case quote == 0 && strings.ContainsRune(" \t\r\n", c):
			if in {
				words = append(words, word.String())
				word.Reset()
			}
			in = false
		case quote == 0 && !in && c == '#':
			return words, errors.New("a comment")
		default:
			in = true
			word.WriteRune(c)
		}
	}
	if quote != 0 || escaped {
		return nil, errors.New("EOF found when expecting closing quote")
	}
	if in {
		words = append(words, word.String())
	}
	if len(words) == 0 {
		return nil, errors.New("no command")
	}
	return words, nil
}
