package ecitest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/gorilla/websocket"
)

// session is a command for which a WebSocket can be opened, once.
type session struct {
	command []string
	tty     bool
}

// execCommand is ExecContainerCommand.
func (s *Server) execCommand(p params) (map[string]any, *apiError) {
	h, refused := s.find(p)
	if refused != nil {
		return nil, refused
	}
	var command []string
	if json.Unmarshal([]byte(p["Command"]), &command) != nil || len(command) == 0 {
		return nil, refuse(http.StatusBadRequest, "InvalidParameter.Command", "The command is no list in JSON.")
	}
	c := h.find(p["ContainerName"])
	if c == nil {
		return nil, refuse(http.StatusNotFound, "ContainerNotFound", "There is no container %q.", p["ContainerName"])
	}
	if c.CurrentState.State != "Running" {
		return nil, refuse(http.StatusBadRequest, "IncorrectStatus", "The container does not run.")
	}
	s.next++
	token := fmt.Sprintf("session-%06d", s.next)
	s.sessions[token] = session{command, p["TTY"] == "true"}
	return map[string]any{"WebSocketUri": strings.Replace(s.URL, "http", "ws", 1) + "/exec?token=" + token}, nil
}

// serveExec runs the command of a session.
func (s *Server) serveExec(w http.ResponseWriter, r *http.Request) {
	token := r.URL.Query().Get("token")
	s.mu.Lock()
	command, ok := s.sessions[token]
	delete(s.sessions, token)
	if ok {
		s.open.Add(1)
	}
	s.mu.Unlock()
	if !ok {
		http.Error(w, "there is no such session", http.StatusForbidden)
		return
	}
	defer s.open.Done()
	upgrader := websocket.Upgrader{Subprotocols: []string{"v5.channel.k8s.io", "v4.channel.k8s.io"}}
	conn, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return
	}
	defer conn.Close()
	sh := &shell{conn: conn, tty: command.tty}
	sh.finish(sh.run(command.command))
}
