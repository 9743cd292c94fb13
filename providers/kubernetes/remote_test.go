package kubernetes

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
)

// roundTripper answers requests without a network.
type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }

// A token that is renewed in its file is used from then on, within minutes.
func TestTokenFileIsReadAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	write := func(token string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("first")
	synctest.Test(t, func(t *testing.T) {
		config, err := (&Remote{Server: "https://remote.example.com", TokenFile: path}).Config()
		if err != nil {
			t.Fatal(err)
		}
		var used []string
		transport, err := rest.HTTPWrappersForConfig(config, roundTripper(func(r *http.Request) (*http.Response, error) {
			used = append(used, r.Header.Get("Authorization"))
			return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(""))}, nil
		}))
		if err != nil {
			t.Fatal(err)
		}
		ask := func() {
			t.Helper()
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://remote.example.com/readyz", nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := transport.RoundTrip(request); err != nil {
				t.Fatal(err)
			}
		}
		ask()
		write("second")
		time.Sleep(2 * time.Minute)
		ask()
		if len(used) != 2 || used[0] != "Bearer first" || used[1] != "Bearer second" {
			t.Errorf("used were %q", used)
		}
	})
}

// Outside of a cluster inCluster fails at once, and the error says why.
func TestInClusterOutsideOfOne(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	t.Setenv("KUBERNETES_SERVICE_PORT", "")
	if _, err := (&Remote{InCluster: true}).Config(); err == nil || !strings.Contains(err.Error(), "KUBERNETES_SERVICE_HOST") {
		t.Errorf("got %v", err)
	}
}

// A file that names no cluster does not lead to that in which the process runs.
func TestKubeconfigWithoutACluster(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
	t.Setenv("KUBERNETES_SERVICE_PORT", "443")
	for name, content := range map[string]string{
		"no current context": "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: \"https://remote.example.com\"}}]\n",
		"empty":              "",
	} {
		path := filepath.Join(t.TempDir(), "kubeconfig")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := (&Remote{Kubeconfig: path}).Config()
		if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "current-context") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
