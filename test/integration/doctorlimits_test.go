//go:build integration

package integration

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// What the doctor finds about what a node can give.

// requesting is a pod for a node that requests something.
func requesting(n *virtualNode, name corev1.ResourceName, quantity string) corev1.PodSpec {
	spec, list := podSpec(n), corev1.ResourceList{name: resource.MustParse(quantity)}
	spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: list, Limits: list}
	return spec
}

// Nodes give 100 CPUs and 1000 pods: see startNode.
func TestDoctorFindsPodsForWhichTheNodeHasNoRoom(t *testing.T) {
	for _, c := range []struct {
		name, message, fix string
		before             string // CPUs that a pod has which runs
		resource           corev1.ResourceName
		quantity           string
	}{
		{"never", "can never take pods that ask for it, even when it is empty: NS/waits; the first requests 101 of cpu, of which there is 100", "smaller request", "", corev1.ResourceCPU, "101"},
		{"extended", "can never take pods that ask for it, even when it is empty: NS/waits; the first requests 1 of example.com/gpu, of which the node has none", "smaller request", "", "example.com/gpu", "1"},
		{"now", "has no room for pods that ask for it: NS/waits; the first requests 60 of cpu, of which there is 40", "kubectl get pods -A --field-selector spec.nodeName=", "60", corev1.ResourceCPU, "60"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n, ns := startNode(t), newNamespace(t)
			if c.before != "" {
				createPod(t, ns, "runs", requesting(n, corev1.ResourceCPU, c.before), nil)
				waitForPhase(t, ns, "runs", corev1.PodRunning)
			}
			waits := createPod(t, ns, "waits", requesting(n, c.resource, c.quantity), nil)
			found := eventuallyBad(t, "limits", asAdmin(n)...)
			wantBad(t, found, "limits", "warning", strings.ReplaceAll(c.message, "NS", ns), c.fix)
			kubectl(t, "-n", ns, "delete", "pod", waits.Name)
			eventuallyBad(t, "", asAdmin(n)...)
		})
	}
}

func TestDoctorFindsANodeThatIsFull(t *testing.T) {
	n, ns := startNode(t), newNamespace(t)
	n.stop(t, syscall.SIGTERM)
	if err := os.WriteFile(n.config, []byte(fmt.Sprintf(`{%q: {"cpu": "1", "memory": "1Gi", "pods": "1"}}`, n.name)), 0o600); err != nil {
		t.Fatal(err)
	}
	n.start(t)
	createPod(t, ns, "only", podSpec(n), nil)
	waitForPhase(t, ns, "only", corev1.PodRunning)
	found := eventuallyBad(t, "limits", asAdmin(n)...)
	wantBad(t, found, "limits", "warning", "the node is full, and takes no further pods: 1 of 1 pods", "virtual-kubelet providers mock")
	kubectl(t, "-n", ns, "delete", "pod", "only")
	eventuallyBad(t, "", asAdmin(n)...)
}

// Somebody denies all that the node requests, until its next request is approved.
func TestDoctorFindsACertificateThatWasDenied(t *testing.T) {
	_, bootstrap := bootstrapToken(t)
	n := startItself(t, bootstrap, t.TempDir(), "--serving-certificate", "cluster")
	args := append(asAdmin(n), "--service-account", "")
	answer := func(verb string) {
		for _, request := range requestedBy(t, n.user, certificatesv1.KubeletServingSignerName) {
			if len(request.Status.Conditions) == 0 {
				kubectl(t, "certificate", verb, request.Name)
			}
		}
	}
	eventually(t, "the doctor finds that the request was denied", func(context.Context) (bool, string) {
		answer("deny") // the node asks again, at first soon
		found := doctor(t, nil, args...)
		for _, c := range found.Checks {
			if c.Check == "certificate-request" && strings.Contains(c.Message, "was denied") {
				wantBad(t, found, c.Check, "failed", "was denied", "approve that: kubectl get csr")
				return true, ""
			}
		}
		return false, fmt.Sprintf("%+v", found)
	})
	eventually(t, "a request is approved", func(context.Context) (bool, string) { // which the doctor recommends
		answer("approve")
		found := doctor(t, nil, args...)
		bad := found.bad()
		delete(bad, "metrics-server")
		return len(bad) == 0, fmt.Sprintf("%+v", found)
	})
}

// The API server is to talk only to nodes whose certificate the cluster has signed.
func TestDoctorFindsACertificateThatTheAPIServerDoesNotTrust(t *testing.T) {
	checkingServingCertificates(t)
	n := startNode(t) // with one that it has signed itself
	wantBad(t, eventuallyBad(t, "address", asAdmin(n)...), "address", "failed", "the API server does not trust the node's certificate", "--serving-certificate=cluster")
}

func TestDoctorFindsAClientCAFileThatCannotBeRead(t *testing.T) {
	n := startNode(t)
	text := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(text, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ file, message string }{
		"a missing file": {filepath.Join(t.TempDir(), "none.crt"), "no such file"},
		"a directory":    {t.TempDir(), "is a directory"},
		"something else": {text, text},
	} {
		t.Run(name, func(t *testing.T) {
			wantBad(t, eventuallyBad(t, "client-ca", append(asAdmin(n), "--client-ca-file", c.file)...), "client-ca", "failed", c.message, "--client-ca-file with the CA")
		})
	}
	// Of the API server's own there is nothing to find.
	eventuallyBad(t, "", append(asAdmin(n), "--client-ca-file", pki("ca.crt"))...)
}
