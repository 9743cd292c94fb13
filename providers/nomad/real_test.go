//go:build integration

package nomad

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	utilexec "k8s.io/utils/exec"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/internal/lockedbuffer"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	vkapi "github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
)

// site is a provider on a real Nomad, and what a provider gets of Kubernetes.
type site struct {
	*testing.T
	nomad *realNomad
	cfg   Config
	home  *grouptest.Cluster
	p     nodeutil.Provider
	n     node.NodeProvider

	mu   sync.Mutex
	last map[types.UID]corev1.PodStatus // as notified
}

// on starts a provider that watches.
func (n *realNomad) on(t *testing.T, cfg Config) *site {
	t.Helper()
	cfg.ClusterName = t.Name() // subtests do not see each other's pods
	s := &site{T: t, nomad: n, cfg: cfg, home: grouptest.NewCluster("home")}
	s.start()
	t.Cleanup(func() { grouptest.Close(t, s.p) })
	return s
}

func (s *site) start() {
	s.Helper()
	init := s.home.Config()
	b, err := newBackend(s.cfg)
	must(s.T, err)
	b.node, b.sweep.age = init.Node.Name, time.Second
	p, n, err := podgroup.New(init, b, b.options())
	must(s.T, err)
	s.p, s.n = p, n
	s.mu.Lock()
	s.last = map[types.UID]corev1.PodStatus{}
	s.mu.Unlock()
	p.(node.PodNotifier).NotifyPods(s.Context(), func(pod *corev1.Pod) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.last[pod.UID] = pod.Status
	})
}

// pod returns a pod that runs a script once.
func (s *site) pod(name, script string) *corev1.Pod {
	pod := grouptest.NewPod(name)
	pod.UID = types.UID(uuid.NewUUID())
	pod.Spec.RestartPolicy, pod.Spec.TerminationGracePeriodSeconds = corev1.RestartPolicyNever, new(int64(2))
	pod.Spec.Containers[0].Image, pod.Spec.Containers[0].Command = testImage, []string{"sh", "-c", script}
	return pod
}

func (s *site) create(pod *corev1.Pod) {
	s.Helper()
	s.home.SetPod(pod)
	must(s.T, s.p.CreatePod(s.Context(), pod))
}

// await waits until the last status that was notified is as wanted.
func (s *site) await(pod *corev1.Pod, what string, ok func(*corev1.PodStatus) bool) (status corev1.PodStatus) {
	s.Helper()
	until(s.T, "pod "+pod.Name+" "+what, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		status = s.last[pod.UID]
		return ok(&status)
	})
	return status
}

func (s *site) awaitPhase(pod *corev1.Pod, phase corev1.PodPhase) corev1.PodStatus {
	s.Helper()
	return s.await(pod, "is "+string(phase), func(status *corev1.PodStatus) bool { return status.Phase == phase })
}

func (s *site) log(pod *corev1.Pod, opts vkapi.ContainerLogOpts) string {
	s.Helper()
	r, err := s.p.GetContainerLogs(s.Context(), pod.Namespace, pod.Name, "main", opts)
	must(s.T, err)
	defer r.Close()
	text, err := io.ReadAll(r)
	must(s.T, err)
	return string(text)
}

// awaitLog waits until Nomad has all of a log. Its driver for Docker stops to read the log
// of a container as soon as that has ended: what comes last could be missing for good.
func (s *site) awaitLog(pod *corev1.Pod, want string) {
	s.Helper()
	until(s.T, fmt.Sprintf("the log is\n%s\n", want), func() bool { return s.log(pod, vkapi.ContainerLogOpts{}) == want })
}

// untilReleased is the end of a script that goes on until release is called: how long Nomad,
// or a busy machine, takes for anything does not matter.
const untilReleased = `; until [ -e /tmp/released ]; do sleep 0.1; done; `

// container returns the name in Docker of the container "main" of a pod that runs.
func (s *site) container(pod *corev1.Pod) string {
	s.Helper()
	allocations, _, err := s.nomad.client.Jobs().Allocations(s.jobs(pod)[0], false, nil)
	must(s.T, err)
	if len(allocations) != 1 {
		s.Fatalf("pod %s has %d allocations", pod.Name, len(allocations))
	}
	return "main-" + allocations[0].ID
}

