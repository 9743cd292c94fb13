// Package stackpathtest is a fake of the API of StackPath Edge Compute, as published.
package stackpathtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
)

// The credentials that the fake takes, and the only stack.
const (
	StackID      = "stack"
	ClientSecret = "hush"
)

// Server is the API: a codec on a World. Slugs are the tokens of creations. It is an
// http.Handler, and safe for concurrent use.
type Server struct {
	world *grouptest.World

	mu   sync.Mutex
	ends map[string]time.Time // of tokens
}

// New returns a server.
func New(w *grouptest.World) *Server { return &Server{world: w, ends: map[string]time.Time{}} }

type object = map[string]any

// fields are the fields of the published models, of objects that are sent.
var fields = strings.Fields(`workload name slug metadata labels spec containers imagePullCredentials dockerRegistry server username password networkInterfaces network enableOneToOneNat
	targets city-code deploymentScope deployments minReplicas maxReplicas selectors key operator values image command env value ports port protocol resources requests limits cpu memory`)

// unknown returns a field that no model has. Labels, variables, ports and containers have names of their own.
func unknown(in any, free bool) (found string) {
	tree, _ := in.(map[string]any)
	for key, value := range tree {
		if !free && !slices.Contains(fields, key) {
			return key
		}
		found += unknown(value, !free && slices.Contains([]string{"labels", "env", "ports", "containers"}, key))
	}
	return found
}

// ServeHTTP implements http.Handler.
func (f *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.Split(strings.TrimPrefix(r.URL.Path, "/workload/v1/stacks/"+StackID+"/workloads"), "/")
	var answer any
	err := f.world.Serve(r.Context(), r.Method+strings.Repeat("/", len(path)-1), func() (err error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if r.URL.Path == "/identity/v1/oauth2/token" {
			if r.FormValue("client_secret") != ClientSecret || r.FormValue("grant_type") != "client_credentials" {
				return &grouptest.Refusal{Status: http.StatusUnauthorized}
			}
			f.ends["Bearer t"] = f.world.Now().Add(time.Hour)
			answer = object{"access_token": "t", "expires_in": 3600}
			return nil
		}
		if f.world.Now().After(f.ends[r.Header.Get("Authorization")]) {
			return &grouptest.Refusal{Status: http.StatusUnauthorized}
		}
		answer, err = f.answer(r, path)
		return err
	})
	w.WriteHeader(grouptest.HTTPStatus(err))
	_ = json.NewEncoder(w).Encode(answer) // the client may have gone
}

func (f *Server) answer(r *http.Request, path []string) (any, error) {
	switch {
	case r.Method == http.MethodPost:
		return f.create(r)
	case r.Method == http.MethodDelete:
		return nil, f.world.Delete(path[1])
	case len(path) == 1:
		units, next, err := f.world.Page(f.world.Units(nil), r.URL.Query().Get("page_request.after"), 50)
		list := []any{}
		for i := range units {
			list = append(list, view(&units[i]))
		}
		return object{"results": list, "pageInfo": object{"hasNextPage": next != "", "endCursor": next}}, err
	}
	found := f.world.Units(func(u *grouptest.Unit) bool { return u.ID == path[1] || u.Spec.Token == path[1] })
	if len(found) == 0 {
		return nil, grouptest.ErrNotFound
	}
	switch u := &found[0]; len(path) {
	case 2:
		return object{"workload": view(u)}, nil
	case 3:
		return object{"results": []any{instanceOf(u)}}, nil
	}
	return nil, grouptest.ErrNotFound
}

func (f *Server) create(r *http.Request) (any, error) {
	var in struct {
		Workload struct {
			Slug     string
			Metadata struct{ Labels map[string]string }
			Spec     struct {
				Containers map[string]struct{ Image string }
			}
		}
	}
	var tree any
	body := json.NewDecoder(r.Body)
	if err := body.Decode(&tree); err != nil {
		return nil, err
	}
	text, _ := json.Marshal(tree)
	if err := json.Unmarshal(text, &in); err != nil {
		return nil, err
	}
	want := in.Workload
	if field := unknown(tree, false); field != "" || want.Slug == "" || len(want.Slug) > 63 || len(want.Spec.Containers) != 1 {
		return nil, fmt.Errorf("the workload is not valid: %s", field)
	}
	if taken := f.world.Units(func(u *grouptest.Unit) bool { return u.Spec.Token == want.Slug }); len(taken) > 0 {
		return nil, grouptest.ErrTokenReused
	}
	spec := grouptest.Spec{Token: want.Slug, Tags: want.Metadata.Labels, Data: string(text)}
	for name, c := range want.Spec.Containers {
		spec.Containers = []podgroup.Container{{Name: name, Image: c.Image}}
	}
	u, err := f.world.Create(spec)
	return object{"workload": view(&u)}, err
}

func view(u *grouptest.Unit) object {
	return object{"id": u.ID, "slug": u.Spec.Token, "metadata": object{"labels": u.Tags, "createdAt": u.Created}}
}

func instanceOf(u *grouptest.Unit) object {
	phases := map[podgroup.Phase]string{podgroup.Pending: "STARTING", podgroup.Running: "RUNNING", podgroup.Stopping: "RUNNING", podgroup.Failed: "FAILED"}
	i, statuses := object{"name": u.Spec.Token + "-city-code-dfw-0", "phase": phases[u.Phase]}, []any{}
	if u.Phase == podgroup.Stopping {
		i["deletedAt"] = u.Created
	}
	for _, c := range u.Containers {
		s := object{"name": c.Name, "ready": c.Now.State == podgroup.Executing, "restartCount": c.Restarts}
		if c.Now.State == podgroup.Executing {
			s["running"] = object{"startedAt": c.Now.Started}
		}
		statuses = append(statuses, s)
	}
	if i["containerStatuses"] = statuses; len(u.IPs) > 0 {
		i["ipAddress"] = u.IPs[0]
	}
	return i
}
