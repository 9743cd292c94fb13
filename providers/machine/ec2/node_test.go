package ec2

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/machine"
	"github.com/virtual-kubelet/virtual-kubelet/providers/machine/agent"
	"github.com/virtual-kubelet/virtual-kubelet/providers/machine/ec2/ec2test"
	"github.com/virtual-kubelet/virtual-kubelet/providers/machine/internal/machinetest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/mock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// boot runs an instance: an agent at an address of its own.
func boot(t *testing.T, i ec2test.Instance, address string) (stop func()) {
	key, err := agent.NewKey()
	if err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() {
		machinetest.RunAgent(ctx, t, i.UserData, address, key, func(c mock.Config) (nodeutil.Provider, node.NodeProvider, error) {
			p, err := mock.New(c)
			return p, p, err
		})
	})
	return func() {
		cancel()
		ended.Wait()
	}
}

// cluster is a cluster with a node whose machines are instances of the fake.
type cluster struct {
	*rig
	*grouptest.Cluster
	provider nodeutil.Provider
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{rig: newRig(t, usual), Cluster: grouptest.NewCluster("cluster-uid")}
	number := 0
	c.server.Boot = func(i ec2test.Instance) (string, func()) {
		number++
		address := fmt.Sprintf("127.0.2.%d", number)
		return address, boot(t, i, address)
	}
	c.server.Lag = 200 * time.Millisecond
	t.Cleanup(func() {
		for _, i := range c.server.Instances() {
			c.server.Kill(i.ID, "Client.UserInitiatedShutdown", "the test has ended")
		}
	})
	at := fmt.Sprintf("127.0.0.1:%d", machinetest.FreePort(t))
	two, some := resource.MustParse("2"), resource.MustParse("7Gi")
	c.cfg.Cluster, c.cfg.StateDir, c.cfg.AgentPort = "home", t.TempDir(), machinetest.FreePort(t)
	c.cfg.Bootstrap = machine.BootstrapConfig{Listen: at, URL: "https://" + at}
	c.cfg.Refresh, c.cfg.MissingTimeout = metav1.Duration{Duration: 100 * time.Millisecond}, metav1.Duration{Duration: 500 * time.Millisecond}
	for i := range c.cfg.Types {
		c.cfg.Types[i].CPU, c.cfg.Types[i].Memory = &two, &some
	}
	c.start()
	t.Cleanup(func() { grouptest.Close(t, c.provider) })
	return c
}

// start starts the node, as a process does that begins again.
func (c *cluster) start() {
	c.t.Helper()
	c.restart()
	p, _, err := machine.New(c.Config(), c.cfg, c.driver)
	if err != nil {
		c.t.Fatal(err)
	}
	c.provider = p
	if notifier, ok := p.(node.PodNotifier); ok {
		notifier.NotifyPods(c.t.Context(), func(*corev1.Pod) {})
	}
}

// pod is a pod of the cluster whose machine is of a type.
func (c *cluster) pod(name, kind string) *corev1.Pod {
	pod := grouptest.NewPod(name)
	pod.UID, pod.Spec.NodeName = types.UID("uid-"+name), "vk"
	pod.Annotations = map[string]string{machine.TypeAnnotation: kind}
	c.SetPod(pod)
	return pod
}

func (c *cluster) run(name, kind string) *corev1.Pod {
	c.t.Helper()
	pod := c.pod(name, kind)
	c.eventually("pod "+name+" is created", func() error { return c.provider.CreatePod(c.t.Context(), pod) })
	c.has(pod, corev1.PodRunning, "")
	return pod
}

// has waits until a pod has a phase, and a reason.
func (c *cluster) has(pod *corev1.Pod, phase corev1.PodPhase, reason string) *corev1.PodStatus {
	c.t.Helper()
	var status *corev1.PodStatus
	c.eventually(fmt.Sprintf("pod %s is %s", pod.Name, phase), func() (err error) {
		status, err = c.provider.GetPodStatus(c.t.Context(), pod.Namespace, pod.Name)
		if err == nil && (status.Phase != phase || status.Reason != reason) {
			err = fmt.Errorf("it is %s %s: %s", status.Phase, status.Reason, status.Message)
		}
		return err
	})
	return status
}

func (c *cluster) eventually(what string, check func() error) {
	c.t.Helper()
	machinetest.Eventually(c.t, what, check)
}

// A pod has an instance of its own, which a node that begins again adopts, and which ends with it.
func TestPodHasAnInstance(t *testing.T) {
	c := newCluster(t)
	pod := c.run("a", "m7i.large")
	made := c.only()
	if status := c.has(pod, corev1.PodRunning, ""); status.PodIP != made.Address {
		t.Errorf("the pod's address is %s, and the instance's %s", status.PodIP, made.Address)
	}
	grouptest.Close(t, c.provider)
	c.start()
	c.has(pod, corev1.PodRunning, "")
	if again := c.only(); again.ID != made.ID {
		t.Errorf("the node that has begun again has instance %s, not %s", again.ID, made.ID)
	}
	if err := c.provider.DeletePod(t.Context(), pod.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	c.eventually("the instance is gone with its pod", func() error {
		if _, err := c.provider.GetPodStatus(t.Context(), pod.Namespace, pod.Name); !errdefs.IsNotFound(err) {
			return errors.New("the pod is there")
		}
		if left := c.instances(); len(left) > 0 {
			return errors.New("the instance is there")
		}
		return nil
	})
}

// The notice of a spot instance ends the pod before the instance is taken, as a disruption.
func TestPodOfASpotInstance(t *testing.T) {
	c := newCluster(t)
	pod := c.run("a", "cheap")
	c.server.Interrupt(c.only().ID)
	status := c.has(pod, corev1.PodFailed, "MachineTaken")
	disrupted := false
	for _, condition := range status.Conditions {
		disrupted = disrupted || condition.Type == corev1.DisruptionTarget && condition.Status == corev1.ConditionTrue
	}
	if !disrupted {
		t.Errorf("its conditions are %+v", status.Conditions)
	}
	c.world.Advance(3 * time.Minute)
	c.eventually("EC2 has taken the instance", func() error {
		if left := c.instances(); len(left) > 0 {
			return fmt.Errorf("%s is %s", left[0].ID, left[0].State)
		}
		return nil
	})
}

// An instance that EC2 ends without notice takes its pod along.
func TestInstanceEndsWithoutNotice(t *testing.T) {
	c := newCluster(t)
	pod := c.run("a", "m7i.large")
	c.server.Kill(c.only().ID, "Server.InternalError", "Server.InternalError: Internal error on launch")
	c.has(pod, corev1.PodFailed, "MachineLost")
}

// Why EC2 has ended an instance that was to start is in the error of the pod, which becomes its event.
func TestInstanceEndsAsItStarts(t *testing.T) {
	c := newCluster(t)
	c.server.Boot = func(ec2test.Instance) (string, func()) { return "127.0.2.1", nil }
	pod, answer := c.pod("a", "m7i.large"), make(chan error, 1)
	go func() { answer <- c.provider.CreatePod(t.Context(), pod) }()
	c.eventually("there is an instance", func() error {
		if len(c.instances()) == 0 {
			return errors.New("there is not")
		}
		return nil
	})
	c.server.Kill(c.only().ID, "Client.VolumeLimitExceeded", "Client.VolumeLimitExceeded: Volume limit exceeded")
	if err := <-answer; err == nil || errdefs.IsPermanent(err) || !strings.Contains(err.Error(), "EC2: Client.VolumeLimitExceeded") {
		t.Errorf("the error is %v", err)
	}
}
