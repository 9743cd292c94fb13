//go:build integration

package slurm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	utilexec "k8s.io/utils/exec"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/slurm/internal/login"
	"github.com/virtual-kubelet/virtual-kubelet/test/slurm"
)

// site is a provider on a real Slurm, and what a provider gets of Kubernetes.
type site struct {
	*testing.T
	slurm *cluster
	home  *grouptest.Cluster
	p     nodeutil.Provider
	n     node.NodeProvider
}

// on starts a provider.
func (c *cluster) on(t *testing.T, config Config) *site {
	t.Helper()
	s := &site{T: t, slurm: c, home: grouptest.NewCluster("home")}
	p, n, err := New(s.home.Config(), config)
	must(t, err)
	s.p, s.n = p, n
	t.Cleanup(func() { grouptest.Close(t, p) })
	return s
}

// pod returns a pod that runs once.
func (s *site) pod(name, script string) *corev1.Pod {
	pod := grouptest.NewPod(name)
	pod.UID = types.UID(uuid.NewUUID()) // Slurm knows the jobs of all tests
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	pod.Spec.Containers[0].Command = []string{"sh", "-c", script}
	return pod
}

func (s *site) create(pod *corev1.Pod) {
	s.Helper()
	s.home.SetPod(pod)
	must(s.T, s.p.CreatePod(s.Context(), pod))
}

func (s *site) status(pod *corev1.Pod) *corev1.PodStatus {
	s.Helper()
	status, err := s.look(pod)
	must(s.T, err)
	return status
}

// look returns a status, or nil for a pod that there is not.
func (s *site) look(pod *corev1.Pod) (*corev1.PodStatus, error) {
	status, err := s.p.(node.PodUIDLifecycleHandler).GetPodStatusByUID(s.Context(), pod.Namespace, pod.Name, pod.UID)
	if errdefs.IsNotFound(err) {
		return nil, nil
	}
	return status, err
}

// await waits for a phase; empty is that the pod has ended, and may be gone. The first container
// of a pod that runs has started then: a job runs a moment before, in which its script may have
// no container yet that it could report on.
func (s *site) await(pod *corev1.Pod, phase corev1.PodPhase) *corev1.PodStatus {
	s.Helper()
	var status *corev1.PodStatus
	s.slurm.Until(s.T, fmt.Sprintf("pod %s is %q", pod.Name, phase), func() bool {
		var err error
		switch status, err = s.look(pod); {
		case errdefs.IsUnavailable(err):
			return false // a busy Slurm gives no answer in time
		case err != nil:
			s.Fatal(err)
		case phase == "":
			return status == nil || status.Phase == corev1.PodFailed || status.Phase == corev1.PodSucceeded
		case phase == corev1.PodRunning:
			return status != nil && status.Phase == phase && status.ContainerStatuses[0].State.Waiting == nil
		}
		return status != nil && status.Phase == phase
	})
	return status
}

func (s *site) log(pod *corev1.Pod, opts api.ContainerLogOpts) string {
	s.Helper()
	r, err := s.p.GetContainerLogs(s.Context(), pod.Namespace, pod.Name, "main", opts)
	must(s.T, err)
	defer r.Close()
	text, err := io.ReadAll(r)
	must(s.T, err)
	return string(text)
}

// untilReleased is the end of a script that goes on until release is called: how long Slurm,
// or a busy machine, takes for anything does not matter.
const untilReleased = `; until [ -e "$VIRTUAL_KUBELET_MOUNTS/../../released" ]; do sleep 0.1; done; `

func (s *site) release(pod *corev1.Pod) {
	s.Helper()
	must(s.T, os.WriteFile(filepath.Join(s.directory(pod), "released"), nil, 0o600))
}

// directory is that of a pod.
func (s *site) directory(pod *corev1.Pod) string {
	s.Helper()
	states, err := filepath.Glob(filepath.Join(s.slurm.Dir, "pods", "*", "state"))
	must(s.T, err)
	for _, name := range states {
		if text, _ := os.ReadFile(name); bytes.Contains(text, []byte(pod.UID)) {
			return filepath.Dir(name)
		}
	}
	s.Fatalf("pod %s has no directory", pod.Name)
	return ""
}

func (s *site) job(pod *corev1.Pod) string {
	return s.slurm.Run(s.T, "squeue", "--noheader", "--states=all", "--name="+filepath.Base(s.directory(pod)), "--format=%A")
}

// A real Slurm, with processes of the machine. Subtests share it, each with its own pods.
func TestReal(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	for name, test := range map[string]func(*site){
		"hostile values":           hostileValues,
		"a secret":                 secret,
		"an answer is lost":        lostAnswer,
		"staging breaks off":       brokenStaging,
		"what is never complete":   incomplete,
		"a job is submitted twice": submittedTwice,
		"somebody cancels the job": cancelled,
		"a job is queued again":    requeued,
		"a job is stopped":         stopped,
		"jobs of others":           foreign,
		"a grace period":           gracePeriod,
		"force":                    force,
		"a job in the queue":       queued,
		"a flag":                   flagged,
		"what Slurm refuses":       refused,
		"restarts":                 restarts,
		"several containers":       severalContainers,
		"a log":                    followedLog,
		"a command":                command,
		"the agent starts again":   agentRestart,
		"a killed script":          killedScript,
		"the report":               reported,
		"figures":                  figures,
		"what TestLive runs":       func(s *site) { grouptest.Live(s.T, s.p, s.n, s.home, "") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(c.on(t, c.config(RuntimeNone)))
		})
	}
}

