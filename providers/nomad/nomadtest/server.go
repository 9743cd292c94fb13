package nomadtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/hashicorp/nomad/api"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
)

// Token is the secret ID that the server wants.
const Token = "11111111-2222-4333-8444-555555555555"

// The actions, as the World knows them.
const (
	ActionRegister   = "PUT /v1/jobs"
	ActionJobs       = "GET /v1/jobs"
	ActionJob        = "GET /v1/job"
	ActionDeregister = "DELETE /v1/job"
	ActionAllocs     = "GET /v1/allocations"
	ActionAlloc      = "GET /v1/allocation"
	ActionPutVar     = "PUT /v1/var"
	ActionDeleteVar  = "DELETE /v1/var"
	ActionEvents     = "GET /v1/event/stream"
	ActionLogs       = "GET /v1/client/fs/logs"
	ActionExec       = "GET /v1/client/allocation/exec"
	ActionNodes      = "GET /v1/nodes"
)

// Server is a Nomad agent, a server and a client in one. It is safe for concurrent use.
type Server struct {
	// World has the jobs' units. The tags of a unit are the meta of its job.
	World *grouptest.World
	// Namespace is the only one.
	Namespace string
	// Shell runs the commands of exec; nil echoes the input, and ends with 0.
	Shell Shell
	// Nodes are Nomad's nodes, and Others are allocations of jobs of others.
	Nodes  []*api.NodeListStub
	Others []*api.AllocationListStub

	mu     sync.Mutex
	index  uint64
	jobs   map[string]*job
	vars   map[string]*api.Variable
	events []batch // the newest: eventsKept
	keep   int     // events that are kept for streams that begin later
}

// New returns a server. It is an http.Handler.
func New(w *grouptest.World) *Server {
	return &Server{World: w, Namespace: "default", index: 10, jobs: map[string]*job{}, vars: map[string]*api.Variable{}, keep: 100}
}

// ForgetEvents has streams that begin later get no events of before, as in a busy cluster.
func (s *Server) ForgetEvents() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keep = 0
}

// common are the parameters of all requests.
var common = []string{"region", "namespace"}

// lists are the parameters of lists.
var lists = []string{"prefix", "filter", "per_page", "next_token"}

// endpoint is what the server does for a path.
type endpoint struct {
	action string
	params []string
	serve  func(s *Server, r *http.Request, id string) (any, http.Header, error)
	stream func(s *Server, w http.ResponseWriter, r *http.Request, id string) error
}

func endpointOf(r *http.Request) (e endpoint, id string, ok bool) {
	path := r.URL.Path
	cut := func(method, prefix, suffix string) bool {
		rest, found := strings.CutPrefix(path, prefix)
		rest, ends := strings.CutSuffix(rest, suffix)
		id = rest
		return r.Method == method && found && ends
	}
	switch {
	case cut("PUT", "/v1/jobs", "") && id == "":
		e = endpoint{action: ActionRegister, serve: (*Server).register}
	case cut("GET", "/v1/jobs", "") && id == "":
		e = endpoint{action: ActionJobs, params: append([]string{"meta"}, lists...), serve: (*Server).listJobs}
	case cut("GET", "/v1/job/", "") && !strings.Contains(id, "/"):
		e = endpoint{action: ActionJob, serve: (*Server).getJob}
	case cut("DELETE", "/v1/job/", "") && !strings.Contains(id, "/"):
		e = endpoint{action: ActionDeregister, params: []string{"purge"}, serve: (*Server).deregister}
	case cut("GET", "/v1/allocations", "") && id == "":
		e = endpoint{action: ActionAllocs, params: append([]string{"resources", "task_states"}, lists...), serve: (*Server).listAllocs}
	case cut("GET", "/v1/allocation/", "") && !strings.Contains(id, "/"):
		e = endpoint{action: ActionAlloc, serve: (*Server).getAlloc}
	case cut("PUT", "/v1/var/", ""):
		e = endpoint{action: ActionPutVar, params: []string{"cas"}, serve: (*Server).putVar}
	case cut("DELETE", "/v1/var/", ""):
		e = endpoint{action: ActionDeleteVar, params: []string{"cas"}, serve: (*Server).deleteVar}
	case cut("GET", "/v1/nodes", "") && id == "":
		e = endpoint{action: ActionNodes, params: append([]string{"resources"}, lists...), serve: (*Server).listNodes}
	case cut("GET", "/v1/event/stream", "") && id == "":
		e = endpoint{action: ActionEvents, params: []string{"topic", "index"}, stream: (*Server).streamEvents}
	case cut("GET", "/v1/client/fs/logs/", ""):
		e = endpoint{action: ActionLogs, params: []string{"task", "type", "offset", "origin", "plain"}, stream: (*Server).sendLog}
	case cut("GET", "/v1/client/allocation/", "/exec"):
		e = endpoint{action: ActionExec, params: []string{"task", "tty", "command"}, stream: (*Server).exec}
	default:
		return endpoint{}, "", false
	}
	return e, id, true
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e, id, ok := endpointOf(r)
	if !ok {
		http.Error(w, "Invalid method or path: "+r.Method+" "+r.URL.Path, http.StatusMethodNotAllowed)
		return
	}
	var answer any
	var header http.Header
	err := s.World.Serve(r.Context(), e.action, func() (err error) {
		if err := s.admit(r, e.params); err != nil || e.stream != nil {
			return err
		}
		answer, header, err = e.serve(s, r, id)
		return err
	})
	if err == nil && e.stream != nil {
		err = e.stream(s, w, r, id)
	}
	if err != nil {
		s.refuse(w, err)
		return
	}
	if e.stream != nil {
		return
	}
	for key := range header {
		w.Header().Set(key, header.Get(key))
	}
	if answer == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	_ = json.NewEncoder(w).Encode(answer) // the client may have gone
}

