package providertest

import (
	"cmp"
	"context"
	"errors"
	"os/exec"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/virtual-kubelet/virtual-kubelet/internal/nodecheck"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/test/controlplane"
)

// Suite says what is checked, and where. Its zero value, with a NewProvider, is
// usable: each field says what zero means.
type Suite struct {
	// NewProvider makes the provider, as nodeutil.NewNode has it. It is called
	// once more when the node is restarted: what pods have to survive that must
	// be outside of the provider. Provider and NodeProvider are closed before,
	// and in the end, if they are io.Closers. Required.
	NewProvider nodeutil.NewProviderFunc

	// Capabilities are what the provider declares to be able to do.
	Capabilities []Capability

	// Skip are checks, by name, that are left out, each with the reason.
	Skip map[string]string

	// Config is the cluster, with all rights there. Nil means that a control
	// plane is started for the test. The API server of another cluster has to
	// reach this machine.
	Config *rest.Config

	// ControlPlane is the path of the binary of the control plane. Defaults to
	// "controlplane" on the PATH.
	ControlPlane string

	// Namespace is where the pods are made. Defaults to a new one, which is
	// removed in the end.
	Namespace string

	// NodeName is the name of the node. Defaults to "providertest".
	NodeName string

	// NodeOptions change the configuration of the node, such as
	// SkipDownwardAPIResolution.
	NodeOptions []nodeutil.NodeOpt

	// Image is the image of all containers: one with a shell, cat, ls, cut, tr, sleep,
	// and nc or perl. Defaults to the busybox of the tests of Kubernetes.
	Image string

	// Shell is the command that runs the script of a container, which is
	// appended. Nil means sh -c. Empty means that there is none: containers run what
	// the image says, which has to run until it is stopped, and checks that need
	// Commands are skipped. Those of Exec run sh -c all the same.
	Shell []string

	// RestartPolicy is that of pods that are to run until they are deleted: another
	// one than Always, the default, for services that start nothing again.
	RestartPolicy corev1.RestartPolicy

	// Directories are where the provider keeps the files of pods, volumes and logs
	// among them. With them it is checked that volumes are given back when a pod has
	// finished, and that nothing of a pod stays once it is deleted.
	Directories []string

	// Agent returns a command that runs a node of this name, in the cluster of the
	// kubeconfig file, with the provider, such as virtual-kubelet with its flags: a
	// process that can be killed with SIGKILL, and is started again by another call.
	// With it, the checks around a restart are made of such a node, too, which shares
	// nothing with that of NewProvider. SIGTERM ends it well.
	Agent func(nodeName, kubeconfig string) *exec.Cmd

	// Timeout is how long a check may take. Defaults to two minutes.
	Timeout time.Duration
}

const (
	defaultNodeName = "providertest"
	defaultTimeout  = 2 * time.Minute
	// startTimeout is how long control plane and node may take to start.
	startTimeout = 2 * time.Minute
)

// Run checks a provider with the default options.
func Run(t *testing.T, newProvider nodeutil.NewProviderFunc, capabilities ...Capability) {
	t.Helper()
	Suite{NewProvider: newProvider, Capabilities: capabilities}.Run(t)
}

// Run makes the checks, each as a subtest: those of nodecheck below "checks",
// those around a restart of the node below "restart", that nothing is left, and those
// around a kill of the agent below "kill".
func (s Suite) Run(t *testing.T) {
	t.Helper()
	if err := s.complete(); err != nil {
		t.Fatal(err)
	}
	config := s.cluster(t)
	n, err := nodecheck.New(config, nodecheck.Options{
		Name:          s.NodeName,
		Namespace:     s.Namespace,
		Image:         s.Image,
		Shell:         s.Shell,
		RestartPolicy: s.RestartPolicy,
		Timeout:       s.Timeout,
		Directories:   s.Directories,
	})
	if err != nil {
		t.Fatal(err)
	}
	if s.Namespace == "" {
		n.Namespace = newNamespace(t, n)
	}
	r := &runner{Suite: s, node: n, client: n.Client}
	n.Restart = r.restart
	r.start(t)
	t.Cleanup(func() { r.tearDown(t) })
	t.Run("checks", r.runChecks)
	t.Run("restart", r.runRestart)
	t.Run("leaves-nothing", r.checkNothingLeft)
	if s.Agent != nil {
		t.Run("kill", func(t *testing.T) { s.runKill(t, config, n) })
	}
}

