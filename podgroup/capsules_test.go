package podgroup_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
)

// fakeCapsules is the invented service of the example: a codec on a World.
type fakeCapsules struct{ *grouptest.World }

const createCapsule, listCapsules = "PUT /capsules/{name}", "GET /capsules"

func newFakeCapsules(w *grouptest.World) *grouptest.API {
	f := fakeCapsules{w}
	return &grouptest.API{World: w, Calls: map[string]grouptest.Call{createCapsule: f.create, listCapsules: f.list, "DELETE /capsules/{id}": f.delete}}
}

var capsuleFields = grouptest.Schema{"capsule": "labels restart containers", "containers": "name image command"}

func (f fakeCapsules) create(_ http.ResponseWriter, r *http.Request) (any, error) {
	var want capsule
	request, err := capsuleFields.Decode(r.Body, "capsule", &want)
	if err != nil {
		return nil, err
	}
	for key, value := range want.Labels {
		if len(value) > 63 {
			return nil, fmt.Errorf("label %s is too long", key)
		}
	}
	spec := grouptest.Spec{Token: r.PathValue("name"), Request: request, Tags: want.Labels, RestartPolicy: want.Restart}
	for _, c := range want.Containers {
		spec.Containers = append(spec.Containers, podgroup.Container{Name: c.Name, Image: c.Image})
	}
	u, err := f.Create(spec)
	return toCapsule(&u), err
}

func (f fakeCapsules) list(_ http.ResponseWriter, r *http.Request) (any, error) {
	page, next, err := f.Page(f.Units(nil), r.URL.Query().Get("after"), 50)
	list := []capsule{}
	for i := range page {
		list = append(list, toCapsule(&page[i]))
	}
	return map[string]any{"capsules": list, "next": next}, err
}

func (f fakeCapsules) delete(_ http.ResponseWriter, r *http.Request) (any, error) {
	return nil, f.Delete(r.PathValue("id"))
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
			service := grouptest.Serve(t, newFakeCapsules(w))
			return newCapsules("http://capsules", service.Transport(t)), capsulesOptions("test")
		},
		Actions: map[podgroup.Action]string{podgroup.ActionCreate: createCapsule, podgroup.ActionList: listCapsules},
	}.Run(t)
}
