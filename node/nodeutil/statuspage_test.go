package nodeutil_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"

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
