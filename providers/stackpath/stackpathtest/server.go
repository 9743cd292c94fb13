// Package stackpathtest is a fake of the API of StackPath Edge Compute, as published.
package stackpathtest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
)

// The credentials that the fake takes, and the only stack.
const (
	StackID      = "stack"
	ClientSecret = "hush"
)

// The calls, as the World knows them.
const (
	ActionToken     = "POST /identity/v1/oauth2/token"
	ActionCreate    = "POST /workload/v1/stacks/" + StackID + "/workloads"
	ActionList      = "GET /workload/v1/stacks/" + StackID + "/workloads"
	ActionDelete    = "DELETE /workload/v1/stacks/" + StackID + "/workloads/{slug}"
	ActionInstances = "GET /workload/v1/stacks/" + StackID + "/workloads/{slug}/instances"
)

// New returns the API: a codec on a World. Slugs are the tokens of creations. It is safe for
// concurrent use.
func New(w *grouptest.World) http.Handler {
	var mux http.ServeMux
	for action, call := range map[string]func(*grouptest.World, *http.Request) (any, error){
		ActionToken: token, ActionCreate: create, ActionList: list, ActionDelete: remove, ActionInstances: instances,
	} {
		mux.HandleFunc(action, func(to http.ResponseWriter, r *http.Request) {
			var answer any
			err := w.Serve(r.Context(), action, func() (err error) {
				// A token is the time at which it ends.
				end, _ := time.Parse("Bearer "+time.RFC3339, r.Header.Get("Authorization"))
				if action != ActionToken && w.Now().After(end) {
					return &grouptest.Refusal{Status: http.StatusUnauthorized}
				}
				answer, err = call(w, r)
				return err
			})
			to.WriteHeader(grouptest.HTTPStatus(err))
			_ = json.NewEncoder(to).Encode(answer) // the client may have gone
		})
	}
	return &mux
}

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

func token(w *grouptest.World, r *http.Request) (any, error) {
	if r.FormValue("client_secret") != ClientSecret || r.FormValue("grant_type") != "client_credentials" {
		return nil, &grouptest.Refusal{Status: http.StatusUnauthorized}
	}
	return object{"access_token": w.Now().Add(time.Hour).Format(time.RFC3339), "expires_in": 3600}, nil
}

func create(w *grouptest.World, r *http.Request) (any, error) {
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
	if _, err := find(w, want.Slug); err == nil {
		return nil, grouptest.ErrTokenReused
	}
	spec := grouptest.Spec{Token: want.Slug, Tags: want.Metadata.Labels, Data: string(text)}
	for name, c := range want.Spec.Containers {
		spec.Containers = []podgroup.Container{{Name: name, Image: c.Image}}
	}
	u, err := w.Create(spec)
	return object{"workload": view(&u)}, err
}

func find(w *grouptest.World, slug string) (grouptest.Unit, error) {
	found := w.Units(func(u *grouptest.Unit) bool { return slugOf(u) == slug })
	if len(found) == 0 {
		return grouptest.Unit{}, grouptest.ErrNotFound
	}
	return found[0], nil
}

func list(w *grouptest.World, r *http.Request) (any, error) {
	units, next, err := w.Page(w.Units(nil), r.URL.Query().Get("page_request.after"), 50)
	results := []any{}
	for i := range units {
		results = append(results, view(&units[i]))
	}
	return object{"results": results, "pageInfo": object{"hasNextPage": next != "", "endCursor": next}}, err
}

func remove(w *grouptest.World, r *http.Request) (any, error) {
	u, err := find(w, r.PathValue("slug"))
	if err != nil {
		return nil, err
	}
	return nil, w.Delete(u.ID)
}

// slugOf returns the slug of a workload; those that a World duplicates have no token.
func slugOf(u *grouptest.Unit) string { return cmp.Or(u.Spec.Token, u.ID) }

func view(u *grouptest.Unit) object {
	return object{"id": u.ID, "slug": slugOf(u), "metadata": object{"labels": u.Tags, "createdAt": u.Created}}
}

func instances(w *grouptest.World, r *http.Request) (any, error) {
	u, err := find(w, r.PathValue("slug"))
	phases := map[podgroup.Phase]string{podgroup.Pending: "STARTING", podgroup.Running: "RUNNING", podgroup.Stopping: "RUNNING", podgroup.Failed: "FAILED"}
	i, statuses := object{"name": slugOf(&u) + "-city-code-dfw-0", "phase": phases[u.Phase]}, []any{}
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
	return object{"results": []any{i}}, err
}