// admit checks token, namespace and the names of parameters.
func (s *Server) admit(r *http.Request, params []string) error {
	if r.Header.Get("X-Nomad-Token") != Token {
		return &grouptest.Refusal{Status: http.StatusForbidden, Message: "Permission denied"}
	}
	for name := range r.URL.Query() {
		if !slices.Contains(common, name) && !slices.Contains(params, name) {
			return bad("unknown parameter %q of %s", name, r.URL.Path)
		}
	}
	if ns := r.URL.Query().Get("namespace"); ns != "" && ns != s.Namespace && ns != "*" {
		return &grouptest.Refusal{Status: http.StatusForbidden, Message: "Permission denied"}
	}
	return nil
}

func (s *Server) refuse(w http.ResponseWriter, err error) {
	refusal, ok := errors.AsType[*grouptest.Refusal](err)
	switch {
	case errors.Is(err, grouptest.ErrLost):
		panic(http.ErrAbortHandler)
	case errors.Is(err, grouptest.ErrQuota):
		http.Error(w, "too many requests", http.StatusTooManyRequests)
	case ok:
		http.Error(w, refusal.Message, refusal.Status)
	default:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

func bad(format string, args ...any) error {
	return &grouptest.Refusal{Status: http.StatusBadRequest, Message: fmt.Sprintf(format, args...)}
}

func notFound(what string) error {
	return &grouptest.Refusal{Status: http.StatusNotFound, Message: what + " not found"}
}

func unknownAlloc(id string) error {
	return &grouptest.Refusal{Status: http.StatusNotFound, Message: `Unknown allocation "` + id + `"`}
}

// invalid is how Nomad refuses jobs.
func invalid(format string, args ...any) error {
	return &grouptest.Refusal{Status: http.StatusInternalServerError, Message: "1 error occurred:\n\t* " + fmt.Sprintf(format, args...)}
}

func meta(index uint64, next string) http.Header {
	h := http.Header{}
	h.Set("X-Nomad-Index", strconv.FormatUint(index, 10))
	h.Set("X-Nomad-LastContact", "0")
	h.Set("X-Nomad-KnownLeader", "true")
	if next != "" {
		h.Set("X-Nomad-NextToken", next)
	}
	return h
}

// page returns a page of a list that is sorted by ID.
func page[T any](r *http.Request, all []T, id func(T) string) (list []T, next string, err error) {
	q := r.URL.Query()
	slices.SortFunc(all, func(a, b T) int { return strings.Compare(id(a), id(b)) })
	size := len(all)
	if text := q.Get("per_page"); text != "" {
		if size, err = strconv.Atoi(text); err != nil || size < 1 {
			return nil, "", bad("per_page is %q", text)
		}
	}
	list = []T{}
	for _, one := range all {
		if id(one) < q.Get("next_token") {
			continue
		}
		if len(list) == size {
			return list, id(one), nil
		}
		list = append(list, one)
	}
	return list, "", nil
}
