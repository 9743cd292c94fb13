//go:build integration || containers

// Package crash kills virtual-kubelet at random moments, again and again, while
// pods start, run and stop, and sees to it that no container runs twice, none is
// left behind, and every pod ends where it should. Control plane, binary and
// container runtime are the real ones. Where the provider is a process of its own
// that is killed, too, and where each pod has a machine the agents in machines, and
// machines.
//
// "make integration" does it to the providers process, remote and machine, and
// "make containers" to the CRI provider, all within bounded time; -crash.rounds=50
// is the full form. A seed that has failed is tried again with -crash.seed.
// -artifacts keeps the logs.
package crash

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/virtual-kubelet/virtual-kubelet/test/controlplane"
)

var (
	rounds = flag.Int("crash.rounds", 15, "how often the agent is killed")
	seed   = flag.Uint64("crash.seed", 0, "seed of what is done when; 0 takes a new one")

	withoutRelay = flag.Bool("crash.without-relay", false, "test the CRI provider without a relay, too")
)

// bin is where the Makefile puts the binaries.
const bin = "../../bin"

// patience is how long a test waits for what should take a moment.
const patience = 5 * time.Minute

// The control plane of all tests; they run one after the other, and each has a
// namespace and a node of its own.
var (
	cluster *controlplane.ControlPlane
	client  kubernetes.Interface
)

func TestMain(m *testing.M) {
	flag.Parse()
	status, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "crash:", err)
		status = 1
	}
	os.Exit(status)
}

func run(m *testing.M) (status int, err error) {
	if _, err := os.Stat(filepath.Join(bin, "virtual-kubelet")); err != nil {
		return 0, fmt.Errorf("%w: run \"make build\"", err)
	}
	if os.Geteuid() != 0 {
		return 0, fmt.Errorf("these tests need root: run them as root, as CI does")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if cluster, err = controlplane.Start(ctx, controlplane.Options{Binary: filepath.Join(bin, "controlplane")}); err != nil {
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
