package acitest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	azfake "github.com/Azure/azure-sdk-for-go/sdk/azcore/fake"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	aci "github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/containerinstance/armcontainerinstance/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/containerinstance/armcontainerinstance/v2/fake"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
)

// What the fake knows.
const (
	Subscription  = "00000000-1111-2222-3333-444444444444"
	ResourceGroup = "aci-group"
	Region        = "westeurope"
)

// The actions, as the World knows them: names of methods of the SDK.
const (
	ActionCreate = "ContainerGroupsClient.BeginCreateOrUpdate"
	ActionDelete = "ContainerGroupsClient.BeginDelete"
	ActionStop   = "ContainerGroupsClient.Stop"
	ActionGet    = "ContainerGroupsClient.Get"
	ActionList   = "ContainerGroupsClient.NewListByResourceGroupPager"
	ActionLogs   = "ContainersClient.ListLogs"
	ActionExec   = "ContainersClient.ExecuteCommand"
	ActionAttach = "ContainersClient.Attach"
	ActionUsage  = "LocationClient.NewListUsagePager"
	ActionLimits = "LocationClient.NewListCapabilitiesPager"
)

// Server is Azure Resource Manager. It is a policy.Transporter of Azure's clients, and an
// http.Handler for others.
type Server struct {
	// World has the units of the groups.
	World *grouptest.World
	// PageSize is how many groups a page has at most, and MaxGroups the quota of the region.
	PageSize, MaxGroups int
	// Sessions is the address of the WebSockets of commands.
	Sessions string
	// Stale has lists have no groups, as those of a region that Resource Manager does not know
	// to have any.
	Stale bool
	// Unreadable is the name of a group whose state Azure fails to find out.
	Unreadable string

	sdk *fake.ServerFactoryTransport
	// creating has creations take turns: of two with one name the second is an update.
	creating sync.Mutex
	mu       sync.Mutex
	sessions map[string]Session // by password
	standby  string
	moved    map[string]string // the provisioning states of groups that were moved, or are, by pod
	stopped  map[string]bool   // the groups that were stopped, by ID
}

// Session is what a WebSocket is for.
type Session struct{ Group, Container, Command string }

// New returns a server.
func New(w *grouptest.World) *Server {
	s := &Server{World: w, PageSize: 100, MaxGroups: 5000, Sessions: "ws://sessions.test", sessions: map[string]Session{}, moved: map[string]string{}, stopped: map[string]bool{}}
	s.sdk = fake.NewServerFactoryTransport(&fake.ServerFactory{
		ContainerGroupsServer: fake.ContainerGroupsServer{
			BeginCreateOrUpdate: func(ctx context.Context, in, name string, group aci.ContainerGroup, _ *aci.ContainerGroupsClientBeginCreateOrUpdateOptions) (resp azfake.PollerResponder[aci.ContainerGroupsClientCreateOrUpdateResponse], errResp azfake.ErrorResponder) {
				answerTo(ctx).set(s.create(in, name, &group))
				resp.SetTerminalResponse(http.StatusOK, aci.ContainerGroupsClientCreateOrUpdateResponse{}, nil)
				return resp, errResp
			},
			BeginDelete: func(ctx context.Context, in, name string, _ *aci.ContainerGroupsClientBeginDeleteOptions) (resp azfake.PollerResponder[aci.ContainerGroupsClientDeleteResponse], errResp azfake.ErrorResponder) {
				answerTo(ctx).set(s.delete(in, name))
				resp.SetTerminalResponse(http.StatusOK, aci.ContainerGroupsClientDeleteResponse{}, nil)
				return resp, errResp
			},
			Stop: func(ctx context.Context, in, name string, _ *aci.ContainerGroupsClientStopOptions) (resp azfake.Responder[aci.ContainerGroupsClientStopResponse], errResp azfake.ErrorResponder) {
				answerTo(ctx).set(s.stop(in, name))
				resp.SetResponse(http.StatusNoContent, aci.ContainerGroupsClientStopResponse{}, nil)
				return resp, errResp
			},
			Get: func(ctx context.Context, in, name string, _ *aci.ContainerGroupsClientGetOptions) (resp azfake.Responder[aci.ContainerGroupsClientGetResponse], errResp azfake.ErrorResponder) {
				answerTo(ctx).set(s.get(in, name))
				resp.SetResponse(http.StatusOK, aci.ContainerGroupsClientGetResponse{}, nil)
				return resp, errResp
			},
		},
		ContainersServer: fake.ContainersServer{
			ListLogs: func(ctx context.Context, in, group, container string, options *aci.ContainersClientListLogsOptions) (resp azfake.Responder[aci.ContainersClientListLogsResponse], errResp azfake.ErrorResponder) {
				answerTo(ctx).set(s.logs(in, group, container, options))
				resp.SetResponse(http.StatusOK, aci.ContainersClientListLogsResponse{}, nil)
				return resp, errResp
			},
			ExecuteCommand: func(ctx context.Context, in, group, container string, request aci.ContainerExecRequest, _ *aci.ContainersClientExecuteCommandOptions) (resp azfake.Responder[aci.ContainersClientExecuteCommandResponse], errResp azfake.ErrorResponder) {
				answerTo(ctx).set(s.session(in, group, container, request.Command))
				resp.SetResponse(http.StatusOK, aci.ContainersClientExecuteCommandResponse{}, nil)
				return resp, errResp
			},
			Attach: func(ctx context.Context, in, group, container string, _ *aci.ContainersClientAttachOptions) (resp azfake.Responder[aci.ContainersClientAttachResponse], errResp azfake.ErrorResponder) {
				answerTo(ctx).set(s.session(in, group, container, nil))
				resp.SetResponse(http.StatusOK, aci.ContainersClientAttachResponse{}, nil)
				return resp, errResp
			},
		},
	})
	return s
}

