// Package batchtest is a fake of the REST API of Azure Batch, as far as package azurebatch
// calls it. It refuses what the service refuses.
package batchtest

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
)

// The account, its key, the pool, and the version of the API.
const (
	Account = "pods"
	Key     = "bm90LXRvLWJlLXNob3du"
	Pool    = "cpus"
	version = "2024-07-01.20.0"
)

// The actions, as the World knows them. ActionTask is the creation of one task, of those that
// a call adds.
const (
	ActionTask       = "task"
	ActionAdd        = "POST /jobs/{job}/addtaskcollection"
	ActionList       = "GET /jobs/{job}/tasks"
	ActionGet        = "GET /jobs/{job}/tasks/{task}"
	ActionDelete     = "DELETE /jobs/{job}/tasks/{task}"
	ActionTerminate  = "POST /jobs/{job}/tasks/{task}/terminate"
	ActionFile       = "GET /jobs/{job}/tasks/{task}/files/{file}"
	ActionFileSize   = "HEAD /jobs/{job}/tasks/{task}/files/{file}"
	ActionJob        = "POST /jobs"
	ActionGetJob     = "GET /jobs/{job}"
	ActionPool       = "GET /pools/{pool}"
	ActionNodeCounts = "GET /nodecounts"
	ActionNodes      = "GET /pools/{pool}/nodes"
)

type call struct {
	serve  func(s *Server, r *http.Request, header http.Header) (status int, answer any, err error)
	params string // of the query, beside the version
}

var calls = map[string]call{
	ActionAdd: {(*Server).add, "timeOut"}, ActionList: {(*Server).list, "$select $filter $expand maxresults timeOut $skiptoken"}, ActionGet: {(*Server).get, "$select $expand timeOut"},
	ActionDelete: {(*Server).delete, "timeOut"}, ActionTerminate: {(*Server).terminate, "timeOut"}, ActionFile: {(*Server).file, "timeOut"}, ActionFileSize: {(*Server).file, "timeOut"},
	ActionJob: {(*Server).createJob, "timeOut"}, ActionGetJob: {(*Server).getJob, "$select $expand timeOut"}, ActionPool: {(*Server).getPool, "$select $expand timeOut"}, ActionNodeCounts: {(*Server).nodeCounts, "$filter maxresults timeOut"},
	ActionNodes: {(*Server).nodes, "$select $filter maxresults timeOut"},
}

// Server is Batch, at any address. It is an http.Handler.
type Server struct {
	// World has the tasks' units.
	World *grouptest.World
	// Containers is whether the pool is one for containers.
	Containers bool
	// PageSize is how many tasks a page has at most.
	PageSize int
	// Properties are those of the pool that are not the default.
	Properties map[string]any
	// Unusable is how many machines are so.
	Unusable int
	// NoFiles has the machines be gone.
	NoFiles bool
	// Files are further files of tasks, by the ID of the task and their name.
	Files map[string]string

	mu     sync.Mutex
	jobs   map[string]string // their states, by their IDs
	tokens map[string]bool
}

// New returns a server.
func New(w *grouptest.World) *Server {
	return &Server{World: w, PageSize: 1000, jobs: map[string]string{}, tokens: map[string]bool{}, Files: map[string]string{}}
}

// AllowToken has calls with a token of Microsoft Entra ID be admitted.
func (s *Server) AllowToken(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens[token] = true
}

// DeleteJobs removes all jobs.
func (s *Server) DeleteJobs() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.jobs)
}

// SetJobs sets the state of all jobs.
func (s *Server) SetJobs(state string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range s.jobs {
		s.jobs[id] = state
	}
}

// refuse is an error of the service.
func refuse(status int, code, reason string) error {
	return &grouptest.Refusal{Status: status, Code: code, Message: reason}
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	mux := http.NewServeMux()
	for action, c := range calls {
		if method, _, _ := strings.Cut(action, " "); method == r.Method { // HEAD is not GET
			mux.HandleFunc(action, func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, action, c) })
		}
	}
	mux.ServeHTTP(w, r)
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request, action string, c call) {
	status, answer := http.StatusOK, any(nil)
	err := s.World.Serve(r.Context(), action, func() (err error) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = s.admit(r, int64(len(body)), c.params)
		}
		if err == nil {
			r.Body = io.NopCloser(strings.NewReader(string(body)))
			status, answer, err = c.serve(s, r, w.Header())
		}
		return err
	})
	if err != nil {
		status, answer = s.refusal(w, err)
	}
	w.Header().Set("request-id", "4c8f0c2e-2d56-4cd3-8152-34347dc9f2b0")
	if text, ok := answer.(string); ok {
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("Content-Length", strconv.Itoa(len(text)))
		w.WriteHeader(status)
		if r.Method != http.MethodHead {
			_, _ = io.WriteString(w, text) // the client may have gone
		}
		return
	}
	w.Header().Set("Content-Type", "application/json;odata=minimalmetadata")
	w.WriteHeader(status)
	if answer != nil && r.Method != http.MethodHead {
		_ = json.NewEncoder(w).Encode(answer) // as above
	}
}

