package ecitest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
)

// The credentials and the region of the fake. Calls with the security token are those of
// temporary credentials.
const (
	AccessKey     = "ecitest-access-key"
	SecretKey     = "ecitest-secret-key"
	SecurityToken = "ecitest-security-token"
	Region        = "cn-test"
)

// Server is the fake: an http.Handler. It is safe for concurrent use.
type Server struct {
	*grouptest.World
	// URL is its endpoint, if it was made with New.
	URL string

	http *httptest.Server
	mux  *http.ServeMux

	mu       sync.Mutex
	nonces   map[string]bool
	statuses map[string]string // of groups, by ID, that are none of a World's
	sessions map[string]session
	next     int
	open     sync.WaitGroup // sessions

	hideStatuses, hideGroups bool // as of a key without a right
}

// On returns a fake on a World, without an endpoint. Groups that have ended vanish after an hour,
// but for the newest 100.
func On(w *grouptest.World) *Server {
	w.SetRetention(time.Hour)
	w.KeepNewest(100)
	s := &Server{World: w, nonces: map[string]bool{}, statuses: map[string]string{}, sessions: map[string]session{}, mux: http.NewServeMux()}
	s.mux.HandleFunc("/", s.serveAPI)
	s.mux.HandleFunc("/exec", s.serveExec)
	return s
}

// New starts a fake in which each stage of a group takes step.
func New(step time.Duration) *Server {
	s := On(grouptest.New(step))
	s.http = httptest.NewServer(s)
	s.URL = s.http.URL
	return s
}

// Close stops the server.
func (s *Server) Close() {
	s.http.CloseClientConnections()
	s.http.Close()
	s.open.Wait()
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// HideStatuses makes DescribeContainerGroupStatus empty, or undoes that, as it is for an access key
// without the right to it.
func (s *Server) HideStatuses(hidden bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hideStatuses = hidden
}

// HideGroups is HideStatuses for DescribeContainerGroups.
func (s *Server) HideGroups(hidden bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hideGroups = hidden
}

// SetStatus sets the status of a group, such as ScheduleFailed, with a warning event.
func (s *Server) SetStatus(pod, status, reason, message string) error {
	return s.Change(pod, func(u *grouptest.Unit) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.statuses[u.ID] = status
		u.Events = append(u.Events, podgroup.Event{Type: "Warning", Reason: reason, Message: message, At: time.Now()})
	})
}

func (s *Server) status(id string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.statuses[id]
}

// Params returns the parameters of the group of a pod.
func (s *Server) Params(pod string) (map[string]string, error) {
	u, err := s.OfPod(pod)
	if err != nil {
		return nil, err
	}
	return u.Spec.Data.(params), nil
}

// Untag removes a tag from all groups, as if they had been created without it.
func (s *Server) Untag(key string) error {
	var errs []error
	for _, u := range s.Units(nil) {
		errs = append(errs, s.Change(u.Tags[podgroup.TagPodName], func(u *grouptest.Unit) { delete(u.Tags, key) }))
	}
	return errors.Join(errs...)
}

// serveAPI answers a call.
func (s *Server) serveAPI(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	p := params{}
	for name, values := range r.Form {
		p[name] = values[0]
	}
	var answer map[string]any
	err := s.Serve(r.Context(), p["Action"], func() (err error) {
		answer, err = s.call(r.Method, p)
		return err
	})
	s.mu.Lock()
	s.next++
	id := fmt.Sprintf("REQUEST-%06d", s.next)
	s.mu.Unlock()
	status := http.StatusOK
	switch refused := refusalOf(err); {
	case errors.Is(err, grouptest.ErrLost), r.Context().Err() != nil:
		panic(http.ErrAbortHandler)
	case refused != nil:
		status = refused.Status
		answer = map[string]any{
			"HostId": r.Host, "Code": refused.Code, "Message": refused.Message, "Recommend": "https://example.com/" + refused.Code,
		}
	case answer == nil:
		answer = map[string]any{}
	}
	answer["RequestId"] = id
	w.Header().Set("Content-Type", "application/json;charset=utf-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer)
}

// refusalOf returns the API's form of an error of the World.
func refusalOf(err error) *grouptest.Refusal {
	var refused *grouptest.Refusal
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused):
		return refused
	case errors.Is(err, grouptest.ErrQuota):
		return &grouptest.Refusal{Status: http.StatusBadRequest, Code: "Throttling.User", Message: "Request was denied due to user flow control."}
	case errors.Is(err, grouptest.ErrNotFound):
		return &grouptest.Refusal{Status: http.StatusNotFound, Code: "ContainerGroupNotFound", Message: "The specified container group does not exist."}
	case errors.Is(err, grouptest.ErrTokenReused):
		return &grouptest.Refusal{Status: http.StatusBadRequest, Code: "IdempotentParameterMismatch", Message: "The request uses the same client token as a previous, but non-identical request."}
	case errors.Is(err, grouptest.ErrBusy):
		return &grouptest.Refusal{Status: http.StatusBadRequest, Code: "IncorrectStatus", Message: "The container group takes no updates now."}
	}
	return &grouptest.Refusal{Status: http.StatusInternalServerError, Code: "InternalError", Message: err.Error()}
}

// call verifies a call and executes it.
func (s *Server) call(method string, p params) (map[string]any, error) {
	if err := s.authenticate(method, p); err != nil {
		return nil, err
	}
	if p["RegionId"] != Region {
		return nil, refuse(http.StatusNotFound, "InvalidRegionId.NotFound", "The specified region %q does not exist.", p["RegionId"])
	}
	actions := map[string]func(params) (map[string]any, error){
		"CreateContainerGroup":              s.createGroup,
		"DescribeContainerGroups":           s.describeGroups,
		"DescribeContainerGroupStatus":      s.describeStatus,
		"DeleteContainerGroup":              s.deleteGroup,
		"UpdateContainerGroup":              s.updateGroup,
		"DescribeContainerLog":              s.describeLog,
		"ExecContainerCommand":              s.execCommand,
		"DescribeMultiContainerGroupMetric": s.describeMetrics,
	}
	action, ok := actions[p["Action"]]
	if !ok {
		return nil, refuse(http.StatusNotFound, "InvalidAction.NotFound", "Specified api is not found.")
	}
	// The real API may ignore parameters that it does not have, so that nobody notices.
	if names := Wrong(p["Action"], p); len(names) > 0 {
		return nil, invalid(names[0], "%s does not have that parameter, or not of that type.", p["Action"])
	}
	return action(p)
}