// The values of a pod arrive as they are.
func hostileValues(s *site) {
	value := "a'b\"c\n$(touch /tmp/hostile) `x` \\ ${HOME} !x \t;|&*?~#\xc3\xbc "
	s.home.SetConfigMap("odd", map[string]string{"k": value, "-rf": value, ".hidden": "h"})
	mode := int32(0o440)
	pod := s.pod("hostile.name-"+strings.Repeat("x", 200), `printf '%s' "$ODD" "$1" >"$VIRTUAL_KUBELET_MOUNTS/out/both"; ls -A "$VIRTUAL_KUBELET_MOUNTS/odd d'ir" >"$VIRTUAL_KUBELET_MOUNTS/out/names"; ls -lL "$VIRTUAL_KUBELET_MOUNTS/odd d'ir/k" | cut -c 1-10; cat "$VIRTUAL_KUBELET_MOUNTS/odd d'ir/k"; echo`+untilReleased+"exit 7")
	c := &pod.Spec.Containers[0]
	c.Args = []string{"name", value}
	c.Env = []corev1.EnvVar{{Name: "ODD", Value: value}, {Name: "a.b-c", Value: "dot"}, {Name: "dir", Value: "x"}, {Name: "UID", Value: "x"}, {Name: "PATH", Value: os.Getenv("PATH")}, {Name: "name", Value: "x"}, {Name: "IFS", Value: "x"}}
	pod.Spec.Volumes = []corev1.Volume{
		{Name: "odd", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "odd"}, DefaultMode: &mode}}},
		{Name: "out", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
	}
	c.VolumeMounts = []corev1.VolumeMount{{Name: "odd", MountPath: "/odd d'ir"}, {Name: "out", MountPath: "/out"}}
	// Shells drop variables with such names.
	pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "env", Command: []string{"env"}, Env: c.Env})
	s.create(pod)
	read := func(name string) string {
		found, _ := filepath.Glob(filepath.Join(s.slurm.Dir, "pods", "default-hostile-name-*", "volumes", "out", name))
		if len(found) != 1 {
			return ""
		}
		text, _ := os.ReadFile(found[0])
		return string(text)
	}
	s.slurm.Until(s.T, "the names are there", func() bool { return read("names") != "" })
	if got := read("both"); got != value+value {
		s.Errorf("variable and argument are %q", got)
	}
	for _, name := range []string{"k\n", "-rf\n", ".hidden\n"} {
		if !strings.Contains(read("names"), name) {
			s.Errorf("of the names %q one is missing", read("names"))
		}
	}
	s.release(pod)
	status := s.await(pod, corev1.PodFailed)
	if end := status.ContainerStatuses[0].State.Terminated; end == nil || end.ExitCode != 7 {
		s.Errorf("the container is %v", status.ContainerStatuses[0].State)
	}
	if got := s.log(pod, api.ContainerLogOpts{}); got != "-r--r-----\n"+value+"\n" {
		s.Errorf("the log is %q", got)
	}
	stream, err := s.p.GetContainerLogs(s.Context(), pod.Namespace, pod.Name, "env", api.ContainerLogOpts{})
	must(s.T, err)
	text, err := io.ReadAll(stream)
	if must(s.T, err); !strings.Contains(string(text), "\na.b-c=dot\n") || !strings.Contains(string(text), "\nUID=x\n") {
		s.Errorf("the variables are %s", text)
	}
	if _, err := os.Stat("/tmp/hostile"); err == nil {
		s.Error("a value was executed")
	}
	if _, err := os.Stat(filepath.Join(s.slurm.Dir, "pods")); err != nil {
		s.Error(err)
	}
}

// Secrets are in no script, comment or argument, and are gone when the pod has ended.
func secret(s *site) {
	const word = "xyzzy-8b1f"
	s.home.SetSecret("word", corev1.SecretTypeOpaque, map[string][]byte{"word": []byte(word)})
	pod := s.pod("secret", `[ "$WORD" = "$(cat "$VIRTUAL_KUBELET_MOUNTS/word/word")" ] || exit 3`+untilReleased)
	pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "WORD", Value: word}}
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "word", MountPath: "/word"}}
	pod.Spec.Volumes = []corev1.Volume{{Name: "word", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "word"}}}}
	s.create(pod)
	s.await(pod, corev1.PodRunning)
	dir := s.directory(pod)
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		s.Errorf("the directory is %v, error %v", info, err)
	}
	if out := s.slurm.Run(s.T, "scontrol", "show", "job", s.job(pod)); strings.Contains(out, word) {
		s.Errorf("Slurm shows the secret: %s", out)
	}
	if out, _ := exec.CommandContext(s.Context(), "ps", "axww", "-o", "args").Output(); bytes.Contains(out, []byte(word)) {
		s.Error("ps shows the secret")
	}
	if out, _ := exec.CommandContext(s.Context(), "grep", "-rl", word, filepath.Join(s.slurm.Dir, "state"), filepath.Join(s.slurm.Dir, "spool")).Output(); len(out) > 0 {
		s.Errorf("Slurm keeps the secret: %s", out)
	}
	s.release(pod)
	s.await(pod, corev1.PodSucceeded)
	if out, _ := exec.CommandContext(s.Context(), "grep", "-rl", word, dir).Output(); len(out) > 0 {
		s.Errorf("after its end the pod leaves %s", out)
	}
}

