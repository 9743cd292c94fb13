package acitest

import (
	"crypto/rand"
	"net/http"

	aci "github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/containerinstance/armcontainerinstance/v2"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
)

// container returns a container of a group, which has to exist.
func (s *Server) container(in, group, name string) (grouptest.Unit, *podgroup.Container, error) {
	u, err := s.find(in, group)
	if err != nil {
		return u, nil, err
	}
	c := u.Container(name)
	if c == nil {
		return u, nil, refuse(http.StatusNotFound, "ContainerNotFound", "The container '%s' is not found in the container group.", name)
	}
	return u, c, nil
}

// logs has the current run only.
func (s *Server) logs(in, group, name string, options *aci.ContainersClientListLogsOptions) (int, any, error) {
	u, c, err := s.container(in, group, name)
	if err != nil {
		return 0, nil, err
	}
	if c.Now.State == podgroup.Waiting {
		return 0, nil, refuse(http.StatusBadRequest, "ContainerGroupDeploymentNotReady", "The container '%s' in container group '%s' is not started yet.", name, group)
	}
	q := podgroup.LogQuery{}
	if options != nil && options.Tail != nil {
		if q.Tail = int(*options.Tail); q.Tail <= 0 {
			return 0, nil, refuse(http.StatusBadRequest, "InvalidTail", "tail is not positive.")
		}
	}
	q.Timestamps = options != nil && options.Timestamps != nil && *options.Timestamps
	text, err := s.World.LogText(u.ID, name, q)
	return http.StatusOK, map[string]string{"content": text}, err
}

// session gives out a WebSocket.
func (s *Server) session(in, group, name string, command *string) (int, any, error) {
	_, c, err := s.container(in, group, name)
	if err != nil {
		return 0, nil, err
	}
	if c.Now.State != podgroup.Executing {
		return 0, nil, refuse(http.StatusConflict, "ContainerNotRunning", "The container '%s' is not running.", name)
	}
	session := Session{Group: group, Container: name}
	if command != nil {
		session.Command = *command
	}
	password := rand.Text()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions[password] = session
	return http.StatusOK, map[string]string{"webSocketUri": s.Sessions, "password": password}, nil
}

// Take returns the session of a password, which is good for one connection.
func (s *Server) Take(password string) (Session, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	session, ok := s.sessions[password]
	delete(s.sessions, password)
	return session, ok
}
