package grouptest

import (
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"sync"

	"github.com/gorilla/websocket"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
)

// The streams of a WebSocket with channels, by the first byte of a message.
const (
	channelStdin byte = iota
	channelStdout
	channelStderr
	channelStatus
	channelResize

	channelClose byte = 255
)

// ServeChannels answers a client of podgroup.RunChannels: it runs a command of a Shell over
// a WebSocket. The command vanish is echo without a status at its end.
func ServeChannels(w http.ResponseWriter, r *http.Request, command []string, tty bool) {
	upgrader := websocket.Upgrader{Subprotocols: podgroup.ChannelProtocols}
	conn, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return // the client has its answer
	}
	stdin, input := io.Pipe()
	sizes, ended := make(chan string, 1), make(chan struct{})
	var receiving sync.WaitGroup
	receiving.Go(func() { // ends with the connection
		_ = input.CloseWithError(receive(conn, input, sizes, ended))
	})
	defer receiving.Wait()
	defer conn.Close()
	defer stdin.Close() // nobody reads it any more
	defer close(ended)
	shell := Shell{Stdin: stdin, Stdout: channel{conn, channelStdout}, Stderr: channel{conn, channelStderr}, Sizes: sizes, TTY: tty}
	vanishes := command[0] == "vanish"
	if vanishes {
		command[0] = "echo"
	}
	if code := shell.Run(command); !vanishes {
		_, _ = channel{conn, channelStatus}.Write(exitStatus(code))
	}
	_ = conn.WriteMessage(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""))
}

// receive passes on what a client sends, until the connection ends.
func receive(conn *websocket.Conn, input *io.PipeWriter, sizes chan<- string, ended <-chan struct{}) error {
	for {
		_, message, err := conn.ReadMessage()
		if err != nil {
			return err
		}
		if len(message) == 0 {
			continue
		}
		switch data := message[1:]; message[0] {
		case channelStdin:
			_, _ = input.Write(data) // the command may have ended
		case channelResize:
			select {
			case sizes <- string(data):
			case <-ended:
			}
		case channelClose:
			_ = input.Close()
		}
	}
}

// channel is an output of a WebSocket.
type channel struct {
	conn *websocket.Conn
	id   byte
}

func (c channel) Write(data []byte) (int, error) {
	return len(data), c.conn.WriteMessage(websocket.BinaryMessage, append([]byte{c.id}, data...))
}

// exitStatus returns an exit code as a Status of the Kubernetes API.
func exitStatus(code int) []byte {
	answer := map[string]any{"metadata": map[string]any{}, "status": "Success"}
	if code != 0 {
		answer["status"], answer["reason"] = "Failure", "NonZeroExitCode"
		answer["message"] = "command terminated with non-zero exit code"
		answer["details"] = map[string]any{"causes": []map[string]string{{"reason": "ExitCode", "message": strconv.Itoa(code)}}}
	}
	text, _ := json.Marshal(answer) // cannot fail
	return text
}
