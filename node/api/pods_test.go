package api_test

import (
	"context"
	"encoding/json"
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
