package nodeutil_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	"github.com/virtual-kubelet/virtual-kubelet/internal/fakeapi"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
)

// The page has the last events, also those that a rate keeps from the API server, each once;
// a provider that records many does not fill the memory.
func TestRecentEventsOfTheStatusPage(t *testing.T) {
	mux := http.NewServeMux()
	var events record.EventRecorder
	making := func(cfg nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
		events = cfg.Events
		return nodeutil.AsProvider(&tiny{}), nil, nil
	}
	if _, err := nodeutil.NewNode("vk", making, nodeutil.WithClient(fake.NewSimpleClientset()), handledBy(mux), openTo(mux)); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
	for i := range 1000 {
		events.Eventf(pod, corev1.EventTypeNormal, "Counted", "%d", i)
	}
	for range 3 {
		events.Event(&corev1.ObjectReference{Kind: "Node", Name: "vk"}, corev1.EventTypeWarning, "Again", "the same")
	}
	long := strings.Repeat("é", 1<<20)
	events.Event(&corev1.ObjectReference{Kind: "Node", Name: "vk"}, corev1.EventTypeWarning, "Long", long)
	request := httptest.NewRequest(http.MethodGet, "/status", nil)
	request.Header.Set("Accept", "application/json")
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, request)
	var status struct {
		Checks []struct{ Name, Error string }
		Events []struct {
			Object, Message string
			Count           int
		}
	}
	if err := json.Unmarshal(w.Body.Bytes(), &status); err != nil {
		t.Fatalf("%v: %s", err, w.Body)
	}
	if len(status.Events) != 32 {
		t.Fatalf("%d events", len(status.Events))
	}
	if got := strings.TrimSuffix(status.Events[0].Message, "..."); len(got) > 1024 || got == "" || !strings.HasPrefix(long, got) {
		t.Errorf("a message of %d bytes is %q", len(long), got)
	}
	if got, want := fmt.Sprint(status.Events[1:3]), "[{Node vk the same 3} {Pod default/web 999 1}]"; got != want {
		t.Errorf("the newest are %s, want %s", got, want)
	}
	if len(status.Checks) == 0 || status.Checks[len(status.Checks)-1].Error == "" {
		t.Errorf("of a node that does not run: %v", status.Checks)
	}
}

// Each node's page has a line for each other node of the process, those that are not ready first.
func TestOtherNodesOfTheStatusPage(t *testing.T) {
	client := fake.NewSimpleClientset()
	fakeapi.React(&client.Fake, "create", "nodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if created := action.(clienttesting.CreateAction).GetObject().(*corev1.Node); created.Name == "d" {
			return true, nil, errors.New("no more nodes")
		}
		return false, nil, nil
	})
	fleet, err := nodeutil.NewFleet(nodeutil.FleetConfig{Client: client, Auth: nodeutil.NoAuth(), HTTPListenAddr: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	if _, err := fleet.Add("a", making(&tiny{}), openTo(mux)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"c", "b", "d"} {
		if _, err := fleet.Add(name, making(&tiny{})); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = fleet.Run(ctx) })
	defer running.Wait()
	defer cancel()

	get := func(accept string) string {
		request := httptest.NewRequest(http.MethodGet, "/status", nil)
		request.Header.Set("Accept", accept)
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, request)
		return w.Body.String()
	}
	type process struct {
		Nodes, ReadyNodes int
		Others            []struct{ Name, Failing, Lease, Ping string }
	}
	var status process
	for deadline := time.Now().Add(time.Minute); status.ReadyNodes != 3; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it stays at %+v", status)
		}
		status = process{} // what is empty is left out
		if err := json.Unmarshal([]byte(get("application/json")), &status); err != nil {
			t.Fatal(err)
		}
	}
	if status.Nodes != 4 || len(status.Others) != 3 {
		t.Fatalf("%+v", status)
	}
	if d, b, c := status.Others[0], status.Others[1], status.Others[2]; d.Name != "d" || d.Failing == "" || b.Name != "b" || b.Failing != "" || b.Lease == "" || b.Ping == "" || c.Name != "c" {
		t.Errorf("the others are %+v", status.Others)
	}
	if page := get("text/html"); !strings.Contains(page, "Other nodes of the process") || !strings.Contains(page, "not ready (node)") {
		t.Errorf("the page is\n%s", page)
	}
}