// losing is a Runner that loses an answer.
type losing struct {
	login.Runner
	once sync.Once
}

func (l *losing) Run(ctx context.Context, c login.Command) error {
	err := l.Runner.Run(ctx, c)
	if c.Verb == "create" {
		l.once.Do(func() { err = &login.Error{Code: 255, Unreachable: true} })
	}
	return err
}

func lostAnswer(s *site) {
	config := s.slurm.config(RuntimeNone)
	must(s.T, config.complete())
	b := newBackend(config, &losing{Runner: &login.Shell{Environment: config.Environment}})
	p, n := s.home.Start(s.T, b, b.options())
	s.p, s.n = p, n
	pod := s.pod("lost", "sleep 1000")
	s.home.SetPod(pod)
	if err := p.CreatePod(s.Context(), pod); err == nil || errdefs.IsPermanent(err) {
		s.Fatalf("the creation returns %v", err)
	}
	// Even what was written of the answer is lost.
	dir := s.directory(pod)
	state, err := os.ReadFile(filepath.Join(dir, "state"))
	must(s.T, err)
	var kept []string
	for line := range strings.Lines(string(state)) {
		if !strings.HasPrefix(line, "job ") {
			kept = append(kept, line)
		}
	}
	must(s.T, os.WriteFile(filepath.Join(dir, "state"), []byte(strings.Join(kept, "")), 0o600))
	must(s.T, p.CreatePod(s.Context(), pod))
	s.await(pod, corev1.PodRunning)
	if jobs := strings.Fields(s.job(pod)); len(jobs) != 1 {
		s.Errorf("the jobs are %v", jobs)
	}
	must(s.T, p.DeletePod(s.Context(), pod))
	s.await(pod, "")
}

// cutting is a Runner whose first creations lose the end of what they are sent.
type cutting struct {
	login.Runner
	keep []float64 // parts of it
}

func (c *cutting) Run(ctx context.Context, command login.Command) error {
	if command.Verb == "create" && len(c.keep) > 0 {
		text, err := io.ReadAll(command.Stdin)
		if err != nil {
			return err
		}
		command.Stdin = bytes.NewReader(text[:int(c.keep[0]*float64(len(text)))])
		c.keep = c.keep[1:]
	}
	return c.Runner.Run(ctx, command)
}

// Staging that breaks off is done again, as a whole, before anything is submitted.
func brokenStaging(s *site) {
	config := s.slurm.config(RuntimeNone)
	must(s.T, config.complete())
	b := newBackend(config, &cutting{&login.Shell{Environment: config.Environment}, []float64{0, 0.3, 0.85}})
	s.p, s.n = s.home.Start(s.T, b, b.options())
	pod := s.pod("staging", "exit 6")
	s.home.SetPod(pod)
	for range 3 {
		if err := s.p.CreatePod(s.Context(), pod); err == nil || errdefs.IsPermanent(err) {
			s.Fatalf("a creation that breaks off returns %v", err)
		}
		if status := s.status(pod); status != nil {
			s.Fatalf("its status is %v", status)
		}
	}
	must(s.T, s.p.CreatePod(s.Context(), pod))
	if end := s.await(pod, corev1.PodFailed).ContainerStatuses[0].State.Terminated; end == nil || end.ExitCode != 6 {
		s.Errorf("the container has ended with %v", end)
	}
}

// A directory that is never complete, because the agent was stopped and the pod deleted
// meanwhile, does not keep its secrets.
func incomplete(s *site) {
	dir := filepath.Join(s.slurm.Dir, "pods", "default-incomplete-0123456789")
	must(s.T, os.MkdirAll(filepath.Join(dir, "volumes", "secret"), 0o700))
	must(s.T, os.WriteFile(filepath.Join(dir, "state"), []byte("created 1000\n"), 0o600))
	s.gone(dir)
}

// Of two jobs of a pod one runs its containers.
func submittedTwice(s *site) {
	marks := filepath.Join(s.TempDir(), "marks")
	pod := s.pod("twice", "echo x >>"+marks+"; sleep 4")
	s.create(pod)
	dir := s.directory(pod)
	s.slurm.Run(s.T, "sbatch", "--parsable", "--output=/dev/null", "--job-name="+filepath.Base(dir), "--wrap=exec /bin/bash "+dir+"/run")
	s.await(pod, corev1.PodSucceeded)
	if text, _ := os.ReadFile(marks); string(text) != "x\n" {
		s.Errorf("the container ran %q", text)
	}
}

