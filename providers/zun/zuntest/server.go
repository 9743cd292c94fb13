package zuntest

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
)

// The credentials that Keystone takes, and the region of the endpoint.
const (
	User     = "demo"
	Password = "not-to-be-shown"
	Project  = "demo-project"
	Region   = "RegionOne"
)

// The actions, as the World knows them: method and path.
const (
	ActionToken  = "POST /v3/auth/tokens"
	ActionCreate = "POST /v1/capsules"
	ActionList   = "GET /v1/capsules"
	ActionGet    = "GET /v1/capsules/{id}"
	ActionDelete = "DELETE /v1/capsules/{id}"
	ActionShow   = "GET /v1/containers/{id}"
	ActionLogs   = "GET /v1/containers/{id}/logs"
	ActionExec   = "POST /v1/containers/{id}/execute"
	ActionStats  = "GET /v1/containers/{id}/stats"
)

// Server is Keystone and Zun, at any address. It is an http.Handler.
type Server struct {
	// World has the capsules' units.
	World *grouptest.World
	// MaxLimit is how many capsules a page has at most.
	MaxLimit int
	// HideContainers has containers of capsules be not found by themselves, as in versions
	// of Zun in which they are of another type.
	HideContainers bool
	// NoHosts has capsules be in error once they are created, as where no host is large enough.
	NoHosts bool
	// Shell runs the commands of execute; nil returns the command.
	Shell func(container string, words []string) (output string, code int)
	// Usage is what Docker measures of each container that runs: bytes of memory, and bytes that
	// the network of the capsule has received and sent.
	Usage struct{ Memory, Limit, Received, Sent uint64 }

	mu     sync.Mutex
	tokens map[string]time.Time // and when they end
}

// New returns a server.
func New(w *grouptest.World) *Server {
	return &Server{World: w, MaxLimit: 100, tokens: map[string]time.Time{}}
}

// EndTokens has all tokens end.
func (s *Server) EndTokens() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.tokens)
}

func refuse(status int, message string) error {
	return &grouptest.Refusal{Status: status, Code: http.StatusText(status), Message: message}
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	api := grouptest.API{World: s.World, Admit: s.admit, Refuse: answerRefusal, Calls: map[string]grouptest.Call{
		ActionToken: s.token, ActionCreate: s.create, ActionList: s.list, ActionGet: s.get, ActionDelete: s.delete,
		ActionShow: s.show, ActionLogs: s.logs, ActionExec: s.execute, ActionStats: s.stats,
	}}
	api.ServeHTTP(w, r)
}

// answerRefusal writes an error as Zun's middleware does. Title and detail of those that are the
// client's have the same text.
func answerRefusal(w http.ResponseWriter, status int, err error) {
	if errors.Is(err, grouptest.ErrQuota) { // of something before Zun, which has no limit of calls
		w.Header().Set("Retry-After", "30")
		http.Error(w, "Too Many Requests", status)
		return
	}
	detail := grouptest.Message(err)
	title := detail
	if status >= http.StatusInternalServerError {
		title = http.StatusText(status)
	}
	w.WriteHeader(status)
	refused := map[string]any{"request_id": "", "code": "", "status": status, "title": title, "detail": detail, "links": []any{}}
	_ = json.NewEncoder(w).Encode(map[string]any{"errors": []any{refused}}) // the client may have gone
}

// admit checks token and microversion: without one Zun takes its oldest, in which capsules
// have another form.
func (s *Server) admit(action string, r *http.Request) error {
	if action == ActionToken {
		return nil
	}
	s.mu.Lock()
	end, ok := s.tokens[r.Header.Get("X-Auth-Token")]
	s.mu.Unlock()
	if !ok || s.World.Now().After(end) {
		return refuse(http.StatusUnauthorized, "The request you have made requires authentication.")
	}
	minor, found := strings.CutPrefix(r.Header.Get("OpenStack-API-Version"), "container 1.")
	if n, err := strconv.Atoi(minor); !found || err != nil || n < 32 || n > 40 {
		return refuse(http.StatusNotAcceptable, "this server speaks microversions from 1.32 to 1.40")
	}
	return nil
}

// tokenLife is how long a token lasts.
const tokenLife = time.Hour

// token is Keystone's creation of a token by a password.
func (s *Server) token(w http.ResponseWriter, r *http.Request) (any, error) {
	var request struct {
		Auth struct {
			Identity struct {
				Methods  []string
				Password struct {
					User struct {
						Name, Password string
						Domain         struct{ ID, Name string }
					}
				}
			}
			Scope struct {
				Project struct {
					Name   string
					Domain struct{ ID, Name string }
				}
			}
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		return nil, err
	}
	user, project := request.Auth.Identity.Password.User, request.Auth.Scope.Project
	if user.Name != User || user.Password != Password || user.Domain.ID != "default" || project.Name != Project || project.Domain.ID != "default" {
		return nil, refuse(http.StatusUnauthorized, "The request you have made requires authentication.")
	}
	token := rand.Text()
	w.Header().Set("X-Subject-Token", token)
	end := s.World.Now().Add(tokenLife)
	s.mu.Lock()
	s.tokens[token] = end
	s.mu.Unlock()
	endpoint := map[string]any{"id": "1", "interface": "public", "region": Region, "region_id": Region, "url": "http://" + r.Host + "/v1"}
	w.WriteHeader(http.StatusCreated)
	return map[string]any{"token": map[string]any{
		"expires_at": end.UTC().Format("2006-01-02T15:04:05.000000Z"),
		"catalog":    []any{map[string]any{"id": "2", "type": "container", "name": "zun", "endpoints": []any{endpoint}}},
	}}, nil
}
