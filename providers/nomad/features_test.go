package nomad

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/nomad/api"
	corev1 "k8s.io/api/core/v1"
	utilexec "k8s.io/utils/exec"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	vkapi "github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/nomad/nomadtest"
)

// rig is a provider that watches, and a fake of Nomad.
type rig struct {
	world   *grouptest.World
	api     *nomadtest.Server
	cluster *grouptest.Cluster
	nodeutil.Provider
	node    node.NodeProvider
	backend *backend
}

// start starts a provider that watches, as a process does.
func (r *rig) start(t *testing.T) {
	t.Helper()
	r.backend = newTestBackend(t, r.api)
	r.Provider, r.node = r.cluster.Start(t, r.backend, r.backend.options())
	r.Provider.(node.PodNotifier).NotifyPods(t.Context(), func(*corev1.Pod) {})
	synctest.Wait()
}

// inVirtualTime runs a test with a pod that runs.
func inVirtualTime(t *testing.T, change func(*corev1.Pod), test func(t *testing.T, r *rig, pod *corev1.Pod)) {
	synctest.Test(t, func(t *testing.T) {
		w := grouptest.New(time.Second)
		r := &rig{world: w, api: nomadtest.New(w), cluster: grouptest.NewCluster("here")}
		r.start(t)
		pod := grouptest.NewPod("web")
		if change != nil {
			change(pod)
		}
		r.cluster.SetPod(pod)
		if err := r.CreatePod(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		test(t, r, pod)
	})
}

func (r *rig) phase(t *testing.T, pod *corev1.Pod) *corev1.PodStatus {
	t.Helper()
	status, err := r.GetPodStatus(t.Context(), pod.Namespace, pod.Name)
	if err != nil {
		t.Fatal(err)
	}
	return status
}

// attach is a client of a command.
type attach struct {
	in       io.Reader
	out, err bytes.Buffer
	sizes    chan vkapi.TermSize
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

func (a *attach) Stdin() io.Reader              { return a.in }
func (a *attach) Stdout() io.WriteCloser        { return nopCloser{&a.out} }
func (a *attach) Stderr() io.WriteCloser        { return nopCloser{&a.err} }
func (a *attach) TTY() bool                     { return true }
func (a *attach) Resize() <-chan vkapi.TermSize { return a.sizes }

func TestExec(t *testing.T) {
	inVirtualTime(t, nil, func(t *testing.T, r *rig, pod *corev1.Pod) {
		r.api.Shell = func(command []string, tty bool, stdin io.Reader, stdout, stderr io.Writer, sizes <-chan api.TerminalSize) int {
			time.Sleep(time.Second)                            // the input has ended by then
			line, _ := bufio.NewReader(stdin).ReadString('\n') // first: in memory a stream that nobody reads holds up the sizes behind it
			size := <-sizes
			fmt.Fprintf(stdout, "%q %v %dx%d %s", command, tty, size.Width, size.Height, line)
			fmt.Fprint(stderr, "oops")
			return 3
		}
		a := &attach{in: strings.NewReader("typed\n"), sizes: make(chan vkapi.TermSize, 1)}
		a.sizes <- vkapi.TermSize{Width: 80, Height: 24}
		err := r.RunInContainer(t.Context(), pod.Namespace, pod.Name, "main", []string{"a b", "c;d\n${e}"}, a)
		exit, ok := err.(utilexec.ExitError)
		if !ok || exit.ExitStatus() != 3 || a.out.String() != `["a b" "c;d\n${e}"] true 80x24 typed`+"\n" || a.err.String() != "oops" {
			t.Errorf("the command prints %q and %q: %v", a.out.String(), a.err.String(), err)
		}
		r.api.Shell = func(_ []string, _ bool, stdin io.Reader, _, _ io.Writer, _ <-chan api.TerminalSize) int {
			_, _ = io.Copy(io.Discard, stdin)
			return 0
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		in, typed := io.Pipe()
		err = r.RunInContainer(ctx, pod.Namespace, pod.Name, "main", []string{"cat"}, &attach{in: in, sizes: make(chan vkapi.TermSize)})
		_ = typed.Close()
		if err == nil || ctx.Err() == nil {
			t.Errorf("a command that hangs ends with its context, with %v", err)
		}
	})
}

// Nomad forgets events, and does not say so: what happened while nobody watched is found by
// a list that is made while the new stream is open.
func TestEventsThatNomadForgets(t *testing.T) {
	inVirtualTime(t, func(pod *corev1.Pod) { pod.Spec.RestartPolicy = corev1.RestartPolicyNever }, func(t *testing.T, r *rig, pod *corev1.Pod) {
		r.api.ForgetEvents()
		r.world.BreakStreams()
		if err := r.world.Exit(pod.Name, "main", 4); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if status := r.phase(t, pod); status.Phase != corev1.PodFailed || status.ContainerStatuses[0].State.Terminated.ExitCode != 4 {
			t.Errorf("the status is %+v", status)
		}
	})
}

// The last status of a pod that is deleted has the exit codes of its containers.
func TestExitCodesOfADeletion(t *testing.T) {
	inVirtualTime(t, nil, func(t *testing.T, r *rig, pod *corev1.Pod) {
		codes := map[int32]bool{}
		r.Provider.(node.PodNotifier).NotifyPods(t.Context(), func(pod *corev1.Pod) {
			for _, s := range pod.Status.ContainerStatuses {
				if s.State.Terminated != nil {
					codes[s.State.Terminated.ExitCode] = true
				}
			}
		})
		synctest.Wait()
		if err := r.DeletePod(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if !codes[143] || len(codes) != 1 {
			t.Errorf("the exit codes are %v", codes)
		}
		if pods, err := r.GetPods(t.Context()); err != nil || len(pods) > 0 {
			t.Errorf("the provider has %v, error %v", pods, err)
		}
	})
}

// A pod does not move: the job of one that Nomad has ended is stopped.
func TestDisplacedPod(t *testing.T) {
	inVirtualTime(t, nil, func(t *testing.T, r *rig, pod *corev1.Pod) {
		before := r.world.Calls(nomadtest.ActionDeregister)
		r.api.Displace(pod.Name, api.AllocDesiredStatusStop, api.AllocClientStatusLost)
		time.Sleep(2 * time.Second)
		if n := r.world.Calls(nomadtest.ActionDeregister); n == before {
			t.Error("the job of a pod that is lost goes on elsewhere")
		}
		time.Sleep(10 * time.Second)
		status := r.phase(t, pod)
		if i := slices.IndexFunc(status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.DisruptionTarget }); status.Phase != corev1.PodFailed || i < 0 {
			t.Errorf("once its job is stopped the status is %+v", status)
		}
	})
}

// A job of others stays as it is, regardless of its ID and its allocations: Nomad moves it as they want.
func TestDisplacedJobsOfOthers(t *testing.T) {
	for name, meta := range map[string]map[string]string{
		"an operator's":     {podgroup.TagPodName: "api"},
		"another node's":    {podgroup.TagPodName: "api", podgroup.TagClusterName: "home", podgroup.TagNodeName: "vk-2"},
		"another cluster's": {podgroup.TagPodName: "api", podgroup.TagClusterName: "away", podgroup.TagNodeName: "vk"},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, nil, func(t *testing.T, r *rig, _ *corev1.Pod) {
				group := &api.TaskGroup{Name: new("api"), Networks: []*api.NetworkResource{{Mode: networkHost}}}
				job := &api.Job{ID: new("vk-api"), Namespace: new("default"), Type: new(api.JobTypeService), Meta: meta, TaskGroups: []*api.TaskGroup{group}}
				if _, err := r.world.Create(grouptest.Spec{Tags: meta, Data: job, Containers: []podgroup.Container{{Name: "api"}}}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(3 * time.Second)
				r.api.Displace("api", api.AllocDesiredStatusStop, api.AllocClientStatusComplete)
				time.Sleep(3 * time.Second)
				r.world.BreakStreams() // as at the start of the node
				time.Sleep(10 * time.Second)
				if n := r.world.Calls(nomadtest.ActionDeregister); n > 0 {
					t.Errorf("%d jobs are stopped", n)
				}
			})
		})
	}
}

func TestCapacity(t *testing.T) { testCapacity(t, "default") }

// Nomad before 1.6 has no node pools.
func TestCapacityWithoutPools(t *testing.T) { testCapacity(t, "") }

func testCapacity(t *testing.T, pool string) {
	inVirtualTime(t, nil, func(t *testing.T, r *rig, _ *corev1.Pod) {
		machine := func(id, status string) *api.NodeListStub {
			return &api.NodeListStub{
				ID: id, Status: status, SchedulingEligibility: api.NodeSchedulingEligible, NodePool: "default", Datacenter: "dc1",
				NodeResources: &api.NodeResources{Cpu: api.NodeCpuResources{CpuShares: 8000}, Memory: api.NodeMemoryResources{MemoryMB: 4096}},
			}
		}
		r.api.Nodes = []*api.NodeListStub{machine("a", api.NodeStatusReady), machine("b", api.NodeStatusDown)}
		r.api.Nodes[0].NodePool = pool
		r.api.Others = []*api.AllocationListStub{{ID: "x", JobID: "other", NodeID: "a", ClientStatus: api.AllocClientStatusRunning, AllocatedResources: &api.AllocatedResources{
			Tasks: map[string]*api.AllocatedTaskResources{"t": {Cpu: api.AllocatedCpuResources{CpuShares: 2000}, Memory: api.AllocatedMemoryResources{MemoryMB: 1024}}},
		}}}
		var found *corev1.Node
		r.node.NotifyNodeStatus(t.Context(), func(n *corev1.Node) { found = n })
		if err := r.node.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		if has, left := found.Status.Capacity, found.Status.Allocatable; has.Cpu().Value() != 4 || has.Memory().Value() != 4<<30 || left.Cpu().Value() != 3 || left.Memory().Value() != 3<<30 {
			t.Errorf("the node has %v, of which %v is left", has, left)
		}
	})
}