func cancelled(s *site) {
	pod := s.pod("cancelled", "sleep 1000")
	s.create(pod)
	s.await(pod, corev1.PodRunning)
	s.slurm.Run(s.T, "scancel", s.job(pod))
	status := s.await(pod, corev1.PodFailed)
	end := status.ContainerStatuses[0].State.Terminated
	// A job that has just begun may be killed before its script can write how the container has ended.
	if status.Reason != "JobCancelled" || end == nil || end.ExitCode != 143 && end.ExitCode != 137 {
		s.Errorf("the status is %s %q, %v", status.Reason, status.Message, status.ContainerStatuses[0].State)
	}
}

// A job that an administrator queues again does not run the pod a second time.
func requeued(s *site) {
	marks := filepath.Join(s.TempDir(), "marks")
	pod := s.pod("requeued", "echo x >>"+marks+"; sleep 1000")
	s.create(pod)
	s.await(pod, corev1.PodRunning)
	s.slurm.Until(s.T, "the container runs", func() bool { text, _ := os.ReadFile(marks); return len(text) > 0 })
	job := s.job(pod)
	s.slurm.Run(s.T, "scontrol", "update", "job="+job, "requeue=1")
	s.slurm.Run(s.T, "scontrol", "requeue", job)
	s.await(pod, corev1.PodFailed)
	if text, _ := os.ReadFile(marks); string(text) != "x\n" {
		s.Errorf("the container ran %q", text)
	}
}

// A container that is asked to end has its time, and is killed after that: by the job's
// script, since Slurm's own time, KillWait, is the site's.
func gracePeriod(s *site) {
	pod := s.pod("grace", "trap 'echo asked; sleep 1; echo saved' TERM; echo ready; while :; do sleep 0.2; done")
	seconds := int64(20) // less than KillWait; and a busy machine is no failure
	pod.Spec.TerminationGracePeriodSeconds, pod.DeletionGracePeriodSeconds = &seconds, &seconds
	s.create(pod)
	s.await(pod, corev1.PodRunning)
	s.slurm.Until(s.T, "it is ready", func() bool { return strings.Contains(s.log(pod, api.ContainerLogOpts{}), "ready") })
	dir, job := s.directory(pod), s.job(pod)
	must(s.T, s.p.DeletePod(s.Context(), pod))
	var log []byte
	logged := func(word string) func() bool {
		return func() bool {
			log, _ = os.ReadFile(filepath.Join(dir, "logs", "main", "0"))
			return bytes.Contains(log, []byte(word))
		}
	}
	s.slurm.Until(s.T, "it was asked", logged("asked"))
	must(s.T, s.p.DeletePod(s.Context(), pod)) // as by an agent that has started again
	s.slurm.Until(s.T, "it had time", logged("saved"))
	if bytes.Count(log, []byte("asked")) != 1 {
		s.Errorf("the log is %q", log)
	}
	s.gone(dir)
	if state := s.slurm.Run(s.T, "squeue", "--noheader", "--states=all", "--jobs="+job, "--format=%T"); state != "FAILED" {
		s.Errorf("the job is %s: Slurm has ended it, and not its script", state)
	}
}

// gone checks that nothing is left of a pod.
func (s *site) gone(dir string) {
	s.Helper()
	s.slurm.Until(s.T, "the directory is gone", func() bool {
		_, _ = s.p.GetPods(s.Context()) // a list removes it
		_, err := os.Stat(dir)
		return errors.Is(err, os.ErrNotExist)
	})
	if out := s.slurm.Run(s.T, "squeue", "--noheader", "--states=RUNNING,PENDING", "--name="+filepath.Base(dir)); out != "" {
		s.Errorf("jobs are left: %s", out)
	}
}

func force(s *site) {
	pod := s.pod("force", "trap '' TERM; while :; do sleep 0.2; done")
	s.create(pod)
	s.await(pod, corev1.PodRunning)
	dir := s.directory(pod)
	zero := int64(0)
	pod = pod.DeepCopy()
	pod.DeletionGracePeriodSeconds = &zero
	must(s.T, s.p.DeletePod(s.Context(), pod))
	s.await(pod, "")
	s.gone(dir)
}

// A job that waits says why, and can be deleted.
func queued(s *site) {
	pod := s.pod("queued", "true")
	pod.Annotations = map[string]string{annotationFlags: "--hold"}
	s.create(pod)
	s.slurm.Until(s.T, "the status says why it waits", func() bool {
		waits := s.status(pod).ContainerStatuses[0].State.Waiting
		return waits != nil && strings.Contains(waits.Message, "JobHeldUser")
	})
	dir := s.directory(pod)
	must(s.T, s.p.DeletePod(s.Context(), pod))
	s.await(pod, "")
	s.gone(dir)
}

func flagged(s *site) {
	pod := s.pod("flagged", `echo "$SLURM_CPUS_PER_TASK $SLURM_JOB_PARTITION [$AGENT_SECRET]"`)
	pod.Annotations = map[string]string{annotationFlags: "-c 3 --job-name=mine --partition=urgent"}
	s.create(pod)
	s.await(pod, corev1.PodSucceeded)
	if got := s.log(pod, api.ContainerLogOpts{}); got != "3 urgent []\n" {
		s.Errorf("the job has %q", got)
	}
}

