//go:build integration

package integration

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// What is read of a kubelet through the API server can be read of this node.
func TestKubeletAPIThroughTheAPIServer(t *testing.T) {
	n, ns := startNode(t, "--debug-http"), newNamespace(t)
	createPod(t, ns, "hello", podSpec(n), nil)
	waitForPhase(t, ns, "hello", corev1.PodRunning)
	for path, want := range map[string]string{
		"healthz/syncloop":   "ok",
		"readyz?verbose":     "[+]lease ok",
		"configz":            `"kind":"KubeletConfiguration"`,
		"runningpods/":       `"name":"hello"`,
		"stats/summary":      `"nodeName":"` + n.name + `"`,
		"metrics":            `kubelet_node_name{node="` + n.name + `"} 1`,
		"metrics/resource":   "node_memory_working_set_bytes ",
		"metrics/cadvisor":   `container_memory_working_set_bytes{container="c",`,
		"metrics/probes":     "process_start_time_seconds ",
		"metrics/slis":       "process_start_time_seconds ",
		"debug/pprof/symbol": "num_symbols",
	} {
		if out := kubectl(t, "get", "--raw", "/api/v1/nodes/"+n.name+"/proxy/"+path); !strings.Contains(out, want) {
			t.Errorf("%s: want %q in %.1000s", path, want, out)
		}
	}
}

// The probes of the virtual kubelet's own pod have no credentials.
func TestProbesNeedNoCredentials(t *testing.T) {
	n := startNode(t)
	port := kubectl(t, "get", "node", n.name, "-o", "jsonpath={.status.daemonEndpoints.kubeletEndpoint.Port}")
	address := kubectl(t, "get", "node", n.name, "-o", `jsonpath={.status.addresses[?(@.type=="InternalIP")].address}`)
	for path, want := range map[string]int{"/healthz": 200, "/livez": 200, "/readyz": 200, "/readyz?verbose": 401, "/readyz/lease": 401, "/metrics": 401} {
		if status := get(t, "https://"+address+":"+port+path, ""); status != want {
			t.Errorf("%s: %d, want %d", path, status, want)
		}
	}
}