// refusal is the answer of an error.
func (s *Server) refusal(w http.ResponseWriter, err error) (status int, answer any) {
	refused, ok := errors.AsType[*grouptest.Refusal](err)
	switch {
	case errors.Is(err, grouptest.ErrQuota):
		w.Header().Set("Retry-After", "12")
		refused = &grouptest.Refusal{Status: http.StatusServiceUnavailable, Code: "ServerBusy", Message: "The server is busy"}
	case !ok:
		refused = &grouptest.Refusal{Status: grouptest.HTTPStatus(err), Code: "InvalidRequestBody", Message: err.Error()}
	}
	return refused.Status, errorOf(refused.Code, refused.Message)
}

// errorOf is an error as the service writes it.
func errorOf(code, reason string) map[string]any {
	return map[string]any{
		"odata.metadata": "https://pods.westeurope.batch.azure.com/$metadata#Microsoft.Azure.Batch.Protocol.Entities.Container.errors/@Element", "code": code,
		"message": map[string]any{"lang": "en-US", "value": "The request is refused.\nRequestId:4c8f0c2e-2d56-4cd3-8152-34347dc9f2b0\nTime:2026-01-02T03:04:05.0000000Z"},
		"values":  []any{map[string]any{"key": "PropertyValue", "value": "echo of what was sent"}, map[string]any{"key": "Reason", "value": reason}},
	}
}

// maxBody is how long a request may be.
const maxBody = 1 << 20

// admit checks what all calls have.
func (s *Server) admit(r *http.Request, length int64, params string) error {
	for name := range r.URL.Query() {
		if name != "api-version" && !slices.Contains(strings.Fields(params), name) {
			return refuse(http.StatusBadRequest, "UnsupportedQueryParameter", name)
		}
	}
	kind := r.Header.Get("Content-Type")
	switch given := r.URL.Query().Get("api-version"); {
	case given == "":
		return refuse(http.StatusBadRequest, "MissingRequiredQueryParameter", "api-version")
	case given != version:
		return refuse(http.StatusBadRequest, "InvalidQueryParameterValue", "api-version")
	case !s.isAuthentic(r, length):
		return refuse(http.StatusForbidden, "AuthenticationFailed", "the Authorization header is not valid")
	case length > 0 && !strings.EqualFold(strings.ReplaceAll(kind, " ", ""), "application/json;odata=minimalmetadata"):
		return refuse(http.StatusBadRequest, "InvalidHeaderValue", "Content-Type")
	case length > maxBody:
		return refuse(http.StatusRequestEntityTooLarge, "RequestBodyTooLarge", "MaxLimit: 1048576")
	}
	return nil
}

// maxSkew is how old a signed request may be.
const maxSkew = 15 * time.Minute

// isAuthentic checks the token or the signature of a request.
func (s *Server) isAuthentic(r *http.Request, length int64) bool {
	scheme, value, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if scheme == "Bearer" {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.tokens[value]
	}
	date, err := http.ParseTime(r.Header.Get("ocp-date"))
	if scheme != "SharedKey" || err != nil || s.World.Now().Sub(date).Abs() > maxSkew {
		return false
	}
	size := ""
	if length > 0 || r.Method == http.MethodPost {
		size = strconv.FormatInt(length, 10)
	}
	h := r.Header.Get
	var text strings.Builder
	fmt.Fprintf(&text, "%s\n%s\n%s\n%s\n%s\n%s\n%s\n%s\n%s\n%s\n%s\n%s\n", r.Method, h("Content-Encoding"), h("Content-Language"), size, h("Content-MD5"), h("Content-Type"), h("Date"),
		h("If-Modified-Since"), h("If-Match"), h("If-None-Match"), h("If-Unmodified-Since"), h("Range"))
	var ocp []string
	for name := range r.Header {
		if name := strings.ToLower(name); strings.HasPrefix(name, "ocp-") {
			ocp = append(ocp, name+":"+h(name)+"\n")
		}
	}
	slices.Sort(ocp)
	text.WriteString(strings.Join(ocp, "") + "/" + Account + r.URL.EscapedPath())
	query := strings.Split(r.URL.RawQuery, "&")
	for i, pair := range query {
		name, value, _ := strings.Cut(pair, "=")
		name, _ = url.QueryUnescape(name)
		value, _ = url.QueryUnescape(value)
		query[i] = "\n" + strings.ToLower(name) + ":" + value
	}
	slices.Sort(query)
	text.WriteString(strings.Join(query, ""))
	key, _ := base64.StdEncoding.DecodeString(Key)
	sum := hmac.New(sha256.New, key)
	sum.Write([]byte(text.String()))
	return value == Account+":"+base64.StdEncoding.EncodeToString(sum.Sum(nil))
}