func refused(s *site) {
	pod := s.pod("refused", "true")
	pod.Annotations = map[string]string{annotationFlags: "--mem=100T"}
	s.home.SetPod(pod)
	if err := s.p.CreatePod(s.Context(), pod); !errdefs.IsPermanent(err) {
		s.Errorf("more memory than there is: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(s.slurm.Dir, "pods", "default-refused-*")); len(left) > 0 {
		s.Errorf("a job that is refused leaves %v", left)
	}
}

func restarts(s *site) {
	pod := s.pod("restarts", `n=$(cat "$VIRTUAL_KUBELET_MOUNTS/n/n" 2>/dev/null); echo "run $n"; echo x$n >"$VIRTUAL_KUBELET_MOUNTS/n/n"; [ "$n" = x ] && exit 0; exit 5`)
	pod.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
	pod.Spec.Volumes = []corev1.Volume{{Name: "n", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "n", MountPath: "/n"}}
	s.create(pod)
	c := s.await(pod, corev1.PodSucceeded).ContainerStatuses[0]
	if last := c.LastTerminationState.Terminated; c.RestartCount != 1 || last == nil || last.ExitCode != 5 {
		s.Errorf("the container is %+v", c)
	}
	if now, before := s.log(pod, api.ContainerLogOpts{}), s.log(pod, api.ContainerLogOpts{Previous: true}); now != "run x\n" || before != "run \n" {
		s.Errorf("the logs are %q and %q", now, before)
	}
}

func severalContainers(s *site) {
	pod := s.pod("several", "echo main; sleep 1; exit 3")
	pod.Spec.InitContainers = []corev1.Container{
		{Name: "first", Command: []string{"sh", "-c", "sleep 1"}},
		{Name: "side", Command: []string{"sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.1; done"}, RestartPolicy: new(corev1.ContainerRestartPolicyAlways)},
		{Name: "second", Command: []string{"true"}},
	}
	pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "other", Command: []string{"sh", "-c", "sleep 2; exit 4"}},
		corev1.Container{Name: "absent", Command: []string{"/no/such/program"}})
	s.create(pod)
	status := s.await(pod, corev1.PodFailed)
	want := map[string]int32{"first": 0, "side": 0, "second": 0, "main": 3, "other": 4, "absent": 127}
	for _, c := range append(status.InitContainerStatuses, status.ContainerStatuses...) {
		if end := c.State.Terminated; end == nil || end.ExitCode != want[c.Name] {
			s.Errorf("container %s is %v, and has not ended with %d", c.Name, c.State, want[c.Name])
		}
	}
}

func followedLog(s *site) {
	began := time.Now().Add(-time.Second)
	pod := s.pod("log", "for i in 1 2 3; do echo line $i; echo error $i >&2; sleep 1; done; printf end")
	s.create(pod)
	s.slurm.Until(s.T, "it has begun", func() bool { return s.status(pod).ContainerStatuses[0].State.Waiting == nil })
	if got := s.log(pod, api.ContainerLogOpts{Follow: true}); got != "line 1\nerror 1\nline 2\nerror 2\nline 3\nerror 3\nend\n" {
		s.Errorf("the log that is followed is %q", got)
	}
	if got := s.log(pod, api.ContainerLogOpts{Tail: 2}); got != "error 3\nend\n" {
		s.Errorf("the end of the log is %q", got)
	}
	for line := range strings.Lines(s.log(pod, api.ContainerLogOpts{Timestamps: true})) {
		stamp, _, _ := strings.Cut(line, " ")
		if at, err := time.Parse(time.RFC3339Nano, stamp); err != nil || at.Before(began) || time.Since(at) < 0 {
			s.Errorf("line %q has no time", line)
		}
	}
	if got := s.log(pod, api.ContainerLogOpts{SinceTime: time.Now().Add(time.Hour)}); got != "" {
		s.Errorf("the log from in an hour is %q", got)
	}
	// A client that goes leaves no processes.
	pod = s.pod("left", "while :; do sleep 1; done")
	s.create(pod)
	s.await(pod, corev1.PodRunning)
	r, err := s.p.GetContainerLogs(s.Context(), pod.Namespace, pod.Name, "main", api.ContainerLogOpts{Follow: true})
	must(s.T, err)
	name := filepath.Base(s.directory(pod)) + "/logs/main/0"
	tails := func() string {
		out, _ := exec.CommandContext(s.Context(), "pgrep", "-f", "tail .*"+name).Output()
		return string(out)
	}
	s.slurm.Until(s.T, "the log is read", func() bool { return tails() != "" })
	must(s.T, r.Close())
	s.slurm.Until(s.T, "nothing reads the log", func() bool { return tails() == "" })
}

// terminal is the client of a command.
type terminal struct {
	in       io.Reader
	out, err bytes.Buffer
	tty      bool
	size     chan api.TermSize
}

type closer struct{ io.Writer }

func (closer) Close() error { return nil }

func (c *terminal) Stdin() io.Reader            { return c.in }
func (c *terminal) Stdout() io.WriteCloser      { return closer{&c.out} }
func (c *terminal) TTY() bool                   { return c.tty }
func (c *terminal) Resize() <-chan api.TermSize { return c.size }
func (c *terminal) Stderr() io.WriteCloser {
	if c.tty {
		return nil
	}
	return closer{&c.err}
}

