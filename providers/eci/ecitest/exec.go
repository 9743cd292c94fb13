package ecitest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
)

// session is a command for which a WebSocket can be opened, once.
type session struct {
	command []string
	tty     bool
}

// execCommand is ExecContainerCommand.
func (s *Server) execCommand(p params) (map[string]any, error) {
	u, err := s.find(p)
	if err != nil {
		return nil, err
	}
	var command []string
	long := func(word string) bool { return utf8.RuneCountInString(word) > 256 }
	if json.Unmarshal([]byte(p["Command"]), &command) != nil || len(command) == 0 || len(command) > 20 || slices.ContainsFunc(command, long) {
		return nil, invalid("Command", "The command is no list in JSON, or one of more than 20 words of 256 characters.")
	}
	c := u.Container(p["ContainerName"])
	if c == nil {
		return nil, refuse(http.StatusNotFound, "ContainerNotFound", "There is no container %q.", p["ContainerName"])
	}
	if c.Now.State != podgroup.Executing {
		return nil, refuse(http.StatusBadRequest, "IncorrectStatus", "The container does not run.")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
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
	grouptest.ServeChannels(w, r, command.command, command.tty)
}
