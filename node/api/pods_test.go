package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/node/api"
)

func golden(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func goldenPods(t *testing.T, name string) []*v1.Pod {
	t.Helper()
	var list v1.PodList
	if err := json.Unmarshal(golden(t, name), &list); err != nil {
		t.Fatal(err)
	}
	pods := []*v1.Pod{nil}
	for i := range list.Items {
		pods = append(pods, &list.Items[i])
	}
	return pods
}

func sameJSON(t *testing.T, got, want []byte) {
	t.Helper()
	var g, w any
	if err := json.Unmarshal(got, &g); err != nil {
		t.Fatalf("%v in %s", err, got)
	}
	if err := json.Unmarshal(want, &w); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(g, w) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestPodsLikeTheKubelet(t *testing.T) {
	pods := goldenPods(t, "pods.json")
	lister := func(context.Context) ([]*v1.Pod, error) { return pods, nil }
	server := servePods(t, api.PodHandlerConfig{GetPods: lister})
	got := do(t, server, "GET", "/pods")
	sameJSON(t, []byte(got.body), golden(t, "pods.json"))
	if h := got.Header.Get("Content-Type"); h != "application/json" {
		t.Errorf("Content-Type is %q", h)
	}
}

func TestPodsPreferTheAPI(t *testing.T) {
	fromAPI := func(context.Context) ([]*v1.Pod, error) { return goldenPods(t, "pods.json"), nil }
	server := servePods(t, api.PodHandlerConfig{GetPods: noPods, GetPodsFromKubernetes: fromAPI})
	do(t, server, "GET", "/pods").want(t, 200, `"name":"smoke"`)
	do(t, server, "GET", "/runningpods/").want(t, 200, `"items":[]`)
}

func TestRunningPodsLikeTheKubelet(t *testing.T) {
	pods := goldenPods(t, "runningpods.json")
	full := pods[1]
	full.Labels = map[string]string{"app": "x"}
	full.Spec.NodeName = "n"
	full.Spec.Containers[0].Env = []v1.EnvVar{{Name: "PASSWORD", Value: "secret"}}
	full.Status.Phase = v1.PodRunning
	server := servePods(t, api.PodHandlerConfig{GetPods: func(context.Context) ([]*v1.Pod, error) { return pods, nil }})
	sameJSON(t, []byte(do(t, server, "GET", "/runningpods/").body), golden(t, "runningpods.json"))
}

func TestRunningPodsRun(t *testing.T) {
	running := v1.ContainerState{Running: &v1.ContainerStateRunning{}}
	pod := func(name string, status v1.PodStatus) *v1.Pod {
		p := &v1.Pod{Status: status}
		p.Name = name
		p.Spec.InitContainers = []v1.Container{{Name: "init", Image: "init-image"}}
		p.Spec.Containers = []v1.Container{{Name: "a", Image: "a-image"}, {Name: "b", Image: "b-image"}}
		return p
	}
	for name, c := range map[string]struct {
		status v1.PodStatus
		want   string // containers and images; none means that the pod is left out
	}{
		"nothing known":  {v1.PodStatus{}, "[a=a-image b=b-image]"},
		"no statuses":    {v1.PodStatus{Phase: v1.PodRunning}, "[a=a-image b=b-image]"},
		"succeeded":      {v1.PodStatus{Phase: v1.PodSucceeded}, ""},
		"failed":         {v1.PodStatus{Phase: v1.PodFailed}, ""},
		"image ID":       {v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{Name: "a", State: running, Image: "x", ImageID: "sha256:1"}}}, "[a=sha256:1]"},
		"image":          {v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{Name: "a", State: running, Image: "x"}}}, "[a=x]"},
		"image of spec":  {v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{Name: "b", State: running}}}, "[b=b-image]"},
		"one has ended":  {v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{Name: "a", State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{}}}, {Name: "b", State: running}}}, "[b=b-image]"},
		"one waits":      {v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{Name: "a", State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{}}}}}, "[]"},
		"initializing":   {v1.PodStatus{InitContainerStatuses: []v1.ContainerStatus{{Name: "init", State: running}}, ContainerStatuses: []v1.ContainerStatus{{Name: "a"}}}, "[init=init-image]"},
		"being debugged": {v1.PodStatus{EphemeralContainerStatuses: []v1.ContainerStatus{{Name: "debug", State: running, Image: "d"}}}, "[debug=d]"},
	} {
		server := servePods(t, api.PodHandlerConfig{GetPods: func(context.Context) ([]*v1.Pod, error) {
			return []*v1.Pod{pod("p", c.status)}, nil
		}})
		var list v1.PodList
		if err := json.Unmarshal([]byte(do(t, server, "GET", "/runningpods/").body), &list); err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, p := range list.Items {
			containers := []string{}
			for _, c := range p.Spec.Containers {
				containers = append(containers, c.Name+"="+c.Image)
			}
			got += fmt.Sprint(containers)
		}
		if got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}
