package podgroup_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
)

// fakeCapsules is the invented service of the example: a codec on a World.
type fakeCapsules struct{ w *grouptest.World }

func (f fakeCapsules) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body []byte
	err := f.w.Serve(r.Context(), r.Method, func() (err error) {
		body, err = f.answer(r)
		return err
	})
	if w.WriteHeader(grouptest.HTTPStatus(err)); err == nil {
		_, _ = w.Write(body) // the client may have gone
	}
}

func (f fakeCapsules) answer(r *http.Request) ([]byte, error) {
	name := strings.TrimPrefix(r.URL.Path, "/capsules/")
	switch r.Method {
	case http.MethodPut:
		var want capsule
		decoder := json.NewDecoder(r.Body)
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&want); err != nil {
			return nil, err
		}
		spec := grouptest.Spec{Token: name, Request: fmt.Sprint(want), Tags: want.Labels, RestartPolicy: want.Restart}
		for key, value := range want.Labels {
			if len(value) > 63 {
				return nil, fmt.Errorf("label %s is too long", key)
			}
		}
		for _, c := range want.Containers {
			spec.Containers = append(spec.Containers, podgroup.Container{Name: c.Name, Image: c.Image})
		}
		u, err := f.w.Create(spec)
		if err != nil {
			return nil, err
		}
		return json.Marshal(toCapsule(&u))
	case http.MethodGet:
		page, next, err := f.w.Page(f.w.Units(nil), r.URL.Query().Get("after"), 50)
		list := []capsule{}
		for i := range page {
			list = append(list, toCapsule(&page[i]))
		}
		if err != nil {
			return nil, err
		}
		return json.Marshal(map[string]any{"capsules": list, "next": next})
	case http.MethodDelete:
		return []byte("{}"), f.w.Delete(name)
	}
	return nil, errors.New("unknown method")
}

func toCapsule(u *grouptest.Unit) capsule {
	states := map[podgroup.Phase]string{
		podgroup.Pending: "starting", podgroup.Running: "running", podgroup.Stopping: "stopping", podgroup.Succeeded: "done", podgroup.Failed: "failed",
	}
	c := capsule{ID: u.ID, Labels: u.Tags, Restart: u.Spec.RestartPolicy, State: states[u.Phase], CreatedAt: u.Created, EndedAt: u.Ended}
	if len(u.IPs) > 0 {
		c.Address = u.IPs[0]
	}
	for _, found := range u.Containers {
		container := capsuleContainer{Name: found.Name, Image: found.Image, Running: found.Now.State == podgroup.Executing, Since: found.Now.Started}
		if found.Now.State == podgroup.Terminated {
			container.ExitCode = &found.Now.ExitCode
		}
		c.Containers = append(c.Containers, container)
	}
	return c
}

func TestCapsules(t *testing.T) {
	grouptest.Suite{
		New: func(t *testing.T, w *grouptest.World) (podgroup.Backend, podgroup.Options) {
			service := grouptest.Serve(t, fakeCapsules{w})
			return capsules{url: "http://capsules", client: &http.Client{Transport: service.Transport(t)}}, capsulesOptions("test")
		},
		Actions: map[podgroup.Action]string{podgroup.ActionCreate: http.MethodPut, podgroup.ActionList: http.MethodGet},
	}.Run(t)
}
