package nomadtest

import (
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
	ActionJob        = "GET /v1/job/{id}"
	ActionJobAllocs  = "GET /v1/job/{id}/allocations"
	ActionDeregister = "DELETE /v1/job/{id}"
	ActionAllocs     = "GET /v1/allocations"
	ActionAlloc      = "GET /v1/allocation/{id}"
	ActionVars       = "GET /v1/vars"
	ActionVar        = "GET /v1/var/{path...}"
	ActionPutVar     = "PUT /v1/var/{path...}"
	ActionDeleteVar  = "DELETE /v1/var/{path...}"
	ActionEvents     = "GET /v1/event/stream"
	ActionLogs       = "GET /v1/client/fs/logs/{id}"
	ActionExec       = "GET /v1/client/allocation/{id}/exec"
	ActionStats      = "GET /v1/client/allocation/{id}/stats"
	ActionNodes      = "GET /v1/nodes"
)

// common are the parameters of all requests, and lists those of lists.
const common, lists = "region namespace ", "prefix filter per_page next_token "

// params are the parameters of requests.
var params = map[string]string{
	ActionJobs: lists + "meta", ActionDeregister: "purge", ActionAllocs: lists + "resources task_states", ActionVars: lists, ActionJobAllocs: "all", ActionPutVar: "cas", ActionDeleteVar: "cas",
	ActionNodes: lists + "resources", ActionEvents: "topic index", ActionLogs: "task type offset origin", ActionExec: "task tty command",
}

// Server is a Nomad agent, a server and a client in one. It is safe for concurrent use.
type Server struct {
	// World has the jobs' units. The tags of a unit are the meta of its job.
	World *grouptest.World
	// Namespace is the only one.
	Namespace string
	// Shell runs the commands of exec; nil echoes the input, and ends with 0.
	Shell Shell
	// LogFileSize is after how many bytes a log goes on in another file, of which the newest
	// five stay. Zero is never.
	LogFileSize int
	// LogBreaks is how many answers with frames of a log break off in the middle.
	LogBreaks int
	// CPUPercent is what each task uses of a CPU.
	CPUPercent float64
	// Nodes are Nomad's nodes, and Others are allocations of jobs of others, or that were removed.
	Nodes  []*api.NodeListStub
	Others []*api.AllocationListStub

	mu       sync.Mutex
	logBytes int // of all answers with logs
	index    uint64
	jobs     map[string]*job
	vars     map[string]*api.Variable
	events   []batch // the newest: eventsKept
	keep     int     // events that are kept for streams that begin later
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

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	server := grouptest.API{
		World: s.World, Admit: s.admit, Failed: http.StatusInternalServerError,
		Calls: map[string]grouptest.Call{
			ActionRegister: s.register, ActionJobs: s.listJobs, ActionJob: s.getJob, ActionJobAllocs: s.jobAllocs, ActionDeregister: s.deregister, ActionAllocs: s.listAllocs, ActionAlloc: s.getAlloc,
			ActionVars: s.listVars, ActionVar: s.getVar, ActionPutVar: s.putVar, ActionDeleteVar: s.deleteVar, ActionEvents: s.streamEvents, ActionLogs: s.sendLog, ActionExec: s.exec, ActionStats: s.stats, ActionNodes: s.listNodes,
		},
		Refuse: func(w http.ResponseWriter, status int, err error) { http.Error(w, grouptest.Message(err), status) },
	}
	server.ServeHTTP(w, r)
}

// admit checks token, namespace and the names of parameters.
func (s *Server) admit(action string, r *http.Request) error {
	if r.Header.Get("X-Nomad-Token") != Token {
		return &grouptest.Refusal{Status: http.StatusForbidden, Message: "Permission denied"}
	}
	for name := range r.URL.Query() {
		if !slices.Contains(strings.Fields(common+params[action]), name) {
			return bad("unknown parameter %q of %s", name, r.URL.Path)
		}
	}
	if ns := r.URL.Query().Get("namespace"); ns != "" && ns != s.Namespace && ns != "*" {
		return &grouptest.Refusal{Status: http.StatusForbidden, Message: "Permission denied"}
	}
	return nil
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

// setIndex sets the header of an answer.
func setIndex(w http.ResponseWriter, index uint64) {
	w.Header().Set("X-Nomad-Index", strconv.FormatUint(index, 10))
	w.Header().Set("X-Nomad-LastContact", "0")
	w.Header().Set("X-Nomad-KnownLeader", "true")
}

// page answers with a page of a list that is sorted by ID.
func page[T any](w http.ResponseWriter, r *http.Request, index uint64, all []T, id func(T) string) (any, error) {
	q := r.URL.Query()
	slices.SortFunc(all, func(a, b T) int { return strings.Compare(id(a), id(b)) })
	size := len(all)
	if text := q.Get("per_page"); text != "" {
		var err error
		if size, err = strconv.Atoi(text); err != nil || size < 1 {
			return nil, bad("per_page is %q", text)
		}
	}
	setIndex(w, index)
	list := []T{}
	for _, one := range all {
		if id(one) < q.Get("next_token") {
			continue
		}
		if len(list) == size {
			w.Header().Set("X-Nomad-NextToken", id(one))
			break
		}
		list = append(list, one)
	}
	return list, nil
}
