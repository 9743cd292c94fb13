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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/providers/mock"
	"github.com/virtual-kubelet/virtual-kubelet/providers/providertest"
)

// failingVariable is set for the process in which the kit is to fail.
const failingVariable = "PROVIDERTEST_FAILING"

// failing runs a suite in a process of its own, where it has to fail, and returns
// what it says. It is nothing in that process itself.
func failing(t *testing.T, suite providertest.Suite) string {
	t.Helper()
	suite.ControlPlane = filepath.Join(bin, "controlplane")
	if os.Getenv(failingVariable) != "" {
		suite.Run(t)
		return ""
	}
	command := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	command.Env = append(os.Environ(), failingVariable+"=1")
	output, err := command.CombinedOutput()
	if err == nil {
		t.Errorf("the kit has passed the provider:\n%s", output)
	}
	return string(output)
}

// assertSays checks what the kit says of a provider that fails.
func assertSays(t *testing.T, text string, says ...string) {
	t.Helper()
	for _, want := range says {
		if text != "" && !strings.Contains(text, want) {
			t.Errorf("%q is missing in what the kit says", want)
		}
	}
	if t.Failed() && text != "" {
		t.Logf("the kit says:\n%s", text)
	}
}

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
	pods := &memory{}
	text := failing(t, providertest.Suite{
		NewProvider: func(cfg nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
			m, err := newMock(cfg)
			return &broken{m, pods}, m, err
		},
		Capabilities: []providertest.Capability{providertest.Commands, providertest.Exec, providertest.Stats, providertest.SurvivesRestart},
		Skip:         map[string]string{"twenty-pods": "not today", "node-lease": "it takes ten seconds"},
		Timeout:      30 * time.Second, // what fails waits for it; what passes needs some on a busy machine
	})
	assertSays(t, text,
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
		"--- FAIL: TestBrokenProviderFails/restart/deleted-while-down",
		"--- FAIL: TestBrokenProviderFails/restart/survives-restart",
		"--- FAIL: TestBrokenProviderFails/leaves-nothing",
	)
}

// partial has but the six methods that a provider must have, and notifies of changes.
type partial struct {
	node.PodLifecycleHandler
	node.PodNotifier
}

// A provider that declares what it lacks fails by its own word.
func TestPartialProviderFails(t *testing.T) {
	t.Parallel()
	text := failing(t, providertest.Suite{
		NewProvider: func(cfg nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
			m, err := newMock(cfg)
			return nodeutil.AsProvider(&partial{m, m}), m, err
		},
		Capabilities: []providertest.Capability{providertest.Logs, providertest.Exec, providertest.Attach, providertest.PortForward, providertest.Stats},
	})
	const says = ", and says that it does not support it: "
	assertSays(t, text,
		"the provider declares logs"+says, "the provider declares exec"+says, "the provider declares attach"+says,
		"the provider declares port-forward"+says, "the provider declares stats"+says,
		"--- PASS: TestPartialProviderFails/checks/twenty-pods",
		"--- PASS: TestPartialProviderFails/leaves-nothing",
	)
	for line := range strings.Lines(text) {
		if strings.Contains(line, "provider does not implement") && !strings.Contains(line, says) {
			t.Errorf("a check fails, other than by the provider's word: %s", line)
		}
	}
}

// waiting is a provider whose pods do not start.
type waiting struct{ *mock.Provider }

func (w *waiting) CreatePod(ctx context.Context, pod *corev1.Pod) error {
	pod = pod.DeepCopy()
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, mock.AnnotationStartDelay, "1h")
	return w.Provider.CreatePod(ctx, pod)
}

// Where no pod runs that is reported once, and what needs pods that run is skipped.
func TestProviderWithoutRunningPodsFailsOnce(t *testing.T) {
	t.Parallel()
	text := failing(t, providertest.Suite{
		NewProvider: func(cfg nodeutil.ProviderConfig) (nodeutil.Provider, node.NodeProvider, error) {
			m, err := newMock(cfg)
			return &waiting{m}, m, err
		},
		Capabilities: []providertest.Capability{providertest.Logs, providertest.Exec},
		Skip:         map[string]string{"node-lease": "it takes ten seconds"},
		Timeout:      20 * time.Second, // as above
	})
	const name = "TestProviderWithoutRunningPodsFailsOnce/checks/"
	assertSays(t, text, "--- FAIL: "+name+"pod-runs", "--- SKIP: "+name+"twenty-pods", "--- SKIP: "+name+"exec-output", "--- SKIP: "+name+"logs",
		"pod-runs has failed, without which this cannot pass")
	if n := strings.Count(text, "--- FAIL: "+name); text != "" && n != 1 {
		t.Errorf("%d checks failed", n)
	}
}

func newMock(cfg nodeutil.ProviderConfig) (*mock.Provider, error) {
	m, err := mock.New(mock.Config{NodeName: cfg.Node.Name, HostIP: cfg.HostIPs()[0]})
	if err == nil {
		m.ConfigureNode(context.Background(), cfg.Node)
	}
	return m, err
}
