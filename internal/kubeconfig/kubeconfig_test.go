package kubeconfig

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
)

const clusters = `apiVersion: v1
kind: Config
contexts: [{name: a, context: {cluster: a, user: u}}, {name: b, context: {cluster: b, user: u}}]
clusters: [{name: a, cluster: {server: "https://a", certificate-authority: ca.crt}}, {name: b, cluster: {server: "https://b"}}]
users: [{name: u, user: {tokenFile: token}}]
`

func write(t *testing.T, content string) (file string) {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{"kubeconfig": content, "ca.crt": "", "token": "t"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "kubeconfig")
}

func TestLoad(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
	t.Setenv("KUBERNETES_SERVICE_PORT", "443")
	t.Setenv("KUBERNETES_MASTER", "https://master")
	current := write(t, clusters+"current-context: a")
	for name, c := range map[string]struct {
		file, context string
		host          string
		err           error
	}{
		"the current context":    {file: current, host: "https://a"},
		"another context":        {file: current, context: "b", host: "https://b"},
		"a context, none chosen": {file: write(t, clusters), context: "b", host: "https://b"},
		"no current context":     {file: write(t, clusters), err: ErrNoCluster},
		"an empty file":          {file: write(t, ""), err: ErrNoCluster},
		"no file":                {file: "/no/such/file", err: fs.ErrNotExist},
	} {
		config, err := Load(c.file, c.context)
		switch {
		case !errors.Is(err, c.err):
			t.Errorf("%s: the error is %v, want %v", name, err, c.err)
		case err == nil && config.Host != c.host:
			t.Errorf("%s: the server is %s, want %s", name, config.Host, c.host)
		}
	}
	config, err := Load(current, "")
	if err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(filepath.Dir(current), "ca.crt"); config.CAFile != want {
		t.Errorf("the CA is in %s, want %s", config.CAFile, want)
	}
	if want := filepath.Join(filepath.Dir(current), "token"); config.BearerTokenFile != want {
		t.Errorf("the token is in %s, want %s", config.BearerTokenFile, want)
	}
	for name, c := range map[string]struct{ file, context string }{
		"a context that is not there": {current, "c"},
		"rubbish":                     {write(t, "{"), ""},
	} {
		if config, err := Load(c.file, c.context); err == nil {
			t.Errorf("%s: the server is %s", name, config.Host)
		}
	}
}

func TestMerge(t *testing.T) {
	current := write(t, "apiVersion: v1\nkind: Config\ncurrent-context: b")
	config, err := Merge(&clientcmd.ClientConfigLoadingRules{Precedence: []string{"/no/such/file", current, write(t, clusters)}}, "")
	if err != nil || config.Host != "https://b" {
		t.Errorf("got %v, %v", config, err)
	}
	if _, err := Merge(&clientcmd.ClientConfigLoadingRules{Precedence: []string{"/no/such/file"}}, ""); !errors.Is(err, ErrNoCluster) {
		t.Errorf("without files: %v", err)
	}
}
