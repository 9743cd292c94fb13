//go:build integration

package providertest_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/mock"
	"github.com/virtual-kubelet/virtual-kubelet/providers/providertest"
)

// brokenVariable is set for the process in which the kit is to fail.
const brokenVariable = "PROVIDERTEST_BROKEN"

// broken declares what it cannot do, and never forgets a pod.
type broken struct {
	*mock.Provider
	memory *memory
}

// memory is what the provider before, and the one after a restart, have in common.
type memory struct {
	mu   sync.Mutex
	ever []*corev1.Pod
}

func (b *broken) CreatePod(ctx context.Context, pod *corev1.Pod) error {
	b.memory.mu.Lock()
	b.memory.ever = append(b.memory.ever, pod)
	b.memory.mu.Unlock()
	return b.Provider.CreatePod(ctx, pod)
}

func (b *broken) GetPods(context.Context) ([]*corev1.Pod, error) {
	b.memory.mu.Lock()
	defer b.memory.mu.Unlock()
	return slices.Clone(b.memory.ever), nil
}

func (b *broken) GetStatsSummary(context.Context) (*stats.Summary, error) {
	return nil, errors.ErrUnsupported
}

// A provider that is wrong fails, check by check, and the kit says what was seen.
func TestBrokenProviderFails(t *testing.T) {
	t.Parallel()
	if os.Getenv(brokenVariable) != "" {
		runBroken(t)
		return
	}
	command := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestBrokenProviderFails$", "-test.v")
	command.Env = append(os.Environ(), brokenVariable+"=1")
	output, err := command.CombinedOutput()
	if err == nil {
		t.Error("the kit has passed a broken provider")
	}
	text := string(output)
	for _, want := range []string{
		"--- PASS: TestBrokenProviderFails/checks/pod-runs",
		"--- PASS: TestBrokenProviderFails/checks/exec-output",
		"--- SKIP: TestBrokenProviderFails/checks/volume-contents",
		"volumes is not declared",
		"--- SKIP: TestBrokenProviderFails/checks/twenty-pods",
		"not today",
		"--- FAIL: TestBrokenProviderFails/checks/exit-code",
		"phase Succeeded",
		"container main: terminated with 0, Completed",
		"--- FAIL: TestBrokenProviderFails/checks/stats-summary",
		"the provider declares stats, and says that it does not support it",
		"--- FAIL: TestBrokenProviderFails/restart/deleted-while-down",
		"--- FAIL: TestBrokenProviderFails/restart/survives-restart",
		"--- FAIL: TestBrokenProviderFails/leaves-nothing",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in what the kit says", want)
		}
	}
	if t.Failed() {
		t.Logf("the kit says:\n%s", text)
	}
}

func runBroken(t *testing.T) {
	pods := &memory{}
	providertest.Suite{
		NewProvider: func(cfg nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
			m, err := mock.New(mock.Config{NodeName: cfg.Node.Name, HostIP: cfg.HostIPs()[0]})
			if err != nil {
				return nil, nil, err
			}
			m.ConfigureNode(context.Background(), cfg.Node)
			return &broken{m, pods}, m, nil
		},
		Capabilities: []providertest.Capability{providertest.Commands, providertest.Exec, providertest.Stats, providertest.SurvivesRestart},
		Skip:         map[string]string{"twenty-pods": "not today", "node-lease": "it takes ten seconds"},
		ControlPlane: filepath.Join(bin, "controlplane"),
		Timeout:      12 * time.Second, // for what fails,
	}.Run(t)
}
