package probe

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilexec "k8s.io/utils/exec"
)

func TestHookExec(t *testing.T) {
	var fails error
	runtime := scripted(func(_ context.Context, _ string, cmd []string, timeout time.Duration) ([]byte, []byte, error) {
		if timeout != 0 || cmd[0] != "$(A)" {
			t.Errorf("%q, timeout %v", cmd, timeout)
		}
		return []byte("out"), nil, fails
	})
	target, _ := targetOf("127.0.0.1:80")
	hook := &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"$(A)", "b"}}}
	prober := NewProber(Options{Exec: ExecSync(runtime)})
	if err := prober.Hook(t.Context(), target, hook); err != nil {
		t.Error(err)
	}
	fails = utilexec.CodeExitError{Err: errors.New("command '$(A) b' exited with 1: "), Code: 1}
	want := `Exec lifecycle hook ([$(A) b]) for Container "c" in Pod "p_ns(uid)" failed - error: command '$(A) b' exited with 1: , message: "out"`
	if err := prober.Hook(t.Context(), target, hook); err == nil || err.Error() != want {
		t.Error(err)
	}
}

func TestHookHTTP(t *testing.T) {
	var got http.Header
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Header
		w.WriteHeader(http.StatusInternalServerError) // it was asked: that is all
	})
	plain, secure := httptest.NewServer(handler), httptest.NewTLSServer(handler)
	plain.Config.ErrorLog, secure.Config.ErrorLog = nil, nil
	defer plain.Close()
	defer secure.Close()
	headers := []corev1.HTTPHeader{{Name: "authorization", Value: "secret"}, {Name: "X", Value: "y"}}
	for name, test := range map[string]struct {
		server *httptest.Server
		scheme corev1.URIScheme
		secret bool
	}{
		"http":                    {plain, corev1.URISchemeHTTP, true},
		"https":                   {secure, corev1.URISchemeHTTPS, true},
		"https, answered in http": {plain, corev1.URISchemeHTTPS, false},
	} {
		target, port := targetOf(test.server.Listener.Addr().String())
		hook := &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Scheme: test.scheme, Port: intstr.FromInt32(port), HTTPHeaders: headers}}
		got = nil
		if err := NewProber(Options{}).Hook(t.Context(), target, hook); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if (got.Get("Authorization") != "") != test.secret || got.Get("X") != "y" || got.Get("User-Agent") != "kube-lifecycle/1.36" {
			t.Errorf("%s: %v", name, got)
		}
	}
	closed := closedPort(t)
	target, port := targetOf(closed)
	err := NewProber(Options{}).Hook(t.Context(), target, &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/x", Port: intstr.FromInt32(port)}})
	want := `HTTP lifecycle hook (/x) for Container "c" in Pod "p_ns(uid)" failed - error: Get "http://` + closed + `/x": dial tcp ` + closed + `: connect: connection refused`
	if err == nil || err.Error() != want {
		t.Error(err)
	}
}

func TestHookSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		hook := &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 7}}
		if err := NewProber(Options{}).Hook(t.Context(), Target{}, hook); err != nil || time.Since(begin) != 7*time.Second {
			t.Error(err, time.Since(begin))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := NewProber(Options{}).Hook(ctx, Target{}, hook); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

func TestHookInvalid(t *testing.T) {
	for _, hook := range []*corev1.LifecycleHandler{{}, {TCPSocket: &corev1.TCPSocketAction{}}} {
		if err := NewProber(Options{}).Hook(t.Context(), Target{}, hook); err == nil {
			t.Errorf("%v succeeded", hook)
		}
	}
}