// release does not need Nomad, whose agent may be away.
func (s *site) release(container string) {
	s.Helper()
	out, err := s.nomad.command(s.T, "exec", container, "touch", "/tmp/released").CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == 137 {
		return // the container has ended before touch had
	}
	if err != nil {
		s.Fatalf("docker exec: %v: %s", err, out)
	}
}

// jobs returns the IDs of the jobs of a pod.
func (s *site) jobs(pod *corev1.Pod) (ids []string) {
	s.Helper()
	jobs, _, err := s.nomad.client.Jobs().PrefixList("vk-" + pod.Namespace + "-" + pod.Name + "-")
	must(s.T, err)
	for _, job := range jobs {
		ids = append(ids, job.ID)
	}
	return ids
}

// variables returns how many variables there are of the jobs of a pod.
func (s *site) variables(pod *corev1.Pod) int {
	s.Helper()
	list, _, err := s.nomad.client.Variables().PrefixList(jobsPath+"vk-"+pod.Namespace+"-"+pod.Name+"-", nil)
	must(s.T, err)
	return len(list)
}

// policy is what README.md says that the token needs.
func policy(t *testing.T) string {
	t.Helper()
	readme, err := os.ReadFile("README.md")
	must(t, err)
	_, rest, found := strings.Cut(string(readme), "```hcl\n")
	text, _, ends := strings.Cut(rest, "```")
	if !found || !ends {
		t.Fatal("README.md has no policy")
	}
	return text
}

// On a real Nomad, with containers of Docker.
func TestKit(t *testing.T) {
	t.Parallel()
	kit(Config{Address: startNomad(t, "").address, Network: networkHost}, testImage).Run(t)
}

// A real Nomad with ACLs. Subtests share it, each with its own pods.
func TestReal(t *testing.T) {
	t.Parallel()
	n := startNomad(t, "acl {\n  enabled = true\n}\n")
	cfg := Config{Address: n.address, Network: networkHost}
	_, err := n.client.ACLPolicies().Upsert(&api.ACLPolicy{Name: "node", Rules: policy(t)}, nil)
	must(t, err)
	token, _, err := n.client.ACLTokens().Create(&api.ACLToken{Name: "node", Type: "client", Policies: []string{"node"}}, nil)
	must(t, err)
	cfg.Token = Secret(token.SecretID)
	t.Run("together", func(t *testing.T) {
		for name, test := range map[string]func(*site){
			"hostile values":  hostileValues,
			"hostile links":   hostileLinks,
			"a log":           followedLog,
			"a log's files":   rotatedLog,
			"a command":       command,
			"a missing image": missingImage,
			"a job stopped":   stoppedByOthers,
			"a job removed":   removedByOthers,
			"the network":     bridged,
			"the report":      reported,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(n.on(t, cfg))
			})
		}
	})
	t.Run("a collected job", func(t *testing.T) { collected(n.on(t, cfg)) })
	t.Run("the agent starts again", func(t *testing.T) { agentRestart(n.on(t, cfg)) })
	t.Run("a drained machine", func(t *testing.T) { drained(n.on(t, cfg)) })
}

