package podgroup_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/rest"
)

// capsules is a backend for an invented service, Capsules, with an API of three requests:
//
//	PUT    /capsules/NAME     creates a capsule; with the same body again it changes nothing
//	GET    /capsules?after=ID  the capsules in order, 50 a page
//	DELETE /capsules/ID
type capsules struct{ *rest.Client }

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

// newCapsules returns the backend. Without a transport it is that of all requests.
func newCapsules(url string, transport http.RoundTripper) capsules {
	return capsules{&rest.Client{Service: "Capsules", URL: url, Transport: transport}}
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

// Create implements podgroup.Backend.
func (c capsules) Create(ctx context.Context, r *podgroup.Request) (podgroup.Unit, error) {
	want := capsule{Labels: r.Tags, Restart: string(r.Pod.Spec.RestartPolicy)}
	for _, container := range r.Pod.Spec.Containers {
		want.Containers = append(want.Containers, capsuleContainer{Name: container.Name, Image: container.Image, Command: append(container.Command, container.Args...)})
	}
	var created capsule
	err := c.Do(ctx, rest.Call{Action: podgroup.ActionCreate, Method: http.MethodPut, Path: "/capsules/" + r.Name, In: want}, &created)
	return created.unit(), err
}

// Delete implements podgroup.Backend.
func (c capsules) Delete(ctx context.Context, u *podgroup.Unit, _ time.Duration) error {
	return c.Do(ctx, rest.Call{Action: podgroup.ActionDelete, Method: http.MethodDelete, Path: "/capsules/" + u.ID}, nil)
}

// List implements podgroup.Lister.
func (c capsules) List(ctx context.Context, _ map[string]string, page string) (found podgroup.Page, err error) {
	var list struct {
		Capsules []capsule `json:"capsules"`
		Next     string    `json:"next"`
	}
	err = c.Do(ctx, rest.Call{Action: podgroup.ActionList, Method: http.MethodGet, Path: "/capsules?after=" + page}, &list)
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
	service := httptest.NewServer(newFakeCapsules(world))
	defer service.Close()
	cluster := grouptest.NewCluster("cluster-uid")

	newProvider := func(init nodeutil.ProviderConfig) (nodeutil.Provider, error) {
		provider, _, err := podgroup.New(init, newCapsules(service.URL, nil), capsulesOptions("home"))
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