func command(s *site) {
	pod := s.pod("command", "sleep 1000")
	pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "COLOUR", Value: "light blue"}}
	s.create(pod)
	s.await(pod, corev1.PodRunning)
	client := &terminal{in: strings.NewReader("some text")}
	err := s.p.RunInContainer(s.Context(), pod.Namespace, pod.Name, "main", []string{"sh", "-c", `echo "$COLOUR" "$1"; cat; echo wrong >&2; exit 9`, "x", "it's\n$two"}, client)
	var ended utilexec.ExitError
	if !errors.As(err, &ended) || ended.ExitStatus() != 9 {
		s.Errorf("a command that ends with 9 returns %v", err)
	}
	if client.out.String() != "light blue it's\n$two\nsome text" || client.err.String() != "wrong\n" {
		s.Errorf("the output is %q, its errors are %q", &client.out, &client.err)
	}
	for _, tty := range []bool{false, true} { // ssh has this code, too
		err := s.p.RunInContainer(s.Context(), pod.Namespace, pod.Name, "main", []string{"sh", "-c", "exit 255"}, &terminal{tty: tty})
		if !errors.As(err, &ended) || ended.ExitStatus() != 255 {
			s.Errorf("a command that ends with 255, in a terminal: %v, returns %v", tty, err)
		}
	}
	client = &terminal{tty: true, size: make(chan api.TermSize, 1)}
	client.size <- api.TermSize{Width: 77, Height: 33}
	if err := s.p.RunInContainer(s.Context(), pod.Namespace, pod.Name, "main", []string{"sh", "-c", "test -t 0 || exit 1; until stty size | grep -x '33 77'; do sleep 0.1; done"}, client); err != nil {
		s.Errorf("a command in a terminal: %v, %q", err, &client.out)
	}
	if !strings.Contains(client.out.String(), "33 77") {
		s.Errorf("the terminal's size is %q", &client.out)
	}
	// A client that goes ends the command, which no other test has.
	length := fmt.Sprint(90000 + rand.IntN(1e9))
	ctx, cancel := context.WithCancel(s.Context())
	var wait sync.WaitGroup
	wait.Go(func() {
		_ = s.p.RunInContainer(ctx, pod.Namespace, pod.Name, "main", []string{"sleep", length}, &terminal{in: blocked{s.Context()}})
	})
	runs := func() bool { return exec.CommandContext(s.Context(), "pgrep", "-fx", "sleep "+length).Run() == nil }
	s.slurm.Until(s.T, "the command runs", runs)
	cancel()
	wait.Wait()
	s.slurm.Until(s.T, "the command has ended", func() bool { return !runs() })
	must(s.T, s.p.DeletePod(s.Context(), pod))
	s.await(pod, "")
}

// blocked is a client that sends nothing.
type blocked struct{ ctx context.Context }

func (b blocked) Read([]byte) (int, error) {
	<-b.ctx.Done()
	return 0, io.EOF
}

func agentRestart(s *site) {
	pod := s.pod("adopted", "true"+untilReleased+"exit 2")
	s.create(pod)
	before := s.await(pod, corev1.PodRunning)
	p, n, err := New(s.home.Config(), s.slurm.config(RuntimeNone))
	must(s.T, err)
	defer grouptest.Close(s.T, p)
	s.p, s.n = p, n
	if after := s.status(pod); after == nil || after.ContainerStatuses[0].ContainerID != before.ContainerStatuses[0].ContainerID {
		s.Errorf("the status was %v and is %v", before, after)
	}
	s.release(pod)
	if end := s.await(pod, corev1.PodFailed).ContainerStatuses[0].State.Terminated; end == nil || end.ExitCode != 2 {
		s.Errorf("the container has ended with %v", end)
	}
}

// A job whose script is killed has failed, though it has not written so.
func killedScript(s *site) {
	pod := s.pod("killed", "sleep 1000")
	s.create(pod)
	s.await(pod, corev1.PodRunning)
	must(s.T, exec.CommandContext(s.Context(), "pkill", "-KILL", "-f", s.directory(pod)+"/run").Run())
	status := s.await(pod, corev1.PodFailed)
	if end := status.ContainerStatuses[0].State.Terminated; status.Reason != "JobEnded" || end == nil || end.ExitCode != 137 {
		s.Errorf("the status is %s %q, %v", status.Reason, status.Message, status.ContainerStatuses[0].State)
	}
}

func reported(s *site) {
	must(s.T, s.n.Ping(s.Context()))
	var reported *corev1.Node
	s.n.NotifyNodeStatus(s.Context(), func(n *corev1.Node) { reported = n })
	if reported == nil || reported.Status.Capacity.Cpu().Value() != 64 || reported.Status.Allocatable.Memory().Value() != 4000<<20 {
		s.Errorf("the node is %v", reported)
	}
}

