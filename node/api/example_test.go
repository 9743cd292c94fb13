package api_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
)

// A provider is a handful of functions; those that it lacks answer 501.
func Example() {
	logs := func(_ context.Context, namespace, pod, container string, opts api.ContainerLogOpts) (io.ReadCloser, error) {
		if pod != "web" {
			return nil, errdefs.NotFoundf("pod %q does not exist", pod)
		}
		return io.NopCloser(strings.NewReader("listening on :80\n")), nil
	}
	pods := func(context.Context) ([]*v1.Pod, error) {
		return []*v1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}}, nil
	}

	mux := http.NewServeMux()
	api.AttachPodRoutes(api.PodHandlerConfig{GetPods: pods, GetContainerLogs: logs}, mux, true)
	server := httptest.NewServer(mux)
	defer server.Close()

	for _, path := range []string{
		"/containerLogs/default/web/nginx?tailLines=10",
		"/containerLogs/default/db/postgres",
		"/runningpods/",
		"/stats/summary",
	} {
		resp, err := server.Client().Get(server.URL + path)
		if err != nil {
			fmt.Println(err)
			return
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		fmt.Println(resp.StatusCode, strings.TrimSpace(string(body)))
	}
	// Output:
	// 200 listening on :80
	// 404 pod "db" does not exist
	// 200 {"kind":"PodList","apiVersion":"v1","metadata":{},"items":[{"metadata":{"name":"web","namespace":"default"},"spec":{"containers":null},"status":{}}]}
	// 501 provider does not implement GetStatsSummary (see node/api.PodStatsSummaryHandlerFunc)
}

// The handlers also work one by one, on a router of one's own: net/http's, as
// here, or gorilla/mux.
func ExampleHandleContainerExec() {
	run := func(ctx context.Context, namespace, pod, container string, cmd []string, attach api.AttachIO) error {
		_, err := fmt.Fprintln(attach.Stdout(), "hello from", container)
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/exec/{namespace}/{pod}/{container}", api.InstrumentHandler(api.HandleContainerExec(run)))
}

// A backend that returns lines with their times has kubectl logs with all its options.
func ExampleNewLogReader() {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	backend := func(_ context.Context, since time.Time) ([]api.LogLine, error) {
		return []api.LogLine{{Time: start, Text: "begins"}, {Time: start.Add(time.Second), Text: "ends"}}, io.EOF
	}
	log := api.NewLogReader(context.Background(), api.ContainerLogOpts{Tail: 1, Timestamps: true}, backend)
	defer log.Close()
	text, _ := io.ReadAll(log)
	fmt.Print(string(text))
	// Output: 2026-01-01T00:00:01.000000000Z ends
}