// What Nomad, HCL, its templates and the shell could interpolate arrives as it is.
func hostileValues(s *site) {
	value := "a'b\"c\n$(id) `x` \\ ${HOME} $${HOME} ${node.unique.id} %{ if true } %%{x} {{ key \"x\" }} $NOMAD_JOB_ID ${NOMAD_META_VK_DOLLAR} é"
	pod := s.pod("hostile", `echo "$ODD"; echo "$1"; cat /settings/odd; stat -c %a /settings/odd; pwd; (echo x >/settings/odd) 2>/dev/null || echo read-only`+untilReleased+"exit 3")
	s.home.SetConfigMap("settings", map[string]string{"level": value + "\n"})
	pod.Spec.Volumes = []corev1.Volume{{Name: "settings", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: "settings"},
		Items:                []corev1.KeyToPath{{Key: "level", Path: "odd", Mode: new(int32(0o640))}},
	}}}}
	main := &pod.Spec.Containers[0]
	main.Args, main.WorkingDir = []string{"sh", value}, "/tmp"
	main.Env = []corev1.EnvVar{{Name: "ODD", Value: value}}
	main.VolumeMounts = []corev1.VolumeMount{{Name: "settings", MountPath: "/settings"}}
	s.create(pod)
	s.awaitPhase(pod, corev1.PodRunning)
	want := strings.Repeat(value+"\n", 3) + "640\n/tmp\nread-only\n"
	s.awaitLog(pod, want)
	s.release(s.container(pod))
	if end := s.awaitPhase(pod, corev1.PodFailed).ContainerStatuses[0].State.Terminated; end == nil || end.ExitCode != 3 {
		s.Errorf("the container has ended with %v", end)
	}
	if got := s.log(pod, vkapi.ContainerLogOpts{}); got != want {
		s.Errorf("when the container has ended its log is\n%s\nwant\n%s", got, want)
	}
}

// A container that makes links of what it finds of volumes has those of its machine in none, neither
// in the next container nor when it is started again.
func hostileLinks(s *site) {
	pod := s.pod("links", `if [ ! -e /v/again ]; then touch /v/again; `+escape+`exit 1; fi; ls /v; ls /settings`+untilReleased)
	pod.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
	s.home.SetConfigMap("links", map[string]string{"key": "value"})
	pod.Spec.Volumes = []corev1.Volume{
		{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		{Name: "settings", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "links"}}}},
	}
	main := &pod.Spec.Containers[0]
	main.VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/v"}, {Name: "settings", MountPath: "/settings"}}
	first := main.DeepCopy()
	first.Name, first.Command[2] = "first", "touch /v/mark; "+escape
	pod.Spec.InitContainers = []corev1.Container{*first}
	s.create(pod)
	s.await(pod, "runs again", func(status *corev1.PodStatus) bool {
		return status.Phase == corev1.PodRunning && status.ContainerStatuses[0].RestartCount == 1 && status.ContainerStatuses[0].State.Running != nil
	})
	s.awaitLog(pod, "again\nmark\nkey\n")
	s.release(s.container(pod))
	s.awaitPhase(pod, corev1.PodSucceeded)
}

// escape is a script that replaces by a link to the root each directory of a volume that it finds in
// those that Nomad gives a container.
const escape = `for d in $(find /alloc /local /secrets -name v -o -name settings); do rm -rf $d; ln -s / $d; done; `

func followedLog(s *site) {
	// The driver stops to read when the container has ended: that is released when all was followed.
	pod := s.pod("log", `echo one; echo problem >&2; sleep 1; echo two; sleep 1; echo three`+untilReleased)
	s.create(pod)
	s.awaitPhase(pod, corev1.PodRunning)
	stream, err := s.p.GetContainerLogs(s.Context(), pod.Namespace, pod.Name, "main", vkapi.ContainerLogOpts{Follow: true})
	must(s.T, err)
	var followed lockedbuffer.Buffer
	var follower sync.WaitGroup
	follower.Go(func() { _, err = io.Copy(&followed, stream) })
	until(s.T, "the log was followed", func() bool {
		got := followed.String()
		return strings.Contains(got, "three\n") && strings.Contains(got, "problem\n")
	})
	s.release(s.container(pod))
	follower.Wait()
	must(s.T, errors.Join(err, stream.Close()))
	if got := followed.String(); strings.ReplaceAll(got, "problem\n", "") != "one\ntwo\nthree\n" || !strings.Contains(got, "problem\n") {
		s.Errorf("the log that was followed is %q", got)
	}
	s.awaitPhase(pod, corev1.PodSucceeded)
	for opts, want := range map[vkapi.ContainerLogOpts]string{
		{}:              "one\ntwo\nthree\nproblem\n",
		{Tail: 2}:       "three\nproblem\n",
		{LimitBytes: 5}: "one\nt",
		{Follow: true}:  "one\ntwo\nthree\nproblem\n",
	} {
		if got := s.log(pod, opts); got != want {
			s.Errorf("with %+v the log is %q, want %q", opts, got, want)
		}
	}
}

