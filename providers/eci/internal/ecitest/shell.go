package ecitest

import (
	"encoding/json"
	"path"
	"strconv"
	"strings"

	"github.com/gorilla/websocket"
)

// The streams of a session, by the first byte of a message.
const (
	stdin byte = iota
	stdout
	stderr
	status
	resize

	closed byte = 255
)

// shell implements the commands echo, cat, exit, true, size (of the terminal), vanish
// (echo, without a status), and sh -c with them; any other fails with 127.
type shell struct {
	conn  *websocket.Conn
	tty   bool
	quiet bool // no status is sent
}

func (s *shell) run(args []string) int {
	switch path.Base(args[0]) {
	case "sh":
		if len(args) == 3 && args[1] == "-c" {
			return s.script(args[2])
		}
	case "echo":
		return s.print(stdout, strings.Join(args[1:], " "))
	case "vanish":
		s.quiet = true
		return s.print(stdout, strings.Join(args[1:], " "))
	case "exit":
		code, _ := strconv.Atoi(strings.Join(args[1:], ""))
		return code
	case "true":
		return 0
	case "cat":
		return s.cat()
	case "size":
		return s.size()
	}
	s.print(stderr, args[0]+": not found")
	return 127
}

func (s *shell) script(text string) (code int) {
	for statement := range strings.SplitSeq(text, ";") {
		args := strings.Fields(statement)
		to := stdout
		if n := len(args); n > 0 && args[n-1] == ">&2" {
			args, to = args[:n-1], stderr
		}
		switch {
		case len(args) == 0:
		case args[0] == "echo":
			code = s.print(to, strings.Join(args[1:], " "))
		case args[0] == "exit":
			return s.run(args)
		default:
			code = s.run(args)
		}
	}
	return code
}

// cat copies the input to the output.
func (s *shell) cat() int {
	for {
		_, message, err := s.conn.ReadMessage()
		if err != nil || len(message) == 2 && message[0] == closed && message[1] == stdin {
			return 0
		}
		if len(message) > 0 && message[0] == stdin {
			if s.send(stdout, message[1:]) != nil {
				return 1
			}
		}
	}
}

// size waits for the size of the terminal, and prints it.
func (s *shell) size() int {
	for {
		_, message, err := s.conn.ReadMessage()
		if err != nil {
			return 1
		}
		if len(message) > 0 && message[0] == resize {
			return s.print(stdout, string(message[1:]))
		}
	}
}

func (s *shell) print(to byte, text string) int {
	end := "\n"
	if s.tty {
		to, end = stdout, "\r\n"
	}
	if s.send(to, []byte(text+end)) != nil {
		return 1
	}
	return 0
}

func (s *shell) send(to byte, data []byte) error {
	return s.conn.WriteMessage(websocket.BinaryMessage, append([]byte{to}, data...))
}

// finish sends the exit code as a Status of the Kubernetes API.
func (s *shell) finish(code int) {
	answer := map[string]any{"metadata": map[string]any{}, "status": "Success"}
	if code != 0 {
		answer["status"], answer["reason"] = "Failure", "NonZeroExitCode"
		answer["message"] = "command terminated with non-zero exit code"
		answer["details"] = map[string]any{"causes": []map[string]string{{"reason": "ExitCode", "message": strconv.Itoa(code)}}}
	}
	text, err := json.Marshal(answer)
	if err != nil || !s.quiet && s.send(status, text) != nil {
		return
	}
	_ = s.conn.WriteMessage(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""))
}
