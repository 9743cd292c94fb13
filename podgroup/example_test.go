package podgroup_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
)

// capsules is a backend for an invented service, Capsules, with an API of three requests:
//
//	PUT    /capsules/NAME     creates a capsule; with the same body again it changes nothing
//	GET    /capsules?after=ID  the capsules in order, 50 a page
//	DELETE /capsules/ID
type capsules struct {
	url    string
	client *http.Client
}

// capsule is the service's form of a unit.
type capsule struct {
	ID         string             `json:"id,omitempty"`
	Name       string             `json:"name,omitempty"`
	Labels     map[string]string  `json:"labels"`
	Restart    string             `json:"restart"`
	State      string             `json:"state,omitempty"` // starting, running, stopping, done, failed
	Address    string             `json:"address,omitempty"`
	CreatedAt  time.Time          `json:"createdAt,omitzero"`
	EndedAt    time.Time          `json:"endedAt,omitzero"`
	Containers []capsuleContainer `json:"containers"`
}

type capsuleContainer struct {
	Name     string    `json:"name"`
	Image    string    `json:"image"`
	Command  []string  `json:"command,omitempty"`
	Running  bool      `json:"running,omitempty"`
	ExitCode *int32    `json:"exitCode,omitempty"`
	Since    time.Time `json:"since,omitzero"`
}

// capsulesOptions are what the service can do.
func capsulesOptions(cluster string) podgroup.Options {
	return podgroup.Options{
		Service: "Capsules", Scheme: "capsules",
		Identity: podgroup.Identity{Cluster: cluster, MaxTag: 63},
		Features: podgroup.Features{Fields: []string{"restartPolicy"}, Containers: 10},
		Budget:   podgroup.NewBudget(map[podgroup.Action]int{podgroup.AnyAction: 2000}),
	}
}

var capsulesCodes = podgroup.Codes{Throttled: []string{"429"}, Denied: []string{"401", "403"}, Missing: []string{"404"}, Busy: []string{"409"}, Refused: []string{"400"}}

// do makes a request.
func (c capsules) do(ctx context.Context, action podgroup.Action, method, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, method, c.url+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := c.client.Do(request)
	if err != nil { // nobody has answered
		return capsulesCodes.Classify(action, "", 0, 0, err)
	}
	defer response.Body.Close()
	if response.StatusCode >= 300 {
		err := fmt.Errorf("Capsules refuses to %s: %s", action, response.Status) //nolint:staticcheck // a name
		return capsulesCodes.Classify(action, strconv.Itoa(response.StatusCode), response.StatusCode, 0, err)
	}
	return json.NewDecoder(response.Body).Decode(out)
}

// Create implements podgroup.Backend.
func (c capsules) Create(ctx context.Context, r *podgroup.Request) (podgroup.Unit, error) {
	want := capsule{Labels: r.Tags, Restart: string(r.Pod.Spec.RestartPolicy)}
	for _, container := range r.Pod.Spec.Containers {
		want.Containers = append(want.Containers, capsuleContainer{Name: container.Name, Image: container.Image, Command: append(container.Command, container.Args...)})
	}
	var created capsule
	err := c.do(ctx, podgroup.ActionCreate, http.MethodPut, "/capsules/"+r.Name, want, &created)
	return created.unit(), err
}

// Delete implements podgroup.Backend.
func (c capsules) Delete(ctx context.Context, u *podgroup.Unit, _ time.Duration) error {
	return c.do(ctx, podgroup.ActionDelete, http.MethodDelete, "/capsules/"+u.ID, nil, &struct{}{})
}

// List implements podgroup.Lister.
func (c capsules) List(ctx context.Context, _ map[string]string, page string) (found podgroup.Page, err error) {
	var list struct {
		Capsules []capsule `json:"capsules"`
		Next     string    `json:"next"`
	}
	err = c.do(ctx, podgroup.ActionList, http.MethodGet, "/capsules?after="+page, nil, &list)
	for _, one := range list.Capsules {
		found.Units = append(found.Units, one.unit())
	}
	found.Next = list.Next
	return found, err
}

// unit translates what the service says.
func (c *capsule) unit() podgroup.Unit {
	phases := map[string]podgroup.Phase{
		"starting": podgroup.Pending, "running": podgroup.Running, "stopping": podgroup.Stopping, "done": podgroup.Succeeded, "failed": podgroup.Failed,
	}
	u := podgroup.Unit{ID: c.ID, Tags: c.Labels, Phase: phases[c.State], Created: c.CreatedAt, Ended: c.EndedAt}
	if c.Address != "" {
		u.IPs = []string{c.Address}
	}
	for _, found := range c.Containers {
		container := podgroup.Container{Name: found.Name, Image: found.Image}
		switch {
		case found.Running:
			container.Now = podgroup.Run{State: podgroup.Executing, Started: found.Since}
		case found.ExitCode != nil:
			container.Now = podgroup.Run{State: podgroup.Terminated, ExitCode: *found.ExitCode, Finished: c.EndedAt}
		}
		u.Containers = append(u.Containers, container)
	}
	return u
}

// A provider for an invented service. TestCapsules has its fake, and runs the Suite.
func Example() {
	world := grouptest.New(0)
	service := httptest.NewServer(fakeCapsules{world})
	defer service.Close()
	cluster := grouptest.NewCluster("cluster-uid")

	newProvider := func(init nodeutil.ProviderConfig) (nodeutil.Provider, error) {
		provider, _, err := podgroup.New(init, capsules{url: service.URL, client: service.Client()}, capsulesOptions("home"))
		return provider, err
	}
	provider, err := newProvider(cluster.Config()) // what nodeutil.NewNode does
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	pod := grouptest.NewPod("web")
	fmt.Println(provider.CreatePod(ctx, pod))
	status, err := provider.GetPodStatus(ctx, "default", "web")
	fmt.Println(status.Phase, status.PodIP, err)

	pod = grouptest.NewPod("greedy")
	pod.Spec.HostNetwork = true
	pod.Spec.Containers[0].LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: 80}}}
	fmt.Println(provider.CreatePod(ctx, pod))
	// Output:
	// <nil>
	// Running 10.200.0.2 <nil>
	// ProviderNotSupported: Capsules does not have: containers[main].livenessProbe; hostNetwork
}