func figures(s *site) {
	pod := s.pod("figures", "while :; do :; done")
	s.create(pod)
	s.await(pod, corev1.PodRunning)
	s.slurm.Until(s.T, "there are figures", func() bool {
		time.Sleep(time.Second) // for as long they are the last ones
		summary, err := s.p.GetStatsSummary(s.Context())
		if err != nil {
			return false
		}
		for _, found := range summary.Pods {
			if found.PodRef.Name == pod.Name && len(found.Containers) == 1 && found.Containers[0].Name == "main" {
				c := &found.Containers[0]
				return *c.CPU.UsageCoreNanoSeconds > uint64(time.Second) && *c.Memory.WorkingSetBytes > 100_000 && *found.Memory.WorkingSetBytes == *c.Memory.WorkingSetBytes
			}
		}
		return false
	})
	must(s.T, s.p.DeletePod(s.Context(), pod))
	s.await(pod, "")
}

// While Slurm's controller is away, no pod gets another status, and nothing is
// lost.
func TestRealControllerRestart(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	s := c.on(t, c.config(RuntimeNone))
	pod := s.pod("stays", "true"+untilReleased+"exit 3")
	s.create(pod)
	s.await(pod, corev1.PodRunning)
	c.StopController()
	for range 3 {
		time.Sleep(time.Second) // the list is older then than the provider's Refresh
		if _, err := s.p.GetPods(t.Context()); !errdefs.IsUnavailable(err) {
			t.Errorf("without a controller the list fails with %v", err)
		}
	}
	late := s.pod("late", "true")
	s.home.SetPod(late)
	if err := s.p.CreatePod(t.Context(), late); err == nil || errdefs.IsPermanent(err) {
		t.Errorf("without a controller a creation returns %v", err)
	}
	c.Launch(t, "slurmctld", "-D", "-f", c.Conf)
	c.Until(t, "the controller answers", func() bool {
		_, err := s.p.GetPods(t.Context())
		return err == nil
	})
	s.await(pod, corev1.PodRunning)
	s.release(pod)
	if end := s.await(pod, corev1.PodFailed).ContainerStatuses[0].State.Terminated; end == nil || end.ExitCode != 3 {
		t.Errorf("the container has ended with %v", end)
	}
	c.Until(t, "the pod is created", func() bool { return s.p.CreatePod(t.Context(), late) == nil })
	s.await(late, corev1.PodSucceeded)
	if jobs := strings.Fields(s.job(late)); len(jobs) != 1 {
		t.Errorf("the jobs are %v", jobs)
	}
}

// A job that is preempted, and one whose machine fails, are no failures of their pods.
func TestRealDisruptions(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	s := c.on(t, c.config(RuntimeNone))
	disrupted := func(pod *corev1.Pod, reason string) {
		t.Helper()
		status := s.await(pod, corev1.PodFailed)
		found := false
		for _, condition := range status.Conditions {
			found = found || condition.Type == corev1.DisruptionTarget && condition.Status == corev1.ConditionTrue
		}
		if status.Reason != reason || !found {
			t.Errorf("the status is %s %q %v %v", status.Reason, status.Message, status.Conditions, status.ContainerStatuses)
		}
	}
	pod := s.pod("preempted", "sleep 1000")
	s.create(pod)
	s.await(pod, corev1.PodRunning)
	urgent := c.Run(t, "sbatch", "--parsable", "--partition=urgent", "--exclusive", "--output=/dev/null", "--wrap=sleep 1000")
	disrupted(pod, "Preempted")
	c.Run(t, "scancel", urgent)

	pod = s.pod("failed", "sleep 1000")
	s.create(pod)
	s.await(pod, corev1.PodRunning)
	host := c.Run(t, "sinfo", "--noheader", "--partition=normal", "--format=%N")
	c.Run(t, "scontrol", "update", "nodename="+host, "state=DOWN", "reason=test")
	disrupted(pod, "NodeFailure")
}

// By ssh, as root of this machine with a key and a server of its own.
func TestRealSSH(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"host", "client"} {
		if out, err := exec.CommandContext(t.Context(), "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", at(name)).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	must(t, os.Chmod(dir, 0o700))
	must(t, os.MkdirAll("/run/sshd", 0o755)) // sshd does not start without it
	port := slurm.FreePort(t)
	me, err := user.Current()
	must(t, err)
	c.Launch(t, "sshd", "-D", "-e", "-f", "/dev/null", "-p", fmt.Sprint(port), "-h", at("host"), "-o", "ListenAddress=127.0.0.1", "-o", "PidFile=none",
		"-o", "AuthorizedKeysFile="+at("client.pub"), "-o", "StrictModes=no", "-o", "PermitRootLogin=yes", "-o", "UsePAM=no")
	config := c.config(RuntimeNone)
	config.SSH = &SSH{Host: "127.0.0.1", User: me.Username, Port: port, IdentityFile: at("client"), Options: []string{"UserKnownHostsFile=" + at("known"), "StrictHostKeyChecking=accept-new"}}
	c.Until(t, "the server answers", func() bool {
		return (&login.Shell{SSH: config.SSH.argv(), Environment: config.Environment}).Run(t.Context(), login.Command{Verb: "report", Args: []string{""}}) == nil
	})
	s := c.on(t, config)
	hostileValues(s)
	followedLog(s)
	command(s)
	gracePeriod(s)
	config.SSH.Port = slurm.FreePort(t)
	b := newBackend(config, &login.Shell{SSH: config.SSH.argv()})
	if _, err := b.List(t.Context(), nil, ""); !errdefs.IsUnavailable(err) {
		t.Errorf("a machine that cannot be reached has a list, error %v", err)
	}
}

