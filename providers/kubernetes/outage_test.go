package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// remoteServer is the remote API server, which answers, refuses connections, hangs or
// refuses the credentials.
type remoteServer struct {
	mu    sync.Mutex
	state string
}

func (s *remoteServer) set(state string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state = state
}

// RoundTrip implements http.RoundTripper.
func (s *remoteServer) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	state := s.state
	s.mu.Unlock()
	status := http.StatusOK
	switch state {
	case "away":
		return nil, errors.New("connection refused")
	case "hangs":
		<-r.Context().Done()
		return nil, r.Context().Err()
	case "refuses":
		status = http.StatusUnauthorized
	}
	body := "{}"
	if strings.HasSuffix(r.URL.Path, "/namespaces/kube-system") {
		body = `{"kind": "Namespace", "apiVersion": "v1", "metadata": {"uid": "` + cmp.Or(map[string]string{"another": "other-uid"}[state], "remote-uid") + `"}}`
	}
	return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body))}, nil
}

// newPinged returns a rig whose pings go to a remoteServer.
func newPinged(t *testing.T, config string) (*rig, *remoteServer) {
	t.Helper()
	r, server := newRig(t, config, newRemote()), &remoteServer{}
	client, err := clientset.NewForConfig(&rest.Config{Host: "http://remote", QPS: -1, Transport: server})
	if err != nil {
		t.Fatal(err)
	}
	r.Provider.remote = client
	return r, server
}

// pingFor pings for a time, as the node does, and returns the last result.
func pingFor(r *rig, d time.Duration) error {
	for end := time.Now().Add(d); ; time.Sleep(10 * time.Second) {
		ctx, cancel := context.WithTimeout(r.t.Context(), 10*time.Second)
		err := r.Ping(ctx)
		if ctx.Err() != nil {
			r.t.Error("a ping takes longer than it may")
		}
		cancel()
		if !time.Now().Before(end) {
			return err
		}
	}
}

// By default a node whose remote cluster cannot be reached is not ready at once. With
// keepReady it stays ready for that long, with a taint; both end when the remote
// cluster is back.
func TestNodeIsKeptReadyInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plain, server := newPinged(t, "")
		server.set("away")
		if err := pingFor(plain, 0); err == nil {
			t.Error("without keepReady the node is ready")
		}
	})
	for _, state := range []string{"away", "hangs"} {
		t.Run(state, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, server := newPinged(t, "unreachable: {keepReady: 10m}\n")
				others := []corev1.Taint{{Key: "virtual-kubelet.io/provider", Effect: corev1.TaintEffectNoSchedule}}
				r.Provider.home.Node.Spec.Taints = others
				var reported []*corev1.Node
				r.NotifyNodeStatus(t.Context(), func(n *corev1.Node) { reported = append(reported, n) })
				want := func(what string, times, taints int, reachable corev1.ConditionStatus) {
					t.Helper()
					if len(reported) != times {
						t.Fatalf("%s: the node was reported %d times", what, len(reported))
					}
					if times == 0 {
						return
					}
					last := reported[times-1]
					if n := len(last.Spec.Taints); n != taints || last.Spec.Taints == nil || last.Spec.Taints[0] != others[0] ||
						n > 1 && (last.Spec.Taints[1].Key != TaintUnreachable || last.Spec.Taints[1].Effect != corev1.TaintEffectNoSchedule) {
						t.Errorf("%s: the taints are %+v", what, last.Spec.Taints)
					}
					if c := last.Status.Conditions[0]; c.Type != ConditionReachable || c.Status != reachable {
						t.Errorf("%s: the condition is %+v", what, c)
					}
				}
				if err := pingFor(r, time.Minute); err != nil {
					t.Fatal(err)
				}
				want("before", 0, 0, "")
				server.set(state)
				if err := pingFor(r, 9*time.Minute); err != nil {
					t.Errorf("within the time: %v", err)
				}
				want("within the time", 1, 2, corev1.ConditionFalse)
				if err := pingFor(r, 2*time.Minute); err == nil || !errors.Is(err, errUnreachable) {
					t.Errorf("after the time: %v", err)
				}
				want("after the time", 1, 2, corev1.ConditionFalse)
				server.set("")
				if err := pingFor(r, 0); err != nil {
					t.Errorf("back: %v", err)
				}
				want("back", 2, 1, corev1.ConditionTrue)
				server.set("refuses")
				if err := pingFor(r, 0); err == nil {
					t.Error("a remote cluster that refuses the node keeps it ready")
				}
			})
		})
	}
}

// A process that starts during the outage has the same time; one whose names are taken
// by another cluster has none.
func TestStartInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, server := newPinged(t, "unreachable: {keepReady: 10m}\n")
		r.identity.known = make(chan struct{})
		for _, err := range []error{errors.New("another home"), errors.New("forbidden")} {
			r.identity.failed, r.identity.next = err, time.Now().Add(time.Hour)
			if err := pingFor(r, 0); err == nil {
				t.Errorf("the node is ready although its identity is not known")
			}
		}
		r.identity.failed = remoteError("list the pods", errors.New("connection refused"))
		if err := pingFor(r, 9*time.Minute); err != nil {
			t.Errorf("within the time: %v", err)
		}
		if err := pingFor(r, 2*time.Minute); err == nil {
			t.Error("after the time the node is ready")
		}
		// An attempt that hangs is about the remote cluster: the home UID is known.
		r.outage = outage{}
		r.identity.turn <- struct{}{}
		if err := pingFor(r, 0); err != nil {
			t.Errorf("while an attempt hangs: %v", err)
		}
		<-r.identity.turn
		close(r.identity.known)
		server.set("")
		if err := pingFor(r, 0); err != nil {
			t.Errorf("back: %v", err)
		}
	})
}