// client is one of a command, with a terminal.
type client struct {
	in       io.Reader
	out, err lockedbuffer.Buffer
	sizes    chan vkapi.TermSize
	tty      bool
}

func (c *client) Stdin() io.Reader              { return c.in }
func (c *client) Stdout() io.WriteCloser        { return nopCloser{&c.out} }
func (c *client) Stderr() io.WriteCloser        { return nopCloser{&c.err} }
func (c *client) TTY() bool                     { return c.tty }
func (c *client) Resize() <-chan vkapi.TermSize { return c.sizes }

func command(s *site) {
	pod := s.pod("command", "trap 'exit 5' TERM; echo waits; while :; do sleep 0.1; done")
	pod.Spec.TerminationGracePeriodSeconds = new(int64(60)) // a busy machine is no failure
	s.create(pod)
	s.awaitPhase(pod, corev1.PodRunning)
	run := func(c *client, args ...string) error {
		return s.p.RunInContainer(s.Context(), pod.Namespace, pod.Name, "main", args, c)
	}
	c := &client{in: strings.NewReader("text")}
	err := run(c, "sh", "-c", "cat; echo problem >&2; exit 4")
	ended, ok := err.(utilexec.ExitError)
	if !ok || ended.ExitStatus() != 4 || c.out.String() != "text" || c.err.String() != "problem\n" {
		s.Errorf("the command prints %q and %q: %v", c.out.String(), c.err.String(), err)
	}
	in, typed := io.Pipe()
	c = &client{in: in, tty: true, sizes: make(chan vkapi.TermSize, 1)}
	c.sizes <- vkapi.TermSize{Width: 81, Height: 25}
	var terminal sync.WaitGroup
	terminal.Go(func() {
		err = run(c, "sh", "-c", "until stty size | grep '25 81'; do sleep 0.1; done; read word; echo \"<$word>\"")
	})
	until(s.T, "the terminal has its size", func() bool { return strings.Contains(c.out.String(), "25 81") })
	_, _ = typed.Write([]byte("typed\n"))
	terminal.Wait()
	_ = typed.Close()
	if err != nil || !strings.Contains(c.out.String(), "<typed>") {
		s.Errorf("the terminal shows %q: %v", c.out.String(), err)
	}
	if err := run(&client{}, "/missing"); err == nil || errdefs.IsUnavailable(err) {
		s.Errorf("a command that does not exist gives %v", err)
	}
	until(s.T, "the pod has figures", func() bool {
		summary, err := s.p.GetStatsSummary(s.Context())
		return err == nil && len(summary.Pods) == 1 && len(summary.Pods[0].Containers) == 1 && *summary.Pods[0].Memory.WorkingSetBytes > 0
	})
	s.awaitLog(pod, "waits\n")
	must(s.T, s.p.DeletePod(s.Context(), pod))
	if end := s.awaitPhase(pod, corev1.PodFailed).ContainerStatuses[0].State.Terminated; end.ExitCode != 5 {
		s.Errorf("the container has ended with %v", end)
	}
	until(s.T, "the job is gone", func() bool { return len(s.jobs(pod)) == 0 })
}

func missingImage(s *site) {
	pod := s.pod("image", "true")
	pod.Spec.Containers[0].Image = "localhost:1/missing:1"
	s.create(pod)
	status := s.await(pod, "says what is wrong", func(status *corev1.PodStatus) bool {
		return len(status.ContainerStatuses) > 0 && strings.Contains(status.String(), "localhost:1/missing:1")
	})
	if status.Phase == corev1.PodRunning {
		s.Errorf("the status is %+v", status)
	}
}

// The pod fails, with the exit code of its container.
func stoppedByOthers(s *site) {
	pod := s.pod("stopped", "trap 'exit 6' TERM; echo waits; while :; do sleep 0.1; done")
	pod.Spec.TerminationGracePeriodSeconds = new(int64(60)) // a busy machine is no failure
	s.create(pod)
	s.awaitPhase(pod, corev1.PodRunning)
	s.awaitLog(pod, "waits\n")
	_, _, err := s.nomad.client.Jobs().Deregister(s.jobs(pod)[0], false, nil)
	must(s.T, err)
	if end := s.awaitPhase(pod, corev1.PodFailed).ContainerStatuses[0].State.Terminated; end.ExitCode != 6 {
		s.Errorf("the container has ended with %v", end)
	}
}

