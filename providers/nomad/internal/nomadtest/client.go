package nomadtest

import (
	"net/http"

	"github.com/virtual-kubelet/virtual-kubelet/node/api"
)

// Shell runs a command of exec.
type Shell func(command []string, attach api.AttachIO) (exitCode int)

func (s *Server) streamLogs(http.ResponseWriter, *http.Request, string) error { return bad("not yet") }

func (s *Server) exec(http.ResponseWriter, *http.Request, string) error { return bad("not yet") }

func (s *Server) stats(*http.Request, string) (any, http.Header, error) {
	return nil, nil, bad("not yet")
}

func (s *Server) listNodes(*http.Request, string) (any, http.Header, error) {
	return nil, nil, bad("not yet")
}