// complete fills in the defaults.
func (s *Suite) complete() error {
	if s.NewProvider == nil {
		return errors.New("there is no provider to check: set NewProvider")
	}
	for _, c := range s.Capabilities {
		if !slices.Contains(All(), c) {
			return errors.New("there is no capability " + string(c) + ": use the constants of package providertest")
		}
	}
	s.NodeName = cmp.Or(s.NodeName, defaultNodeName)
	s.Image = cmp.Or(s.Image, nodecheck.DefaultImage)
	s.Timeout = cmp.Or(s.Timeout, defaultTimeout)
	if s.Shell == nil {
		s.Shell = nodecheck.DefaultShell()
	}
	return nil
}

// cluster returns the cluster of the test.
func (s *Suite) cluster(t *testing.T) *rest.Config {
	t.Helper()
	if s.Config != nil {
		return s.Config
	}
	binary := s.ControlPlane
	if binary == "" {
		var err error
		if binary, err = exec.LookPath("controlplane"); err != nil {
			t.Fatalf("there is no cluster for the test: build the control plane with \"make controlplane\" in the repository of Virtual Kubelet, and set ControlPlane to its path; or set Config to another cluster: %v", err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	cluster, err := controlplane.Start(ctx, controlplane.Options{Binary: binary})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	return cluster.Config()
}

// newNamespace makes a namespace for the test, and waits for its default service
// account.
func newNamespace(t *testing.T, n *nodecheck.Node) string {
	t.Helper()
	namespaces := n.Client.CoreV1().Namespaces()
	namespace, err := namespaces.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "providertest-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("cannot make a namespace for the test: %v", err)
	}
	t.Cleanup(func() {
		if err := namespaces.Delete(context.Background(), namespace.Name, metav1.DeleteOptions{}); err != nil {
			t.Errorf("cannot remove the namespace of the test: %v", err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	err = n.Poll(ctx, func(ctx context.Context) error {
		_, err := n.Client.CoreV1().ServiceAccounts(namespace.Name).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	if err != nil {
		t.Fatalf("waiting for the service account of the test's namespace: %v", err)
	}
	return namespace.Name
}

// runner is a suite that runs.
type runner struct {
	Suite
	node    *nodecheck.Node
	client  kubernetes.Interface
	running *process
}

// runChecks makes the checks that go through the API server, side by side.
func (r *runner) runChecks(t *testing.T) {
	series := nodecheck.NewSeries(t.Context(), r.node, func(c nodecheck.Check) bool { return r.reason(c, r.node) == "" })
	for _, check := range nodecheck.Checks() {
		if check.Restarts {
			continue
		}
		t.Run(check.Name, func(t *testing.T) {
			r.skipUnlessSelected(t, check, r.node)
			t.Parallel()
			r.report(t, check, series.Result)
		})
	}
}

// runRestarting makes the checks that restart the agent of a node, one at a time.
func (s *Suite) runRestarting(t *testing.T, n *nodecheck.Node) {
	for _, check := range nodecheck.Checks() {
		if !check.Restarts {
			continue
		}
		t.Run(check.Name, func(t *testing.T) {
			s.skipUnlessSelected(t, check, n)
			s.report(t, check, func(c nodecheck.Check) nodecheck.Result { return c.Run(t.Context(), n) })
		})
	}
}

func (s *Suite) skipUnlessSelected(t *testing.T, check nodecheck.Check, n *nodecheck.Node) {
	t.Helper()
	if why := s.reason(check, n); why != "" {
		t.Skip(why)
	}
}

// reason returns why a check is skipped, or "".
func (s *Suite) reason(check nodecheck.Check, n *nodecheck.Node) string {
	if why, ok := s.Skip[check.Name]; ok {
		return cmp.Or(why, "it is to be skipped")
	}
	return nodecheck.Selection{Capabilities: s.Capabilities}.Reason(check, n)
}

// report makes one check, and reports its result.
func (*Suite) report(t *testing.T, check nodecheck.Check, run func(nodecheck.Check) nodecheck.Result) {
	t.Helper()
	t.Log(check.Title)
	switch result := run(check); result.Outcome {
	case nodecheck.Passed:
	case nodecheck.Skipped:
		t.Skip(result.Why)
	case nodecheck.NotSupported:
		t.Errorf("the provider declares %s, and says that it does not support it: %s\n%s", check.Capability(), result.Why, result.Details)
	default:
		t.Errorf("%s\n%s", result.Why, result.Details)
	}
}
