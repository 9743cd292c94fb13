package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A kubeconfig that somebody names is never replaced by the pod's service account.
func TestKubeconfigWithoutACluster(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
	t.Setenv("KUBERNETES_SERVICE_PORT", "443")
	for name, content := range map[string]string{
		"no current context": "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: \"https://other\"}}]\n",
		"empty":              "",
	} {
		path := filepath.Join(t.TempDir(), "kubeconfig")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		check := func(o *options, source string) {
			t.Helper()
			_, _, err := kubeConfig(o)
			if err == nil || !strings.Contains(err.Error(), source+" "+path) || !strings.Contains(err.Error(), "current-context") {
				t.Errorf("%s of %s: got %v", name, source, err)
			}
		}
		check(&options{kubeconfig: path}, "--kubeconfig")
		t.Setenv("KUBECONFIG", path)
		check(&options{}, "KUBECONFIG")
	}
}
