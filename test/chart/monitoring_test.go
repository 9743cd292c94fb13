//go:build integration

package chart

import (
	"bytes"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// The API server, which has the definitions of the Prometheus operator, takes the PodMonitor
// and the PrometheusRule of each release, and refuses fields that it does not know.
func (w *world) testMonitoring(t *testing.T) {
	create := func(object any) (string, error) {
		text, err := yaml.Marshal(object)
		must(t, err)
		cmd := w.Kubectl(t.Context(), "create", "--validate=strict", "--dry-run=server", "-f", "-")
		cmd.Stdin = bytes.NewReader(text)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	for _, args := range [][]string{
		{"create", "-f", "testdata/crds/monitoring.coreos.com_podmonitors.yaml", "-f", "testdata/crds/monitoring.coreos.com_prometheusrules.yaml"},
		{"wait", "--for=condition=Established", "--timeout=60s", "crd/podmonitors.monitoring.coreos.com", "crd/prometheusrules.monitoring.coreos.com"},
		{"create", "namespace", namespace},
	} {
		if out, err := w.Kubectl(t.Context(), args...).CombinedOutput(); err != nil {
			t.Fatalf("kubectl %q: %v: %s", args, err, out)
		}
	}
	files, err := filepath.Glob("testdata/values/*.yaml")
	must(t, err)
	created := map[string]int{}
	for _, file := range files {
		for _, helm := range helms {
			out, err := run(t, helm, "template", release, chartDir, "--namespace", namespace, "--values", file,
				"--set", "metrics.enabled=true,metrics.monitor=true,metrics.alerts=true,metrics.labels.release=prometheus")
			must(t, err)
			made := parse(t, out)
			for _, key := range slices.Sorted(maps.Keys(made)) {
				object := made[key]
				if object["apiVersion"] != "monitoring.coreos.com/v1" {
					continue
				}
				created[object["kind"].(string)]++
				// The definitions may be served a moment after they are established.
				eventually(t, fmt.Sprint("the API server takes ", key, " of ", file, " by ", helm), func() (bool, string) {
					out, err := create(object)
					if err != nil && !strings.Contains(out, "no matches for kind") && !strings.Contains(out, "could not find the requested resource") {
						t.Fatalf("%s of %s by %s: %s", key, file, helm, out)
					}
					return err == nil, out
				})
				object["spec"].(map[string]any)["unheardOf"] = true
				if out, err := create(object); err == nil || !strings.Contains(out, "unheardOf") {
					t.Errorf("%s with a field that is not there is not refused: %v: %s", key, err, out)
				}
			}
		}
	}
	if want := len(files) * len(helms); created["PodMonitor"] != want || created["PrometheusRule"] != want {
		t.Errorf("%v were created, want %d of each kind", created, want)
	}
}
