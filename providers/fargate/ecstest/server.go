// Package ecstest is a fake of the APIs of Amazon ECS, Session Manager, Secrets Manager and
// CloudWatch Logs, as far as package
// fargate calls them. It refuses fields that the API does not have, states that do not allow a
// call, and sizes that Fargate does not sell.
package ecstest

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ecs"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
)

// Cluster is the only one, in HomeAccount, and AccessKey the key that has to have signed requests.
const (
	Cluster     = "home"
	HomeAccount = "123456789012"
	AccessKey   = "AKIDEXAMPLE"
)

// Server is ECS and CloudWatch Logs, at any address. It is an http.Handler.
type Server struct {
	World *grouptest.World
	// Account is whose the access key is: HomeAccount, unless it is set.
	Account string
	// Faults are those of sessions.
	Faults Faults

	mu        sync.Mutex
	clusters  map[string]bool
	families  map[string][]*revision
	reasons   map[string]string // of stopped tasks, by ID
	codes     map[string]string // of those that were not stopped by their users
	sessions  map[string]commandSession
	secrets   map[string]secret // by name
	stopped   []grouptest.Unit
	unhealthy map[string]string    // health of containers, by task and name
	untagged  map[string]bool      // tasks that StopTask was called for, by ID
	lacking   int                  // how many requests will find no capacity
	lacked    map[string]string    // those that have, by token
	tokens    map[string]string    // the tasks of tokens
	slow      bool                 // secrets that are deleted exist on
	abandoned int                  // commands whose client has gone without ending them
	failing   int                  // how many tasks will not start
	why       string               // they will not
	unstarted map[string]time.Time // tasks that did not start, and when, by ID
}

// revision is a task definition.
type revision struct {
	ecs.RegisterTaskDefinitionInput
	name, status string // family:1
}

// New returns a server.
func New(w *grouptest.World) *Server {
	return &Server{World: w, Account: HomeAccount, clusters: map[string]bool{Cluster: true}, families: map[string][]*revision{}, reasons: map[string]string{}, sessions: map[string]commandSession{}, secrets: map[string]secret{}, codes: map[string]string{}, unhealthy: map[string]string{}, untagged: map[string]bool{}, lacked: map[string]string{}, tokens: map[string]string{}, unstarted: map[string]time.Time{}}
}

func refuse(code, message string) error {
	return &grouptest.Refusal{Status: http.StatusBadRequest, Code: code, Message: message}
}

func client(message string) error { return refuse("ClientException", message) }

func invalid(message string) error { return refuse("InvalidParameterException", message) }

type object = map[string]any

// calls are those of the APIs, by target.
var calls = map[string]func(s *Server, r *http.Request) (any, error){
	ecsTarget + "CreateCluster":              call((*Server).createCluster),
	ecsTarget + "DescribeClusters":           call((*Server).describeClusters),
	ecsTarget + "RegisterTaskDefinition":     call((*Server).register),
	ecsTarget + "DescribeTaskDefinition":     call((*Server).describeDefinition),
	ecsTarget + "DeregisterTaskDefinition":   call((*Server).deregister),
	ecsTarget + "DeleteTaskDefinitions":      call((*Server).deleteDefinitions),
	ecsTarget + "ListTaskDefinitionFamilies": call((*Server).listFamilies),
	ecsTarget + "ListTaskDefinitions":        call((*Server).listDefinitions),
	ecsTarget + "RunTask":                    call((*Server).run),
	ecsTarget + "ExecuteCommand":             call((*Server).executeCommand),
	ecsTarget + "StopTask":                   call((*Server).stop),
	ecsTarget + "ListTasks":                  call((*Server).list),
	ecsTarget + "DescribeTasks":              call((*Server).describe),
	"secretsmanager.CreateSecret":            call((*Server).createSecret),
	"secretsmanager.DescribeSecret":          call((*Server).describeSecret),
	"secretsmanager.GetSecretValue":          call((*Server).secretText),
	"secretsmanager.ListSecrets":             call((*Server).listSecrets),
	"secretsmanager.DeleteSecret":            call((*Server).deleteSecret),
	"Logs_20140328.GetLogEvents":             call((*Server).logEvents),
}

