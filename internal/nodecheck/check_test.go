package nodecheck

import (
	"context"
	"errors"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/virtual-kubelet/virtual-kubelet/internal/fakeapi"
)

func TestChecksAreWellNamed(t *testing.T) {
	seen := map[string]bool{}
	var order []Capability
	for _, c := range Checks() {
		if !regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`).MatchString(c.Name) || seen[c.Name] || c.Title == "" || c.run == nil {
			t.Errorf("check %q has a bad name, or one twice, or lacks something", c.Name)
		}
		seen[c.Name] = true
		if !slices.Contains(order, c.Capability()) {
			order = append(order, c.Capability())
		}
		if _, err := ParseCapabilities([]string{string(c.Capability())}); err != nil {
			t.Error(err)
		}
	}
	if want := append([]Capability{Core}, Capabilities()...); !slices.Equal(order, want) {
		t.Errorf("the checks are in the order %v, not %v", order, want)
	}
}

func TestParseCapabilities(t *testing.T) {
	all, err := ParseCapabilities([]string{"all"})
	if err != nil || len(all) != 1+len(Capabilities()) {
		t.Errorf("all is %v, %v", all, err)
	}
	if _, err := ParseCapabilities([]string{"logs", "flying"}); err == nil || !strings.Contains(err.Error(), `"flying"`) || !strings.Contains(err.Error(), "port-forward") {
		t.Errorf("got %v", err)
	}
}

func TestSelection(t *testing.T) {
	n := NewForClient(nil, Options{Name: "node", Shell: []string{"sh", "-c"}})
	logs := Check{Name: "logs-content", Needs: []Capability{Logs, Commands}}
	for _, c := range []struct {
		what      string
		selection Selection
		check     Check
		reason    string
	}{
		{"core is always made", Selection{}, Check{Name: "x"}, ""},
		{"not declared", Selection{Capabilities: []Capability{Commands}}, logs, "logs is not declared"},
		{"a second one is not declared", Selection{Capabilities: []Capability{Logs}}, logs, "commands is not declared"},
		{"declared", Selection{Capabilities: []Capability{Logs, Commands}}, logs, ""},
		{"the check is to be skipped", Selection{Capabilities: []Capability{Logs, Commands}, Skip: []string{"logs-content"}}, logs, "it is to be skipped"},
		{"the capability is to be skipped", Selection{Capabilities: []Capability{Logs, Commands}, Skip: []string{"commands"}}, logs, "commands is to be skipped"},
		{"core is to be skipped", Selection{Skip: []string{"core"}}, Check{Name: "x"}, "core is to be skipped"},
	} {
		if got := c.selection.Reason(c.check, n); got != c.reason {
			t.Errorf("%s: got %q, want %q", c.what, got, c.reason)
		}
	}
	n.Shell = nil
	if got := (Selection{Capabilities: Capabilities()}).Reason(logs, n); got != "no shell is given" {
		t.Errorf("without a shell: %q", got)
	}
}

// A check that hangs ends in time, its pods and objects go, and it says what was
// seen.
func TestCheckThatTimesOutCleansUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := NewForClient(fake.NewClientset(), Options{Name: "node", Timeout: time.Minute})
		check := Check{Name: "hangs", run: func(ctx context.Context, s *Scope) error {
			if _, err := s.CreateConfigMap(ctx, "config", nil); err != nil {
				return err
			}
			pod := s.Pod(s.LongRunning("main"))
			pod.Name, pod.UID = "hangs", "uid"
			_, err := s.createAnd(ctx, pod, "runs", Running)
			return err
		}}
		result := check.Run(t.Context(), n)
		if result.Outcome != Failed || result.Why != "waiting until pod hangs runs: not within 1m0s" || !strings.Contains(result.Details, "pod default/hangs: phase") {
			t.Errorf("got %+v", result)
		}
		if result.Took != time.Minute {
			t.Errorf("took %v", result.Took)
		}
		pods, err := n.Client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
		if err != nil || len(pods.Items) != 0 {
			t.Errorf("left: %v, %v", pods, err)
		}
		configMaps, err := n.Client.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
		if err != nil || len(configMaps.Items) != 0 {
			t.Errorf("left: %v, %v", configMaps, err)
		}
	})
}

func TestProviderSaysThatItDoesNotSupport(t *testing.T) {
	s, pod := onFake(t, Options{})
	s.seen(pod)
	wrong := errors.New("it does not run")
	if got := s.outcomeOf(t.Context(), wrong); got != Failed {
		t.Errorf("got %q", got)
	}
	addEvent(t, s, pod, "event", "ProviderCreateFailed", "ProviderNotSupported: volume a of kind csi")
	if got := s.outcomeOf(t.Context(), wrong); got != NotSupported {
		t.Errorf("with the event: %q", got)
	}

	n := onServer(t, func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "provider does not implement GetStatsSummary", http.StatusNotImplemented)
	})
	_, err := n.GetFromKubelet(t.Context(), statsPath)
	if got := n.Begin("").outcomeOf(t.Context(), err); got != NotSupported || !hopeless(err) {
		t.Errorf("of %v: %q", err, got)
	}
	_, err = n.exec(t.Context(), pod, "main", nil, false, "true")
	if err == nil || statusCode(err) != http.StatusNotImplemented {
		t.Errorf("exec: the status of %v is %d", err, statusCode(err))
	}
	_, err = n.dialPod(pod)
	if err == nil || statusCode(err) != http.StatusNotImplemented {
		t.Errorf("port-forward: the status of %v is %d", err, statusCode(err))
	}
}

func TestRunAllEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	n := NewForClient(fake.NewClientset(), Options{Name: "node"})
	reported := 0
	results, err := RunAll(ctx, n, Selection{}, 4, func(Result) { reported++ })
	if err == nil || len(results) != len(Checks()) || reported != len(results) {
		t.Fatalf("got %d results, %d reported, %v", len(results), reported, err)
	}
	for _, r := range results {
		if r.Outcome != Skipped || r.Check.Capability() == Core && r.Why != "interrupted" {
			t.Errorf("%s: %s: %s", r.Check.Name, r.Outcome, r.Why)
		}
	}
}

func TestNotStarted(t *testing.T) {
	pod := &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{
		Name: "main", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}},
	}}}}
	if err := notStarted(pod); err != nil {
		t.Error(err)
	}
	pod.Status.ContainerStatuses[0].State.Running = &corev1.ContainerStateRunning{}
	if notStarted(pod) == nil {
		t.Error("a container that runs does not count")
	}
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning}
	if notStarted(pod) == nil {
		t.Error("a pod that runs does not count")
	}
}

// Ctrl-C leaves no pods behind.
func TestInterruptedCheckCleansUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		n := NewForClient(fake.NewClientset(), Options{Name: "node"})
		check := Check{Name: "hangs", run: func(ctx context.Context, s *Scope) error {
			pod := s.Pod(s.LongRunning("main"))
			pod.Name, pod.UID = "hangs", "uid"
			_, err := s.createAnd(ctx, pod, "runs", Running)
			return err
		}}
		time.AfterFunc(time.Second, cancel)
		if result := check.Run(ctx, n); result.Outcome != Failed {
			t.Errorf("got %+v", result)
		}
		pods, err := n.Client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
		if err != nil || len(pods.Items) != 0 {
			t.Errorf("left: %v, %v", pods, err)
		}
	})
}

// A check that does not get the answer to a creation removes what the API server may have made, but
// not what another one has made under that name.
func TestInterruptedCreationCleansUp(t *testing.T) {
	for kind, create := range map[string]func(context.Context, *Scope) error{
		"Pod":       func(ctx context.Context, s *Scope) error { _, err := s.CreateRunning(ctx); return err },
		"ConfigMap": func(ctx context.Context, s *Scope) error { _, err := s.CreateConfigMap(ctx, "", nil); return err },
		"Secret":    func(ctx context.Context, s *Scope) error { _, err := s.CreateSecret(ctx, "", nil); return err },
	} {
		resource, _ := meta.UnsafeGuessKindToResource(corev1.SchemeGroupVersion.WithKind(kind))
		for want, failures := range [][]error{
			{context.Canceled, apierrors.NewInternalError(errors.New("after it was stored"))},
			{apierrors.NewAlreadyExists(resource.GroupResource(), "of another")},
		} {
			for _, failure := range failures {
				client := fake.NewClientset()
				fakeapi.React(&client.Fake, "create", resource.Resource, func(action clienttesting.Action) (bool, runtime.Object, error) {
					if err := client.Tracker().Create(resource, action.(clienttesting.CreateAction).GetObject(), action.GetNamespace()); err != nil {
						t.Error(err)
					}
					return true, nil, failure
				})
				result := Check{Name: "interrupted", run: create}.Run(t.Context(), NewForClient(client, Options{Name: "node"}))
				if result.Outcome != Failed || strings.Contains(result.Why, "clean up") {
					t.Errorf("%s, %v: got %+v", kind, failure, result)
				}
				left, err := client.Tracker().List(resource, corev1.SchemeGroupVersion.WithKind(kind), "default")
				if err != nil || meta.LenList(left) != want {
					t.Errorf("%s, %v: left: %v, want %d of them; %v", kind, failure, left, want, err)
				}
			}
		}
	}
}