// answer is what the server answers, instead of the SDK's fake, which can neither ask to wait
// nor have pages with tokens.
type answer struct {
	status int
	body   any
	err    error
}

func (a *answer) set(status int, body any, err error) { *a = answer{status, body, err} }

type answerKey struct{}

func answerTo(ctx context.Context) *answer { return ctx.Value(answerKey{}).(*answer) }

func refuse(status int, code, format string, args ...any) error {
	return &grouptest.Refusal{Status: status, Code: code, Message: fmt.Sprintf(format, args...)}
}

// parameters are those of the query that each action has beside the version of the API.
var parameters = map[string][]string{ActionList: {"$skiptoken"}, ActionLogs: {"tail", "timestamps"}}

// Do implements policy.Transporter.
func (s *Server) Do(r *http.Request) (*http.Response, error) {
	action, _ := r.Context().Value(runtime.CtxAPINameKey{}).(string)
	if action == "" && strings.Contains(r.URL.RawQuery, "skiptoken") { // a page by its link
		action = ActionList
	}
	var a answer
	err := s.World.Serve(r.Context(), action, func() error {
		if err := s.admit(r, action); err != nil {
			return err
		}
		switch action {
		case ActionList:
			a.set(s.list(r))
		case ActionUsage:
			a.set(http.StatusOK, s.usage(), nil)
		case ActionLimits:
			a.set(http.StatusOK, limits(), nil)
		default:
			ctx := context.WithValue(r.Context(), answerKey{}, &a)
			response, err := s.sdk.Do(r.WithContext(ctx))
			if err != nil {
				return refuse(http.StatusBadRequest, "InvalidRequestContent", "%v", err)
			}
			_ = response.Body.Close() // in memory
		}
		return a.err
	})
	header := http.Header{"Content-Type": {"application/json"}, "X-Ms-Ratelimit-Remaining-Subscription-Reads": {"249"}}
	refusal, refused := errors.AsType[*grouptest.Refusal](err)
	switch {
	case err == nil:
	case refused:
		a.status = refusal.Status
	case errors.Is(err, grouptest.ErrQuota):
		refusal, a.status = &grouptest.Refusal{Code: "SubscriptionRequestsThrottled", Message: "Number of requests exceeded the limit. Please try again after 15 seconds."}, http.StatusTooManyRequests
		header.Set("Retry-After", "15")
	case errors.Is(err, grouptest.ErrNotFound):
		refusal, a.status = &grouptest.Refusal{Code: "ResourceNotFound", Message: "The resource was not found."}, http.StatusNotFound
	default: // ErrLost, or the caller has given up
		return nil, err
	}
	if refusal != nil {
		a.body = map[string]any{"error": map[string]any{"code": refusal.Code, "message": refusal.Message, "details": []any{}}}
	}
	var text []byte
	if a.status != http.StatusNoContent {
		if text, err = json.Marshal(a.body); err != nil {
			return nil, err
		}
	}
	return &http.Response{
		StatusCode: a.status, Status: fmt.Sprintf("%d %s", a.status, http.StatusText(a.status)), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: header, Body: io.NopCloser(bytes.NewReader(text)), ContentLength: int64(len(text)), Request: r,
	}, nil
}