const ecsTarget = "AmazonEC2ContainerServiceV20141113."

// call decodes requests strictly.
func call[T any](f func(*Server, T) (any, error)) func(*Server, *http.Request) (any, error) {
	return func(s *Server, r *http.Request) (any, error) {
		var in T
		decoder := json.NewDecoder(r.Body)
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&in); err != nil {
			return nil, invalid(err.Error())
		}
		return f(s, in)
	}
}

// ServeHTTP implements http.Handler: the protocol AWS JSON 1.1.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, channelPath) {
		s.serveChannel(w, r)
		return
	}
	target := r.Header.Get("X-Amz-Target")
	var answer any
	err := s.World.Serve(r.Context(), target[strings.LastIndexByte(target, '.')+1:], func() (err error) {
		if !strings.Contains(r.Header.Get("Authorization"), "Credential="+AccessKey+"/") {
			return refuse("UnrecognizedClientException", "The security token included in the request is invalid.")
		}
		serve, found := calls[target]
		if !found {
			return refuse("UnknownOperationException", target)
		}
		answer, err = serve(s, r)
		return err
	})
	status := grouptest.HTTPStatus(err)
	if err != nil {
		code, message := "ClientException", err.Error()
		refusal, refused := errors.AsType[*grouptest.Refusal](err)
		switch {
		case refused:
			code, message = refusal.Code, refusal.Message
		case errors.Is(err, grouptest.ErrQuota):
			status, code, message = http.StatusBadRequest, "ThrottlingException", "Rate exceeded"
		case errors.Is(err, grouptest.ErrTokenReused):
			status, code = http.StatusBadRequest, "ConflictException"
		}
		shown := object{"__type": code, "message": message}
		if used, ok := errors.AsType[tokenUsed](err); ok {
			shown["resourceIds"] = used.tasks
		}
		answer = shown
	}
	w.Header().Set("Content-Type", "application/x-amz-json-1.1")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer) // the client may have gone
}

// tokenUsed is the error of a request whose token was used for another one, which has started these
// tasks, or none.
type tokenUsed struct{ tasks []string }

// Error implements error.
func (tokenUsed) Error() string { return grouptest.ErrTokenReused.Error() }

// Is has it be a grouptest.ErrTokenReused.
func (tokenUsed) Is(target error) bool { return target == grouptest.ErrTokenReused }

// RemoveCluster removes the cluster.
func (s *Server) RemoveCluster() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.clusters)
}

func (s *Server) createCluster(in ecs.CreateClusterInput) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range in.CapacityProviders {
		if !slices.Contains([]string{"FARGATE", "FARGATE_SPOT"}, name) {
			return nil, invalid("The specified capacity provider was not found.")
		}
	}
	s.clusters[*in.ClusterName] = true
	return object{"cluster": object{"clusterName": *in.ClusterName, "status": "ACTIVE"}}, nil
}

func (s *Server) hasCluster(name *string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if name == nil || !s.clusters[*name] {
		return refuse("ClusterNotFoundException", "Cluster not found.")
	}
	return nil
}

func (s *Server) describeClusters(in ecs.DescribeClustersInput) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, failures := []any{}, []any{}
	for _, name := range in.Clusters {
		at := "arn:aws:ecs:eu-west-1:" + s.Account + ":cluster/" + name
		if s.clusters[name] {
			found = append(found, object{"clusterArn": at, "clusterName": name, "status": "ACTIVE"})
		} else {
			failures = append(failures, object{"arn": at, "reason": "MISSING"})
		}
	}
	return object{"clusters": found, "failures": failures}, nil
}

func arn(resource string) string { return "arn:aws:ecs:eu-west-1:" + HomeAccount + ":" + resource }