// selected returns the properties that a query selects.
func selected(r *http.Request, all map[string]any) (map[string]any, error) {
	text := r.URL.Query().Get("$select")
	if text == "" {
		return all, nil
	}
	some := map[string]any{}
	for name := range strings.SplitSeq(text, ",") {
		value, ok := all[name]
		if !ok {
			return nil, refuse(http.StatusBadRequest, "InvalidQueryParameterValue", "$select "+name)
		}
		some[name] = value
	}
	return some, nil
}

func (s *Server) createJob(r *http.Request, _ http.Header) (int, any, error) {
	var job struct {
		ID       string `json:"id"`
		PoolInfo struct {
			PoolID string `json:"poolId"`
		} `json:"poolInfo"`
	}
	if err := json.NewDecoder(r.Body).Decode(&job); err != nil {
		return 0, nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !idRule.MatchString(job.ID):
		return 0, nil, refuse(http.StatusBadRequest, "InvalidPropertyValue", "id")
	case job.PoolInfo.PoolID != Pool:
		return 0, nil, refuse(http.StatusNotFound, "PoolNotFound", job.PoolInfo.PoolID)
	case s.jobs[job.ID] != "":
		return 0, nil, refuse(http.StatusConflict, "JobExists", job.ID)
	}
	s.jobs[job.ID] = "active"
	return http.StatusCreated, nil, nil
}

func (s *Server) getJob(r *http.Request, _ http.Header) (int, any, error) {
	state, err := s.jobState(r)
	if err != nil {
		return 0, nil, err
	}
	some, err := selected(r, map[string]any{"id": r.PathValue("job"), "state": state, "poolInfo": map[string]any{"poolId": Pool}})
	return http.StatusOK, some, err
}

func (s *Server) getPool(r *http.Request, _ http.Header) (int, any, error) {
	if r.PathValue("pool") != Pool {
		return 0, nil, refuse(http.StatusNotFound, "PoolNotFound", r.PathValue("pool"))
	}
	pool := map[string]any{
		"id": Pool, "state": "active", "vmSize": "standard_d4s_v3", "taskSlotsPerNode": 4, "enableAutoScale": false, "currentDedicatedNodes": 2, "currentLowPriorityNodes": 1,
		"targetDedicatedNodes": 2, "targetLowPriorityNodes": 1, "allocationState": "steady", "autoScaleFormula": nil, "virtualMachineConfiguration": map[string]any{"nodeAgentSKUId": "batch.node.ubuntu 22.04"},
	}
	if s.Containers {
		pool["virtualMachineConfiguration"] = map[string]any{"nodeAgentSKUId": "batch.node.ubuntu 22.04", "containerConfiguration": map[string]any{"type": "dockerCompatible"}}
	}
	for name, value := range s.Properties {
		pool[name] = value
	}
	some, err := selected(r, pool)
	return http.StatusOK, some, err
}

func (s *Server) nodeCounts(r *http.Request, _ http.Header) (int, any, error) {
	if filter := r.URL.Query().Get("$filter"); filter != "poolId eq '"+Pool+"'" {
		return 0, nil, refuse(http.StatusBadRequest, "InvalidQueryParameterValue", "$filter")
	}
	counts := map[string]any{"total": 3, "idle": 3 - s.Unusable, "unusable": s.Unusable}
	return http.StatusOK, map[string]any{"value": []any{map[string]any{"poolId": Pool, "dedicated": counts, "lowPriority": map[string]any{"total": 0}}}}, nil
}

// node is the only machine on which tasks run.
const node = "tvmps_1_p"

func (s *Server) nodes(r *http.Request, _ http.Header) (int, any, error) {
	some, err := selected(r, map[string]any{"id": node, "state": "running", "ipAddress": "10.0.0.4", "isDedicated": true})
	return http.StatusOK, map[string]any{"value": []any{some}}, err
}