func removedByOthers(s *site) {
	pod := s.pod("removed", "sleep 1000")
	s.create(pod)
	s.awaitPhase(pod, corev1.PodRunning)
	_, _, err := s.nomad.client.Jobs().Deregister(s.jobs(pod)[0], true, nil)
	must(s.T, err)
	until(s.T, "the pod is missing", func() bool {
		_, err := s.p.GetPodStatus(s.Context(), pod.Namespace, pod.Name)
		return errdefs.IsNotFound(err)
	})
}

// In a network of its own a pod has its address, name and resolver.
func bridged(s *site) {
	cfg := s.cfg
	cfg.Network, cfg.JobPrefix = networkBridge, "br-"
	b := s.nomad.on(s.T, cfg)
	s.Cleanup(func() { _ = exec.Command("ip", "link", "delete", "nomad").Run() }) //nolint:noctx // Nomad leaves its bridge
	pod := b.pod("bridged", "hostname; cat /etc/resolv.conf; echo end; sleep 1000")
	pod.Spec.DNSPolicy, pod.Spec.DNSConfig = corev1.DNSNone, &corev1.PodDNSConfig{Nameservers: []string{"192.0.2.53"}, Searches: []string{"example.org"}}
	b.create(pod)
	status := b.await(pod, "runs with an address", func(status *corev1.PodStatus) bool { return status.Phase == corev1.PodRunning && status.PodIP != "" })
	if status.PodIP == status.HostIP {
		s.Errorf("pod and machine have the address %s", status.PodIP)
	}
	text := ""
	until(s.T, "the pod has printed all", func() bool {
		text = b.log(pod, vkapi.ContainerLogOpts{})
		return strings.HasSuffix(text, "end\n")
	})
	if !strings.HasPrefix(text, "bridged\n") || !strings.Contains(text, "nameserver 192.0.2.53") || !strings.Contains(text, "search example.org") {
		s.Errorf("name and resolver are %q", text)
	}
	must(s.T, b.p.DeletePod(s.Context(), pod))
	until(s.T, "the pod has left", func() bool {
		jobs, _, err := s.nomad.client.Jobs().PrefixList("br-")
		return err == nil && len(jobs) == 0
	})
}

func reported(s *site) {
	var found *corev1.Node
	s.n.NotifyNodeStatus(s.Context(), func(n *corev1.Node) { found = n })
	must(s.T, s.n.Ping(s.Context()))
	if found.Status.Capacity.Cpu().Value() != 64000/defaultMHzPerCPU || found.Status.Capacity.Memory().Value() != 64000<<20 {
		s.Errorf("the capacity is %v", found.Status.Capacity)
	}
}

// A pod that ends while nobody watches, and whose job Nomad collects, is not run again, and leaves
// no variables.
func collected(s *site) {
	pod := s.pod("collected", "true"+untilReleased)
	s.home.SetConfigMap("collected", map[string]string{"key": "value"})
	pod.Spec.Volumes = []corev1.Volume{{Name: "settings", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: "collected"},
	}}}}
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "settings", MountPath: "/settings"}}
	s.create(pod)
	pod = pod.DeepCopy()
	pod.Status = s.awaitPhase(pod, corev1.PodRunning)
	grouptest.Close(s.T, s.p)
	s.release(s.container(pod))
	until(s.T, "the job is collected", func() bool {
		must(s.T, s.nomad.client.System().GarbageCollect())
		return len(s.jobs(pod)) == 0
	})
	if n := s.variables(pod); n != 1 {
		s.Errorf("the node is away, and there are %d variables", n)
	}
	s.home.SetPod(pod)
	s.start()
	until(s.T, "the variables are deleted", func() bool { return s.variables(pod) == 0 })
	var err error
	until(s.T, "the unit counts as gone", func() bool { // once it has been missing for a minute
		err = s.p.CreatePod(s.Context(), pod)
		return !errdefs.IsUnavailable(err)
	})
	if !errdefs.IsPermanent(err) || !strings.Contains(err.Error(), "UnitGone") {
		s.Errorf("the pod is created again: %v", err)
	}
}

