// Package stackpathtest is a fake of the API of StackPath Edge Compute, as published.
package stackpathtest

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
)

// What the fake knows, and the calls, as the World knows them.
const (
	StackID         = "stack" // the only one
	ClientSecret    = "hush"
	ActionToken     = "POST /identity/v1/oauth2/token"
	ActionCreate    = "POST /workload/v1/stacks/" + StackID + "/workloads"
	ActionList      = "GET /workload/v1/stacks/" + StackID + "/workloads"
	workload        = "/workload/v1/stacks/" + StackID + "/workloads/{slug}"
	ActionInstances = "GET " + workload + "/instances"
)

// New returns the API: a codec on a World, where slugs are the IDs of units. It is safe for
// concurrent use.
func New(w *grouptest.World) http.Handler {
	s := server{w}
	return &grouptest.API{World: w, Admit: s.admit, Calls: map[string]grouptest.Call{
		ActionToken: s.token, ActionCreate: s.create, ActionList: s.list, ActionInstances: s.instances, "GET " + workload: s.get, "DELETE " + workload: s.remove,
	}}
}

type server struct{ *grouptest.World }

type object = map[string]any

// admit checks the token, which is the time at which it ends.
func (s server) admit(action string, r *http.Request) error {
	end, _ := time.Parse("Bearer "+time.RFC3339, r.Header.Get("Authorization"))
	if action != ActionToken && s.Now().After(end) {
		return &grouptest.Refusal{Status: http.StatusUnauthorized}
	}
	return nil
}

func (s server) token(_ http.ResponseWriter, r *http.Request) (any, error) {
	if r.FormValue("client_secret") != ClientSecret || r.FormValue("grant_type") != "client_credentials" {
		return nil, &grouptest.Refusal{Status: http.StatusUnauthorized}
	}
	return object{"access_token": s.Now().Add(time.Hour).Format(time.RFC3339), "expires_in": 3600}, nil
}

// fields are those of the published models, of objects that are sent.
var fields = grouptest.Schema{
	"": "workload", "workload": "name slug metadata spec targets", "metadata": "labels",
	"spec": "containers imagePullCredentials networkInterfaces deploymentScope deployments", "containers": "*container",
	"container": "image command env ports resources", "env": "*variable", "variable": "value", "ports": "*port", "port": "port protocol",
	"resources": "requests limits", "requests": "cpu memory", "limits": "cpu memory",
	"imagePullCredentials": "dockerRegistry", "dockerRegistry": "server username password", "networkInterfaces": "network enableOneToOneNat",
	"targets": "*target", "target": "spec", "deployments": "minReplicas maxReplicas selectors", "selectors": "key operator values",
}

func (s server) create(_ http.ResponseWriter, r *http.Request) (any, error) {
	var in struct {
		Workload struct {
			Slug     string
			Metadata struct{ Labels map[string]string }
			Spec     struct{ Containers map[string]podgroup.Container }
		}
	}
	text, err := fields.Decode(r.Body, "", &in)
	if err != nil {
		return nil, err
	}
	if len(in.Workload.Slug) == 0 || len(in.Workload.Slug) > 63 || len(in.Workload.Spec.Containers) != 1 {
		return nil, errors.New("the workload is not valid")
	}
	spec := grouptest.Spec{ID: in.Workload.Slug, Tags: in.Workload.Metadata.Labels, Data: text}
	for name, c := range in.Workload.Spec.Containers {
		spec.Containers = []podgroup.Container{{Name: name, Image: c.Image}}
	}
	u, err := s.Create(spec)
	return object{"workload": view(&u)}, err
}

func (s server) list(_ http.ResponseWriter, r *http.Request) (any, error) {
	units, next, err := s.Page(s.Units(nil), r.URL.Query().Get("page_request.after"), 50)
	results := []object{}
	for i := range units {
		results = append(results, view(&units[i]))
	}
	return object{"results": results, "pageInfo": object{"hasNextPage": next != "", "endCursor": next}}, err
}

func (s server) get(_ http.ResponseWriter, r *http.Request) (any, error) {
	u, err := s.Unit(r.PathValue("slug"))
	return object{"workload": view(&u)}, err
}

func (s server) remove(_ http.ResponseWriter, r *http.Request) (any, error) {
	return nil, s.Delete(r.PathValue("slug"))
}

func view(u *grouptest.Unit) object {
	return object{"id": u.ID, "slug": u.ID, "metadata": object{"labels": u.Tags, "createdAt": u.Created}}
}

func (s server) instances(_ http.ResponseWriter, r *http.Request) (any, error) {
	u, err := s.Unit(r.PathValue("slug"))
	phases := map[podgroup.Phase]string{podgroup.Pending: "STARTING", podgroup.Running: "RUNNING", podgroup.Stopping: "RUNNING", podgroup.Failed: "FAILED"}
	statuses := []object{}
	for _, c := range u.Containers {
		state := grouptest.StateOf(c.Now)
		statuses = append(statuses, object{"name": c.Name, "ready": state.Running != nil, "restartCount": c.Restarts, "running": state.Running})
	}
	shown := object{"name": u.ID + "-city-code-dfw-0", "phase": phases[u.Phase], "ipAddress": strings.Join(u.IPs, ""), "containerStatuses": statuses}
	if u.Phase == podgroup.Stopping {
		shown["deletedAt"] = u.Created
	}
	return object{"results": []object{shown}}, err
}
