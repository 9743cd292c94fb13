//go:build integration

// Package kubectl tests what a user does with the real kubectl: through the real
// kube-apiserver to a node whose pods run real processes (see processes), so
// that checksums, exit codes and terminals can be checked. "make integration"
// builds what it needs.
package kubectl

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/virtual-kubelet/virtual-kubelet/internal/metricsservertest"
	"github.com/virtual-kubelet/virtual-kubelet/test/controlplane"
)

// bin is where the Makefile puts the binaries.
const bin = "../../bin"

// The control plane of all tests; each has a namespace and a node of its own.
var (
	cluster *controlplane.ControlPlane
	client  kubernetes.Interface
)

func TestMain(m *testing.M) {
	status, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "kubectl:", err)
		status = 1
	}
	os.Exit(status)
}

func run(m *testing.M) (status int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cluster, err = controlplane.Start(ctx, controlplane.Options{
		Binary: filepath.Join(bin, "controlplane"),
		Args:   map[string][]string{"kube-apiserver": {metricsservertest.APIServerFlag}},
	})
	if err != nil {
		return 0, err
	}
	status, err = runWithCluster(m)
	if stopErr := cluster.Stop(); stopErr != nil {
		err = errors.Join(err, stopErr)
	}
	if err != nil || status != 0 {
		return status, err
	}
	return 0, leaked()
}

// leaked says which goroutines do not end, on a machine that may be busy.
func leaked() (err error) {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if err = goleak.Find(); err == nil {
			return nil
		}
	}
	return err
}

func runWithCluster(m *testing.M) (int, error) {
	config := cluster.Config()
	transport, err := rest.TransportFor(config) // the one that all clients of this config share
	if err != nil {
		return 0, err
	}
	defer utilnet.CloseIdleConnectionsFor(transport)
	if client, err = kubernetes.NewForConfig(config); err != nil {
		return 0, err
	}
	return m.Run(), nil
}
