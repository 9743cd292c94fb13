//go:build integration

// Package integration tests the virtual-kubelet binary, with the mock provider,
// on a real control plane. "make integration" builds both and runs it; without
// them it fails.
package integration

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/virtual-kubelet/virtual-kubelet/test/controlplane"
)

// bin is where the Makefile puts the binaries.
const bin = "../../bin"

// auditLog is where the API server writes what nodes ask of it.
var auditLog string

const auditPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  userGroups: ["system:nodes", "system:serviceaccounts:` + accountNamespace + `"]
- level: None
`

// The control plane of all tests, but for those withOwnControlPlane. Each has a namespace and a node
// of its own. Those that are parallel run after all others, some of which change what is the cluster's.
var (
	cluster *controlplane.ControlPlane
	client  kubernetes.Interface
)

func TestMain(m *testing.M) {
	status, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "integration:", err)
		status = 1
	}
	os.Exit(status)
}

func run(m *testing.M) (status int, err error) {
	if _, err := os.Stat(filepath.Join(bin, "virtual-kubelet")); err != nil {
		return 0, fmt.Errorf("%w: run \"make build\"", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("", "integration-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	auditLog = filepath.Join(dir, "audit.log")
	policy := filepath.Join(dir, "audit-policy.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		return 0, err
	}
	cluster, err = controlplane.Start(ctx, controlplane.Options{
		Binary: filepath.Join(bin, "controlplane"),
		Args:   map[string][]string{"kube-apiserver": {"--audit-policy-file=" + policy, "--audit-log-path=" + auditLog}},
	})
	if err != nil {
		return 0, err
	}
	defer func() {
		if stopErr := cluster.Stop(); err == nil {
			err = stopErr
		}
	}()
	if client, err = kubernetes.NewForConfig(cluster.Config()); err != nil {
		return 0, err
	}
	return m.Run(), nil
}