// Containers run on while Nomad's agent is away, and what happens then is seen later: a
// minute, since a server that has just started denies all for a moment. One that is gone does not run
// again.
func agentRestart(s *site) {
	stays, ends := s.pod("stays", "sleep 1000"), s.pod("ends", "true"+untilReleased+"exit 7")
	lost := s.pod("lost", "sleep 1000")
	s.create(stays)
	s.create(ends)
	s.create(lost)
	before := s.awaitPhase(stays, corev1.PodRunning)
	s.awaitPhase(ends, corev1.PodRunning)
	s.awaitPhase(lost, corev1.PodRunning)
	container, gone := s.container(ends), s.container(lost)
	must(s.T, s.nomad.agent.Stop(syscall.SIGKILL))
	s.release(container)
	if out, err := s.nomad.command(s.T, "rm", "--force", gone).CombinedOutput(); err != nil {
		s.Fatalf("docker rm: %v: %s", err, out)
	}
	if err := s.p.DeletePod(s.Context(), stays); !errdefs.IsUnavailable(err) {
		s.Errorf("without an agent a deletion gives %v", err)
	}
	until(s.T, "the container has ended", func() bool {
		out, err := s.nomad.command(s.T, "inspect", "--format", "{{.State.Status}}", container).Output()
		return err == nil && strings.TrimSpace(string(out)) == "exited"
	})
	s.nomad.startAgent()
	if end := s.awaitPhase(ends, corev1.PodFailed).ContainerStatuses[0].State.Terminated; end.ExitCode != 7 {
		s.Errorf("the container has ended with %v", end)
	}
	if status := s.awaitPhase(lost, corev1.PodFailed); status.Reason != "NodeRestarted" || status.ContainerStatuses[0].State.Terminated.Reason != "ContainerStatusUnknown" {
		s.Errorf("the status of a pod whose container is gone is %+v", status)
	}
	until(s.T, "the other pod runs on", func() bool {
		c := &client{}
		err := s.p.RunInContainer(s.Context(), stays.Namespace, stays.Name, "main", []string{"echo", "here"}, c)
		return err == nil && c.out.String() == "here\n"
	})
	if after := s.awaitPhase(stays, corev1.PodRunning); after.ContainerStatuses[0].ContainerID != before.ContainerStatuses[0].ContainerID {
		s.Errorf("the container was %v, and is %v", before.ContainerStatuses, after.ContainerStatuses)
	}
	must(s.T, s.p.DeletePod(s.Context(), stays))
	until(s.T, "the job is gone", func() bool { return len(s.jobs(stays)) == 0 })
}

// A pod does not move: its job does not go on elsewhere, or here when the drain is over.
func drained(s *site) {
	pod := s.pod("drained", "sleep 1000")
	pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
	s.create(pod)
	s.awaitPhase(pod, corev1.PodRunning)
	nodes, _, err := s.nomad.client.Nodes().List(nil)
	must(s.T, err)
	_, err = s.nomad.client.Nodes().UpdateDrain(nodes[0].ID, &api.DrainSpec{Deadline: time.Second}, false, nil)
	must(s.T, err)
	isDisrupted := func(status *corev1.PodStatus) bool {
		return status.Phase == corev1.PodFailed && slices.ContainsFunc(status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue
		})
	}
	s.await(pod, "is disrupted", isDisrupted)
	until(s.T, "the job is stopped", func() bool {
		job, _, err := s.nomad.client.Jobs().Info(s.jobs(pod)[0], nil)
		return err == nil && *job.Stop
	})
	if status, err := s.p.GetPodStatus(s.Context(), pod.Namespace, pod.Name); err != nil || !isDisrupted(status) {
		s.Errorf("the status is then %+v, error %v", status, err)
	}
	must(s.T, s.p.DeletePod(s.Context(), pod))
	until(s.T, "the job is gone", func() bool { return len(s.jobs(pod)) == 0 })
}
