package ecitest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"
)

// The credentials and the region of the fake.
const (
	AccessKey = "ecitest-access-key"
	SecretKey = "ecitest-secret-key"
	Region    = "cn-test"
)

// Server is the fake. It is safe for concurrent use.
type Server struct {
	// URL is its endpoint.
	URL string

	step time.Duration
	http *httptest.Server

	mu        sync.Mutex
	ahead     time.Duration // of the local clock
	next      int
	groups    []*groupState
	tokens    map[string]creation
	nonces    map[string]bool
	faults    map[string][]*fault
	calls     map[string]int
	sessions  map[string]session
	open      sync.WaitGroup // sessions
	hideFiles bool           // the contents of files
	noRight   bool           // to list groups
}

// creation is the request and result of a client token.
type creation struct{ request, id string }

// New starts a fake. Each stage of a group (Scheduling, Pending, Terminating)
// takes step.
func New(step time.Duration) *Server {
	s := &Server{
		step: step, tokens: map[string]creation{}, nonces: map[string]bool{}, faults: map[string][]*fault{},
		calls: map[string]int{}, sessions: map[string]session{},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/", s.serveAPI)
	mux.HandleFunc("/exec", s.serveExec)
	s.http = httptest.NewServer(mux)
	s.URL = s.http.URL
	return s
}

// Close stops the server.
func (s *Server) Close() {
	s.http.CloseClientConnections()
	s.http.Close()
	s.open.Wait()
}

// RoundTrip answers a call without a connection, for tests in virtual time. A call
// whose response is lost returns an error.
func (s *Server) RoundTrip(r *http.Request) (answer *http.Response, err error) {
	defer func() {
		if reason := recover(); reason != nil { // like net/http's server
			answer, err = nil, fmt.Errorf("the connection broke off: %v", reason)
		}
	}()
	w := httptest.NewRecorder()
	s.serveAPI(w, r)
	return w.Result(), nil
}

// HideFiles makes listings report no files of volumes.
func (s *Server) HideFiles() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hideFiles = true
}

// SetMayList makes listings empty, or undoes that, as those of an access key without the
// right to list groups are.
func (s *Server) SetMayList(may bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noRight = !may
}

// Advance puts the clock of the fake forward.
func (s *Server) Advance(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ahead += d
}

// Calls returns how often an action was called, including refused calls.
func (s *Server) Calls(action string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[action]
}

// now is the time of the fake. The caller holds s.mu.
func (s *Server) now() time.Time { return time.Now().Add(s.ahead) }

// apiError is an error response.
type apiError struct {
	status        int
	code, message string
}

func refuse(status int, code, format string, args ...any) *apiError {
	return &apiError{status, code, fmt.Sprintf(format, args...)}
}

func missing(name string) *apiError {
	return refuse(http.StatusBadRequest, "MissingParameter", "The required parameter %s is not supplied.", name)
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
	if d := s.delay(p["Action"]); d > 0 {
		select {
		case <-time.After(d):
		case <-r.Context().Done():
			return
		}
	}
	s.mu.Lock()
	s.next++
	id := fmt.Sprintf("REQUEST-%06d", s.next)
	s.calls[p["Action"]]++
	answer, refused := s.call(r.Method, p)
	var body []byte
	var err error
	status := http.StatusOK
	if refused != nil {
		status = refused.status
		answer = map[string]any{
			"HostId": r.Host, "Code": refused.code, "Message": refused.message, "Recommend": "https://example.com/" + refused.code,
		}
	}
	if s.loses(p["Action"]) {
		s.mu.Unlock()
		panic(http.ErrAbortHandler)
	}
	answer["RequestId"] = id
	body, err = json.Marshal(answer) // within the lock, which guards its contents
	s.mu.Unlock()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json;charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// call verifies a call and executes it. The caller holds s.mu.
func (s *Server) call(method string, p params) (map[string]any, *apiError) {
	if refused := s.authenticate(method, p); refused != nil {
		return map[string]any{}, refused
	}
	if refused := s.faulty(p["Action"]); refused != nil {
		return map[string]any{}, refused
	}
	if p["RegionId"] != Region {
		return map[string]any{}, refuse(http.StatusNotFound, "InvalidRegionId.NotFound", "The specified region %q does not exist.", p["RegionId"])
	}
	s.progress()
	actions := map[string]func(params) (map[string]any, *apiError){
		"CreateContainerGroup":         s.createGroup,
		"DescribeContainerGroups":      s.describeGroups,
		"DeleteContainerGroup":         s.deleteGroup,
		"UpdateContainerGroup":         s.updateGroup,
		"DescribeContainerLog":         s.describeLog,
		"ExecContainerCommand":         s.execCommand,
		"DescribeContainerGroupMetric": s.describeMetric,
	}
	action, ok := actions[p["Action"]]
	if !ok {
		return map[string]any{}, refuse(http.StatusNotFound, "InvalidAction.NotFound", "Specified api is not found.")
	}
	if refused := p.checkNames(); refused != nil {
		return map[string]any{}, refused
	}
	answer, refused := action(p)
	if answer == nil {
		answer = map[string]any{}
	}
	return answer, refused
}
