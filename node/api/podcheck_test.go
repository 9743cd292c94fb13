package api_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
)

// What a path names is looked up before the provider is asked: by namespace, name
// and, where the path has one, UID.
func TestPodsThatTheNodeDoesNotHave(t *testing.T) {
	var asked atomic.Int32
	provider := api.PodHandlerConfig{
		GetContainerLogs: func(context.Context, string, string, string, api.ContainerLogOpts) (io.ReadCloser, error) {
			asked.Add(1)
			return nil, nil
		},
		RunInContainer: func(context.Context, string, string, string, []string, api.AttachIO) error {
			asked.Add(1)
			return nil
		},
		AttachToContainer: func(context.Context, string, string, string, api.AttachIO) error {
			asked.Add(1)
			return nil
		},
		PortForward: func(context.Context, string, string, int32, io.ReadWriteCloser) error {
			asked.Add(1)
			return nil
		},
		FindPod: func(_ context.Context, namespace, name string) (*v1.Pod, error) {
			switch namespace + "/" + name {
			case "ns/p":
				return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "u1"}}, nil
			case "ns/nil":
				return nil, nil
			case "ns/unsure":
				return nil, errdefs.AsUnavailable(errors.New("no list yet"))
			}
			return nil, errdefs.NotFound("no such pod")
		},
	}
	server := servePods(t, provider)
	for _, path := range []string{
		"/containerLogs/ns/q/c", "/containerLogs/other/p/c", "/containerLogs/ns/nil/c",
		"/exec/ns/q/c?command=x&output=1", "/exec/other/p/c?command=x&output=1", "/exec/ns/p/u2/c?command=x&output=1",
		"/attach/ns/q/c?output=1", "/attach/ns/p/u2/c?output=1",
		"/portForward/ns/q?port=80", "/portForward/ns/p/u2?port=80",
	} {
		if path[1] == 'c' {
			do(t, server, "GET", path).want(t, http.StatusNotFound, "does not exist")
			continue
		}
		for _, upgrade := range []string{spdyUpgrade, webSocketUpgrade} {
			method := "GET "
			if upgrade == spdyUpgrade {
				method = "POST "
			}
			resp, conn := ask(t, server, method+path, upgrade)
			if resp.StatusCode != http.StatusNotFound {
				t.Errorf("%s: got %s", path, resp.Status)
			}
			conn.Close()
		}
	}
	do(t, server, "GET", "/containerLogs/ns/unsure/c").want(t, http.StatusServiceUnavailable, "no list yet")
	do(t, server, "GET", "/containerLogs/NS/p/c").want(t, http.StatusBadRequest, "namespace")
	if n := asked.Load(); n > 0 {
		t.Errorf("the provider was asked %d times", n)
	}
	for _, path := range []string{"/exec/ns/p/c?command=x&output=1", "/exec/ns/p/u1/c?command=x&output=1", "/attach/ns/p/u1/c?output=1"} {
		conn, _, err := dialWebSocket(t, server, path, "v5.channel.k8s.io")
		if err != nil {
			t.Fatal(path, err)
		}
		for err == nil {
			_, _, err = conn.ReadMessage()
		}
	}
	do(t, server, "GET", "/containerLogs/ns/p/c").want(t, http.StatusOK, "")
	if n := asked.Load(); n != 4 {
		t.Errorf("the provider was asked %d times about its pod, want 4", n)
	}
	if got := do(t, server, "GET", "/containerLogs/ns/q/c").body; strings.TrimSpace(got) != `pod "q" does not exist` {
		t.Errorf("not the kubelet's words: %s", got)
	}
}

// A provider that does not have the log of a container of the node's pod is answered for as a
// kubelet answers: with 400, since the API server passes on no text of a 404.
func TestLogsThatTheProviderDoesNotHave(t *testing.T) {
	ended := v1.ContainerState{Terminated: &v1.ContainerStateTerminated{}}
	waits := func(reason string) v1.ContainerState {
		return v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason}}
	}
	statuses := map[string]v1.PodStatus{
		"new":  {Phase: v1.PodPending},
		"pull": {ContainerStatuses: []v1.ContainerStatus{{Name: "c", State: waits("ErrImagePull")}}},
		"back": {ContainerStatuses: []v1.ContainerStatus{{Name: "c", State: waits("ImagePullBackOff")}}},
		"init": {InitContainerStatuses: []v1.ContainerStatus{{Name: "i", State: waits("PodInitializing")}}},
		"runs": {ContainerStatuses: []v1.ContainerStatus{{Name: "c", State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}}},
		"ends": {ContainerStatuses: []v1.ContainerStatus{{Name: "c", State: ended}}},
		"loop": {ContainerStatuses: []v1.ContainerStatus{{Name: "c", State: waits("CrashLoopBackOff"), LastTerminationState: ended}}},
		"over": {Phase: v1.PodFailed},
	}
	for _, c := range []struct {
		pod, container, query string
		status                int
		want                  string
	}{
		{"new", "c", "", 400, `container "c" in pod "new" is waiting to start: ContainerCreating`},
		{"new", "e", "?follow=true", 400, `container "e" in pod "new" is waiting to start: ContainerCreating`},
		{"new", "c", "?previous=true", 400, `previous terminated container "c" in pod "new" not found`},
		{"new", "other", "", 404, "no log"},
		{"pull", "c", "", 400, `container "c" in pod "pull" is waiting to start: image can't be pulled`},
		{"back", "c", "", 400, `container "c" in pod "back" is waiting to start: trying and failing to pull image`},
		{"init", "i", "", 400, `container "i" in pod "init" is waiting to start: PodInitializing`},
		{"runs", "c", "", 400, "no log"},
		{"runs", "c", "?previous=true", 400, `previous terminated container "c" in pod "runs" not found`},
		{"ends", "c", "", 400, "no log"},
		{"loop", "c", "", 400, "no log"},
		{"loop", "c", "?previous=true", 400, "no log"},
		{"over", "c", "", 400, "no log"},
	} {
		noLog := errdefs.NotFound("no log")
		for name, open := range map[string]api.ContainerLogsHandlerFunc{
			"at once": func(context.Context, string, string, string, api.ContainerLogOpts) (io.ReadCloser, error) {
				return nil, noLog
			},
			"with the first lines": func(ctx context.Context, _, _, _ string, opts api.ContainerLogOpts) (io.ReadCloser, error) {
				return api.NewLogReader(ctx, opts, func(context.Context, time.Time) ([]api.LogLine, error) { return nil, noLog }), nil
			},
		} {
			server := servePods(t, api.PodHandlerConfig{GetContainerLogs: open, FindPod: func(_ context.Context, _, name string) (*v1.Pod, error) {
				return &v1.Pod{Status: statuses[name], Spec: v1.PodSpec{
					InitContainers:      []v1.Container{{Name: "i"}},
					Containers:          []v1.Container{{Name: "c"}},
					EphemeralContainers: []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "e"}}},
				}}, nil
			}})
			got := do(t, server, "GET", "/containerLogs/ns/"+c.pod+"/"+c.container+c.query)
			if got.StatusCode != c.status || strings.TrimSpace(got.body) != c.want {
				t.Errorf("%s/%s%s, refused %s: %d %q, want %d %q", c.pod, c.container, c.query, name, got.StatusCode, got.body, c.status, c.want)
			}
		}
	}
}