// ServeHTTP implements http.Handler, for clients of another process: it also is the endpoint
// of a managed identity (IDENTITY_ENDPOINT).
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/identity" {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"access_token": "token", "expires_on": "4102444800", "resource": "https://management.azure.com", "token_type": "Bearer"}`)
		return
	}
	link := *r.URL
	link.Scheme, link.Host = "https", r.Host
	r = r.WithContext(context.WithValue(r.Context(), runtime.CtxAPINameKey{}, methodOf(r)))
	r.URL = &link
	answer, err := s.Do(r)
	if err != nil {
		panic(http.ErrAbortHandler) // the answer is lost
	}
	maps.Copy(w.Header(), answer.Header)
	w.WriteHeader(answer.StatusCode)
	_, _ = io.Copy(w, answer.Body) // the client may have gone
}

// methodOf returns the method of the SDK that makes a request.
func methodOf(r *http.Request) string {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch last := parts[len(parts)-1]; {
	case last == "usages":
		return ActionUsage
	case last == "capabilities":
		return ActionLimits
	case last == "containerGroups":
		return ActionList
	case last == "logs":
		return ActionLogs
	case last == "stop":
		return ActionStop
	case last == "exec":
		return ActionExec
	case last == "attach":
		return ActionAttach
	}
	return map[string]string{http.MethodPut: ActionCreate, http.MethodDelete: ActionDelete, http.MethodGet: ActionGet}[r.Method]
}

// admit checks what Azure Resource Manager does before it passes a request on.
func (s *Server) admit(r *http.Request, action string) error {
	if !strings.HasPrefix(r.Header.Get("Authorization"), "Bearer ") {
		return refuse(http.StatusUnauthorized, "AuthenticationFailed", "Authentication failed. The 'Authorization' header is missing.")
	}
	query := r.URL.Query()
	version := query.Get("api-version")
	if version != "2023-05-01" && version != "2025-09-01" {
		return refuse(http.StatusBadRequest, "InvalidApiVersionParameter", "The api-version '%s' is invalid.", version)
	}
	for name := range query {
		if name != "api-version" && !slices.Contains(parameters[action], name) {
			return refuse(http.StatusBadRequest, "InvalidQueryParameter", "The parameter %s is not supported.", name)
		}
	}
	if !strings.HasPrefix(r.URL.Path, "/subscriptions/"+Subscription+"/") {
		return refuse(http.StatusNotFound, "SubscriptionNotFound", "The subscription could not be found.")
	}
	if r.Method != http.MethodPut {
		return nil
	}
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	r.Body = io.NopCloser(bytes.NewReader(text))
	if len(text) > 4<<20 {
		return refuse(http.StatusRequestEntityTooLarge, "RequestEntityTooLarge", "The request is larger than 4 MB.")
	}
	return s.unknownFields(text, version)
}

// unknownFields refuses what the models of the SDK do not have, but for a standby pool in the
// version of the API that has them.
func (s *Server) unknownFields(text []byte, version string) error {
	var group aci.ContainerGroup
	var sent, known map[string]any
	err := errors.Join(json.Unmarshal(text, &group), json.Unmarshal(text, &sent))
	if err == nil {
		var again []byte
		if again, err = json.Marshal(group); err == nil {
			err = json.Unmarshal(again, &known)
		}
	}
	if err != nil {
		return refuse(http.StatusBadRequest, "InvalidRequestContent", "The request content was invalid: %v", err)
	}
	if properties, ok := sent["properties"].(map[string]any); ok && version == "2025-09-01" {
		pool, _ := properties["standbyPoolProfile"].(map[string]any)
		profile, _ := properties["containerGroupProfile"].(map[string]any)
		s.mu.Lock()
		s.standby = fmt.Sprintf("%v %v %v", pool["id"], profile["id"], profile["revision"])
		s.mu.Unlock()
		delete(properties, "standbyPoolProfile")
		delete(properties, "containerGroupProfile")
	}
	if at := surplus(sent, known, ""); at != "" {
		return refuse(http.StatusBadRequest, "InvalidRequestContent", "Could not find member '%s' on object.", at)
	}
	return nil
}

func surplus(sent, known any, at string) string {
	switch sent := sent.(type) {
	case map[string]any:
		object, _ := known.(map[string]any)
		for key, value := range sent {
			inner, ok := object[key]
			if !ok {
				return at + "." + key
			}
			if found := surplus(value, inner, at+"."+key); found != "" {
				return found
			}
		}
	case []any:
		list, _ := known.([]any)
		for i, value := range sent {
			if found := surplus(value, list[i], at); found != "" {
				return found
			}
		}
	}
	return ""
}

// Standby returns the standby pool, profile and revision of the last creation that had one.
func (s *Server) Standby() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.standby
}

// Credential is a credential that Azure takes.
func Credential() azcore.TokenCredential { return &azfake.TokenCredential{} }