// Containers by Podman, with an image that is made here.
func TestRealPodman(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	image, podman := busyboxImage(t, c)
	config := c.config(RuntimePodman)
	config.RuntimeOptions = []string{"--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096"} // less than Podman's own
	config.Preamble = podman
	s := c.on(t, config)
	value := "a'b\"c\n$(touch /tmp/hostile) `x` \\ ${HOME}"
	s.home.SetConfigMap("settings", map[string]string{"level": "one"})
	pod := s.pod("podman", `echo "$ODD"; echo "$dir"; cat /settings/level; echo; pwd; (echo x >/settings/level) 2>/dev/null || echo read-only; echo hello >/shared/letter; sleep 5; exit 3`)
	pod.Spec.Volumes = []corev1.Volume{
		{Name: "settings", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}}},
		{Name: "shared", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
	}
	main := &pod.Spec.Containers[0]
	main.Image, main.ImagePullPolicy, main.WorkingDir = image, corev1.PullNever, "/shared"
	main.Env = []corev1.EnvVar{{Name: "ODD", Value: value}, {Name: "PATH", Value: "/bin"}, {Name: "dir", Value: "a\nb"}, {Name: "PLAIN", Value: "p q"}}
	main.VolumeMounts = []corev1.VolumeMount{{Name: "settings", MountPath: "/settings"}, {Name: "shared", MountPath: "/shared"}}
	other := main.DeepCopy()
	other.Name, other.Command = "other", []string{"sh", "-c", "until [ -e letter ]; do sleep 0.1; done; cat letter; while :; do sleep 0.1; done"}
	other.Env = nil
	pod.Spec.Containers = append(pod.Spec.Containers, *other)
	s.create(pod)
	s.await(pod, corev1.PodRunning)
	s.slurm.Until(t, "main has ended", func() bool { return s.status(pod).ContainerStatuses[0].State.Terminated != nil })
	if end := s.status(pod).ContainerStatuses[0].State.Terminated; end.ExitCode != 3 {
		t.Errorf("main has ended with %v", end)
	}
	if got := s.log(pod, api.ContainerLogOpts{}); got != value+"\na\nb\none\n/shared\nread-only\n" {
		t.Errorf("the log is %q", got)
	}
	client := &terminal{in: strings.NewReader("text")}
	err := s.p.RunInContainer(t.Context(), pod.Namespace, pod.Name, "other", []string{"sh", "-c", "cat; ls /; exit 4"}, client)
	var ended utilexec.ExitError
	if !errors.As(err, &ended) || ended.ExitStatus() != 4 || !strings.HasPrefix(client.out.String(), "textbin\n") {
		t.Errorf("a command in a container returns %v, output %q %q", err, &client.out, &client.err)
	}
	dir := s.directory(pod)
	seconds := int64(2)
	pod = pod.DeepCopy()
	pod.DeletionGracePeriodSeconds = &seconds
	must(t, s.p.DeletePod(t.Context(), pod))
	s.await(pod, "")
	s.gone(dir)
	if out, err := exec.CommandContext(t.Context(), "bash", "-c", podman+"\npodman ps --all --quiet").CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("containers are left: %s, error %v", out, err)
	}
}

// busyboxImage makes an image in a storage of its own, and returns its name and the commands
// of bash with which podman finds it.
func busyboxImage(t *testing.T, c *cluster) (name, preamble string) {
	t.Helper()
	root := filepath.Join(t.TempDir(), "root")
	must(t, os.MkdirAll(filepath.Join(root, "bin"), 0o755))
	busybox, err := os.ReadFile("/bin/busybox")
	must(t, err)
	must(t, os.WriteFile(filepath.Join(root, "bin", "busybox"), busybox, 0o755))
	for _, applet := range []string{"sh", "cat", "sleep", "ls"} {
		must(t, os.Symlink("busybox", filepath.Join(root, "bin", applet)))
	}
	storage := filepath.Join(c.Dir, "storage.conf")
	must(t, os.WriteFile(storage, fmt.Appendf(nil, "[storage]\ndriver = \"vfs\"\ngraphroot = \"%[1]s/images\"\nrunroot = \"%[1]s/containers\"\n", c.Dir), 0o644))
	containers := filepath.Join(c.Dir, "containers.conf")
	must(t, os.WriteFile(containers, fmt.Appendf(nil, "[engine]\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"none\"\nruntime = \"runc\"\ntmp_dir = \"%s/libpod\"\n", c.Dir), 0o644))
	preamble = fmt.Sprintf("export CONTAINERS_STORAGE_CONF=%s CONTAINERS_CONF=%s", storage, containers)
	name = "localhost/busybox:test"
	if out, err := exec.CommandContext(t.Context(), "bash", "-c", preamble+"\ntar -C "+root+" -c . | podman import --quiet - "+name).CombinedOutput(); err != nil {
		t.Fatalf("podman import: %v: %s", err, out)
	}
	return name, preamble
}

var _ podgroup.Backend = (*backend)(nil)
