package azurebatch

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/batch/azbatch"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/azurebatch/batchtest"
)

// rig is a provider before a fake.
type rig struct {
	*podgroup.Provider
	world   *grouptest.World
	cluster *grouptest.Cluster
	fake    *batchtest.Server
}

func inBubble(t *testing.T, containers bool, test func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		world := grouptest.New(time.Second)
		r := &rig{world: world, cluster: grouptest.NewCluster("home"), fake: batchtest.New(world)}
		r.fake.Containers = containers
		p, err := newProvider(r.cluster.Config(), testConfig(), connect(t, r.fake))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { grouptest.Close(t, p) })
		r.Provider = p
		test(t, r)
	})
}

// create creates a pod, and returns its task when it runs.
func (r *rig) create(t *testing.T, pod *corev1.Pod) *batchtest.Task {
	t.Helper()
	r.cluster.SetPod(pod)
	if err := r.CreatePod(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	time.Sleep(5 * time.Second)
	u, err := r.world.OfPod(pod.Name)
	if err != nil {
		t.Fatal(err)
	}
	return u.Spec.Data.(*batchtest.Task)
}

// status returns the status of a pod after what a script may say is read again.
func (r *rig) status(t *testing.T, pod *corev1.Pod) *corev1.PodStatus {
	t.Helper()
	time.Sleep(detailAge + 5*time.Second)
	status, err := r.GetPodStatusByUID(t.Context(), pod.Namespace, pod.Name, pod.UID)
	if err != nil {
		t.Fatal(err)
	}
	return status
}

// With another name of the cluster no task is the node's: its pods are not gone.
func TestAnotherClusterName(t *testing.T) {
	inBubble(t, true, func(t *testing.T, r *rig) {
		pod := grouptest.NewPod("there")
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
		r.create(t, pod)
		pod.Status = *r.status(t, pod)
		r.cluster.SetPod(pod)
		cfg := testConfig()
		cfg.ClusterName = "other"
		p, err := newProvider(r.cluster.Config(), cfg, connect(t, r.fake))
		if err != nil {
			t.Fatal(err)
		}
		defer grouptest.Close(t, p)
		grouptest.CheckUnfound(t, p, "clusterName was changed")
		if err := r.world.Remove("there"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		if all, err := p.GetPods(t.Context()); err != nil || len(all) != 0 {
			t.Errorf("the task is gone, and there are %d pods, %v", len(all), err)
		}
	})
}

// The suite checks what becomes of a node in another place. An account or a job is one.
func TestPlace(t *testing.T) {
	places := map[string]bool{}
	for _, change := range []func(*Config){
		func(*Config) {},
		func(c *Config) { c.JobID = "another" },
		func(c *Config) { c.AccountName = "another" },
		func(c *Config) { c.AccountLocation = "northeurope" },
	} {
		cfg := testConfig()
		change(&cfg)
		b, err := newBackend(cfg, "vk", http.DefaultTransport)
		if err != nil {
			t.Fatal(err)
		}
		places[b.options().Place] = true
	}
	if len(places) != 4 {
		t.Errorf("the places of four configurations are %v", places)
	}
	cfg := testConfig()
	cfg.AccountEndpoint = "https://" + batchtest.Account + ".westeurope.batch.azure.com/"
	if b, err := newBackend(cfg, "vk", http.DefaultTransport); err != nil || !places[b.options().Place] {
		t.Errorf("the same account, by its address, is none of %v: %v", places, err)
	}
}

// After a refusal for too many calls no call of that kind is made for a while.
func TestSilenceOfOwnCalls(t *testing.T) {
	for action, call := range map[string]func(context.Context, *backend) error{
		batchtest.ActionFile: func(ctx context.Context, b *backend) error {
			_, err := b.readRange(ctx, "task", "stdout.txt", 0, 10)
			return err
		},
		batchtest.ActionFileSize:  func(ctx context.Context, b *backend) error { _, err := b.sizeOf(ctx, "task", "stdout.txt"); return err },
		batchtest.ActionPool:      func(ctx context.Context, b *backend) error { _, err := b.poolOf(ctx); return err },
		batchtest.ActionGet:       func(ctx context.Context, b *backend) error { _, err := b.show(ctx, "task", listed); return err },
		batchtest.ActionTerminate: func(ctx context.Context, b *backend) error { return b.terminate(ctx, "task") },
	} {
		t.Run(action, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				world := grouptest.New(time.Second)
				b, err := newBackend(testConfig(), "vk", connect(t, batchtest.New(world)))
				if err != nil {
					t.Fatal(err)
				}
				world.Refuse(action, 1, grouptest.ErrQuota)
				for range 3 {
					if err := call(t.Context(), b); err == nil {
						t.Error("a call succeeds after a refusal")
					}
				}
				if n := world.Calls(action); n != 1 {
					t.Errorf("there are %d calls", n)
				}
				time.Sleep(time.Minute)
				_ = call(t.Context(), b) // there need not be such a task
				if n := world.Calls(action); n != 2 {
					t.Errorf("after a minute there are %d calls", n)
				}
			})
		})
	}
}

func (r *rig) log(t *testing.T, pod *corev1.Pod, container string, opts api.ContainerLogOpts) (string, error) {
	t.Helper()
	stream, err := r.GetContainerLogs(t.Context(), pod.Namespace, pod.Name, container, opts)
	if err != nil {
		return "", err
	}
	defer stream.Close()
	text, err := io.ReadAll(stream)
	return string(text), err
}

func job(name string) *corev1.Pod {
	pod := grouptest.NewPod(name)
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	return pod
}

func TestContainerTask(t *testing.T) {
	inBubble(t, true, func(t *testing.T, r *rig) {
		pod := job("plain")
		pod.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
		c := &pod.Spec.Containers[0]
		c.Command, c.Args, c.WorkingDir = []string{"/bin/work", "--all"}, []string{"-n=3"}, "/srv"
		c.Env = []corev1.EnvVar{{Name: "COLOUR", Value: "dark blue"}}
		c.Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1500m"), corev1.ResourceMemory: resource.MustParse("9Gi")}
		c.VolumeMounts = []corev1.VolumeMount{{Name: accessPrefix + "x", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"}}
		pod.Spec.Volumes = []corev1.Volume{{Name: accessPrefix + "x", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{}}}}
		task := r.create(t, pod)
		if cs := task.ContainerSettings; *task.CommandLine != "--all -n=3" || *cs.ImageName != "busybox:1" || *task.RequiredSlots != 3 || *task.Constraints.MaxTaskRetryCount != -1 ||
			*cs.ContainerRunOptions != "--rm --cpu-period 100000 --cpu-quota 150000 --memory 9663676416 --entrypoint /bin/work --workdir /srv" || *task.EnvironmentSettings[0].Value != "dark blue" {
			t.Errorf("the task is %s, %+v", *task.CommandLine, cs)
		}
		withGPU := job("gpu") // which Batch gives to the container: it refuses the option for it
		withGPU.Spec.Containers[0].Resources.Limits = corev1.ResourceList{gpu: resource.MustParse("1")}
		if task := r.create(t, withGPU); *task.ContainerSettings.ContainerRunOptions != "--rm" || *task.RequiredSlots != 4 {
			t.Errorf("the task is %+v", task.ContainerSettings)
		}
		if err := r.world.Exit(pod.Name, "main", 1); err != nil {
			t.Fatal(err)
		}
		if s := r.status(t, pod); s.Phase != corev1.PodRunning || s.ContainerStatuses[0].RestartCount != 1 || s.PodIP != "10.0.0.4" {
			t.Errorf("the status is %+v", s)
		}
	})
}

// What Batch's own command lines, variables and options might take otherwise is run by a
// script; so is what has a secret, which lists would show in clear.
func TestScriptsOnPoolsForContainers(t *testing.T) {
	inBubble(t, true, func(t *testing.T, r *rig) {
		r.cluster.SetSecret("s", corev1.SecretTypeOpaque, map[string][]byte{"key": []byte("hush-hush")})
		for name, change := range map[string]func(*corev1.Container){
			"words":  func(c *corev1.Container) { c.Args = []string{"it's"} },
			"lines":  func(c *corev1.Container) { c.Env = []corev1.EnvVar{{Name: "A", Value: "b\nc"}} },
			"names":  func(c *corev1.Container) { c.Env = []corev1.EnvVar{{Name: "AZ_BATCH_X", Value: "b"}} },
			"user":   func(c *corev1.Container) { c.SecurityContext = &corev1.SecurityContext{RunAsUser: new(int64(5))} },
			"pull":   func(c *corev1.Container) { c.ImagePullPolicy = corev1.PullAlways },
			"secret": func(c *corev1.Container) {},
		} {
			pod := job(name)
			change(&pod.Spec.Containers[0])
			known := pod.DeepCopy()
			if name == "secret" { // as it is before it is resolved
				pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", Value: "hush-hush"}}
				known.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{Key: "key"}}}}
			}
			r.cluster.SetPod(known)
			if err := r.CreatePod(t.Context(), pod); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			u, err := r.world.OfPod(name)
			if err != nil {
				t.Fatal(err)
			}
			task := u.Spec.Data.(*batchtest.Task)
			if !task.Label.Script || !strings.Contains(*task.ContainerSettings.ImageName, "docker:") || !strings.Contains(*task.ContainerSettings.ContainerRunOptions, socket) {
				t.Errorf("%s: the task is %s, %+v", name, *task.CommandLine, task.ContainerSettings)
			}
			text := fmt.Sprint(*task.CommandLine, *task.DisplayName)
			for _, e := range task.EnvironmentSettings {
				text += *e.Value
			}
			if strings.Contains(text, "hush") {
				t.Errorf("%s: the secret is in the task in clear", name)
			}
		}
	})
}

func TestRefused(t *testing.T) {
	inBubble(t, false, func(t *testing.T, r *rig) {
		pod := grouptest.NewPod("server")
		c := &pod.Spec.Containers[0]
		c.Ports = []corev1.ContainerPort{{ContainerPort: 80}}
		c.ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{}}}
		c.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"a"}}}}
		c.Image = "--privileged"
		c.VolumeMounts = []corev1.VolumeMount{{Name: "e", MountPath: "/a:/b"}}
		pod.Spec.Volumes = []corev1.Volume{
			{Name: "e", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}},
			{Name: "h", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/x", Type: new(corev1.HostPathSocket)}}},
		}
		c.Resources.Limits = corev1.ResourceList{"example.com/fpga": resource.MustParse("1")}
		r.cluster.SetPod(pod)
		err := r.CreatePod(t.Context(), pod)
		if !errdefs.IsPermanent(err) {
			t.Fatal(err)
		}
		for _, want := range []string{
			"restartPolicy Always", "ports", "readinessProbe", "lifecycle", "image that is no name", "with a colon", "emptyDir.medium", "hostPath.type Socket", "example.com/fpga",
		} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s is not in %v", want, err)
			}
		}
		if n := r.world.Calls(batchtest.ActionAdd); n != 0 {
			t.Errorf("%d creations", n)
		}
	})
}

func TestSeveralContainers(t *testing.T) {
	inBubble(t, false, func(t *testing.T, r *rig) {
		pod := job("several")
		pod.Spec.InitContainers = []corev1.Container{{Name: "setup", Image: "busybox"}}
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "other", Image: "busybox"})
		r.create(t, pod)
		s := r.status(t, pod)
		if s.Phase != corev1.PodRunning || s.InitContainerStatuses[0].State.Terminated == nil || s.ContainerStatuses[1].State.Running == nil {
			t.Errorf("the status is %+v", s)
		}
		if err := r.world.Exit(pod.Name, "other", 4); err != nil {
			t.Fatal(err)
		}
		if s := r.status(t, pod); s.Phase != corev1.PodRunning || s.ContainerStatuses[0].State.Running == nil || s.ContainerStatuses[1].State.Terminated.ExitCode != 4 {
			t.Errorf("the status is %+v", s)
		}
		if err := r.world.Exit(pod.Name, "main", 0); err != nil {
			t.Fatal(err)
		}
		if s := r.status(t, pod); s.Phase != corev1.PodFailed || s.ContainerStatuses[0].State.Terminated.ExitCode != 0 || s.ContainerStatuses[1].State.Terminated.ExitCode != 4 {
			t.Errorf("the status is %+v", s)
		}
		before := r.world.Calls(batchtest.ActionFile)
		r.status(t, pod)
		if n := r.world.Calls(batchtest.ActionFile) - before; n != 0 {
			t.Errorf("a task that has ended was read %d times again", n)
		}
	})
}

// The machine is gone before anybody has read how the containers ended.
func TestMachineIsGone(t *testing.T) {
	inBubble(t, false, func(t *testing.T, r *rig) {
		pod := job("gone")
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "other", Image: "busybox"})
		r.create(t, pod)
		r.fake.NoFiles = true
		for _, name := range []string{"main", "other"} {
			if err := r.world.Exit(pod.Name, name, 2); err != nil {
				t.Fatal(err)
			}
		}
		if s := r.status(t, pod); s.Phase != corev1.PodFailed || s.ContainerStatuses[0].State.Terminated == nil {
			t.Errorf("the status is %+v", s)
		}
		if text, err := r.log(t, pod, "main", api.ContainerLogOpts{}); err == nil {
			t.Errorf("the log is %q", text)
		}
	})
}

func TestLostMachine(t *testing.T) {
	for policy, want := range map[corev1.RestartPolicy]corev1.PodPhase{corev1.RestartPolicyNever: corev1.PodFailed, corev1.RestartPolicyOnFailure: corev1.PodPending} {
		inBubble(t, true, func(t *testing.T, r *rig) {
			pod := job("lost")
			pod.Spec.RestartPolicy = policy
			r.create(t, pod)
			if err := r.fake.Requeue(pod.Name); err != nil {
				t.Fatal(err)
			}
			s := r.status(t, pod)
			disrupted := false
			for _, c := range s.Conditions {
				disrupted = disrupted || c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue
			}
			never := policy == corev1.RestartPolicyNever
			if s.Phase != want || disrupted != never || s.ContainerStatuses[0].RestartCount != map[bool]int32{true: 0, false: 1}[never] {
				t.Errorf("%s: the status is %+v", policy, s)
			}
			r.status(t, pod)
			if n := r.world.Calls(batchtest.ActionTerminate); n != map[bool]int{true: 1, false: 0}[never] {
				t.Errorf("%s: the task was terminated %d times", policy, n)
			}
		})
	}
}

// Batch does not count the runs of a task after its machine was preempted or has failed.
func TestRecoveredMachine(t *testing.T) {
	for runs, stranger := range map[bool]bool{false: false, true: true} {
		inBubble(t, false, func(t *testing.T, r *rig) {
			pod, other := job("recovered"), job("stranger")
			r.create(t, pod)
			pod.Status = *r.status(t, pod)
			r.cluster.SetPod(pod)
			if stranger { // a task whose pod this cluster does not have
				r.create(t, other)
				r.cluster.RemovePod(other)
			}
			time.Sleep(time.Hour)
			if s := r.status(t, pod); s.Phase != corev1.PodRunning {
				t.Fatalf("before, the status is %+v", s)
			}
			for _, name := range []string{pod.Name, other.Name} {
				if err := r.fake.Recover(name, runs); err != nil && (name == pod.Name || stranger) {
					t.Fatal(err)
				}
			}
			if s := r.status(t, pod); s.Phase != corev1.PodFailed || s.Reason != "NodeLost" {
				t.Errorf("runs %v: the status is %+v", runs, s)
			}
			r.status(t, pod)
			if n := r.world.Calls(batchtest.ActionTerminate); n != 1 {
				t.Errorf("runs %v: tasks were terminated %d times", runs, n)
			}
		})
	}
}

// What the script writes on the next machine begins again.
func TestRecoveredScript(t *testing.T) {
	inBubble(t, false, func(t *testing.T, r *rig) {
		pod := job("recovered")
		pod.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
		r.create(t, pod)
		before := r.status(t, pod).ContainerStatuses[0].State.Running.StartedAt
		time.Sleep(time.Hour)
		if err := r.fake.Recover(pod.Name, true); err != nil {
			t.Fatal(err)
		}
		if s := r.status(t, pod).ContainerStatuses[0]; s.State.Running == nil || !s.State.Running.StartedAt.After(before.Time) {
			t.Errorf("the status is %+v", s)
		}
	})
}

// A machine that does not answer delays neither lists nor what the others' tasks do, and
// files that cannot be read do not have a pod run for ever.
func TestFilesThatCannotBeRead(t *testing.T) {
	inBubble(t, false, func(t *testing.T, r *rig) {
		pod := job("silent")
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "other", Image: "busybox"})
		r.world.Delay(batchtest.ActionFile, 1, time.Hour)
		r.create(t, pod)
		before := time.Now()
		if _, err := r.GetPods(t.Context()); err != nil || time.Since(before) > 15*time.Second {
			t.Errorf("a list has taken %s, %v", time.Since(before), err)
		}
		r.world.Refuse(batchtest.ActionFile, 1_000_000, &grouptest.Refusal{Status: 403, Code: "AuthorizationFailure", Message: "no right"})
		for _, name := range []string{"main", "other"} {
			if err := r.world.Exit(pod.Name, name, 2); err != nil {
				t.Fatal(err)
			}
		}
		calls := r.world.Calls(batchtest.ActionFile)
		for range 20 {
			time.Sleep(3 * time.Second)
			if _, err := r.GetPods(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if n := r.world.Calls(batchtest.ActionFile) - calls; n > 4 {
			t.Errorf("the file was requested %d times in a minute", n)
		}
		time.Sleep(readLife)
		r.status(t, pod)
		if s := r.status(t, pod); s.Phase != corev1.PodFailed {
			t.Errorf("the status is %+v", s)
		}
	})
}

// The deletion of a new task takes effect late, and its termination at once.
func TestDeletionOfTaskThatWaits(t *testing.T) {
	inBubble(t, false, func(t *testing.T, r *rig) {
		pod, other := job("waits"), job("runs")
		r.create(t, other)
		r.status(t, other)
		r.cluster.SetPod(pod)
		if err := r.CreatePod(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		for _, pod := range []*corev1.Pod{pod, other} {
			if err := r.DeletePod(t.Context(), pod); err != nil {
				t.Error(err)
			}
		}
		if terminated, deleted, left := r.world.Calls(batchtest.ActionTerminate), r.world.Calls(batchtest.ActionDelete), len(r.world.Units(nil)); terminated != 1 || deleted != 2 || left != 0 {
			t.Errorf("%d terminations and %d deletions; %d tasks are left", terminated, deleted, left)
		}
	})
}

func TestTaskThatCannotStart(t *testing.T) {
	inBubble(t, true, func(t *testing.T, r *rig) {
		pod := job("broken")
		r.cluster.SetPod(pod)
		if err := r.CreatePod(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		if err := r.world.FailUnit(pod.Name, "ContainerInvalidImage", "The image does not exist"); err != nil {
			t.Fatal(err)
		}
		if s := r.status(t, pod); s.Phase != corev1.PodFailed || s.Reason != "ContainerInvalidImage" || !strings.Contains(s.Message, "does not exist") {
			t.Errorf("the status is %+v", s)
		}
	})
}

// Tasks of the older provider have the pod in their environment, and its UID as their name.
func TestTasksOfTheOlderProvider(t *testing.T) {
	inBubble(t, false, func(t *testing.T, r *rig) {
		pod, stranger := job("old"), job("stranger")
		ids := map[string]string{"old": "0123456789abcdef0123456789abcdef", "stranger": "1123456789abcdef0123456789abcdef"}
		for _, of := range []*corev1.Pod{pod, stranger} {
			text := fmt.Sprintf(`{"metadata": {"namespace": "default", "name": %q, "uid": %q, "creationTimestamp": "2026-01-02T03:04:05Z"}, "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox:1"}]}}`, of.Name, of.UID)
			task := &batchtest.Task{CreateTaskContent: azbatch.CreateTaskContent{
				ID: new(ids[of.Name]), DisplayName: new(string(of.UID)), CommandLine: new("/bin/bash"), EnvironmentSettings: []azbatch.EnvironmentSetting{{Name: new(olderPod), Value: &text}},
			}}
			task.Label.Containers = []string{"main"}
			spec := grouptest.Spec{Tags: map[string]string{podgroup.TagPodName: of.Name}, RestartPolicy: "Never", Data: task, Containers: []podgroup.Container{{Name: "main"}}}
			if _, err := r.world.Create(spec); err != nil {
				t.Fatal(err)
			}
		}
		r.cluster.SetPod(pod)
		if s := r.status(t, pod); s.Phase != corev1.PodRunning || s.ContainerStatuses[0].Name != "main" || s.ContainerStatuses[0].State.Running == nil {
			t.Errorf("the status is %+v", s)
		}
		if pods, err := r.GetPods(t.Context()); err != nil || len(pods) != 1 || pods[0].UID != pod.UID {
			t.Errorf("the pods are %v, %v: the other one is not this cluster's", pods, err)
		}
		r.fake.Files[ids["old"]+"/wd/main.log"] = `{"log":"hello\n","stream":"stdout","time":"2026-01-02T03:04:06.5Z"}` + "\n"
		if text, err := r.log(t, pod, "main", api.ContainerLogOpts{Timestamps: true}); err != nil || text != "2026-01-02T03:04:06.5Z hello\n" {
			t.Errorf("the log is %q, %v", text, err)
		}
		before := r.world.Calls(batchtest.ActionGet)
		r.status(t, pod)
		if n := r.world.Calls(batchtest.ActionGet) - before; n != 0 {
			t.Errorf("the tasks were read %d times again", n)
		}
		if err := r.DeletePod(t.Context(), pod); err != nil {
			t.Error(err)
		}
	})
}

func TestLogs(t *testing.T) {
	inBubble(t, false, func(t *testing.T, r *rig) {
		pod := job("talks")
		pod.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "other", Image: "busybox"})
		r.create(t, pod)
		say := func(text string) {
			if err := r.world.Print(pod.Name, "main", text); err != nil {
				t.Fatal(err)
			}
		}
		say("early")
		time.Sleep(time.Minute)
		late := time.Now()
		long := strings.Repeat("x", 10000)
		for range 300 { // 3 MiB, in ranges
			say(long)
		}
		say("last")
		r.status(t, pod)
		text, err := r.log(t, pod, "main", api.ContainerLogOpts{})
		if err != nil || !strings.HasPrefix(text, "container main started\nearly\nxxx") || !strings.HasSuffix(text, "x\nlast\n") || strings.Count(text, long+"\n") != 300 {
			t.Errorf("the log has %d bytes, %v", len(text), err)
		}
		if text, err := r.log(t, pod, "main", api.ContainerLogOpts{Tail: 100}); err != nil || strings.Count(text, "\n") != 100 || !strings.HasSuffix(text, "last\n") {
			t.Errorf("the last lines have %d bytes, %v", len(text), err)
		}
		if text, err := r.log(t, pod, "main", api.ContainerLogOpts{SinceTime: late, Tail: 400}); err != nil || strings.Contains(text, "early") || strings.Count(text, "\n") != 301 {
			t.Errorf("the newer lines have %d bytes, %v", len(text), err)
		}
		if text, err := r.log(t, pod, "other", api.ContainerLogOpts{Timestamps: true}); err != nil || !strings.HasSuffix(text, "Z container other started\n") {
			t.Errorf("the log of the other is %q, %v", text, err)
		}
		if err := r.world.Exit(pod.Name, "main", 1); err != nil {
			t.Fatal(err)
		}
		if s := r.status(t, pod); s.ContainerStatuses[0].RestartCount != 1 || s.ContainerStatuses[0].LastTerminationState.Terminated.ExitCode != 1 {
			t.Errorf("the status is %+v", s)
		}
		if text, err := r.log(t, pod, "main", api.ContainerLogOpts{Previous: true, Follow: true, Tail: 1}); err != nil || text != "last\n" {
			t.Errorf("the log of the run before is %q, %v", text, err)
		}
		if text, err := r.log(t, pod, "main", api.ContainerLogOpts{}); err != nil || text != "container main started\n" {
			t.Errorf("the log is %q, %v", text, err)
		}
	})
}

func TestManyAtOnce(t *testing.T) {
	inBubble(t, false, func(t *testing.T, r *rig) {
		var wg sync.WaitGroup
		errs := make([]error, 250)
		pods := make([]*corev1.Pod, 250)
		for i := range pods {
			pods[i] = job(fmt.Sprintf("many-%d", i))
			r.cluster.SetPod(pods[i])
		}
		r.world.Refuse(batchtest.ActionTask, 1, &grouptest.Refusal{Status: 400, Code: "InvalidPropertyValue", Message: "something"})
		for i, pod := range pods {
			wg.Go(func() { errs[i] = r.CreatePod(t.Context(), pod) })
		}
		wg.Wait()
		failed := 0
		for _, err := range errs {
			if err != nil {
				failed++
				if !errdefs.IsPermanent(err) || strings.Contains(err.Error(), "echo of") {
					t.Error(err)
				}
			}
		}
		if n := r.world.Calls(batchtest.ActionAdd); failed != 1 || n < 3 || n > 10 {
			t.Errorf("%d pods have failed, of 250 that were added by %d calls", failed, n)
		}
	})
}

// A call is refused because of one of its tasks, or because they are too long together: the
// others are added.
func TestRefusedTogether(t *testing.T) {
	for status, code := range map[int]string{400: "InvalidRequestBody", 413: "RequestBodyTooLarge"} {
		inBubble(t, false, func(t *testing.T, r *rig) {
			r.world.Refuse(batchtest.ActionAdd, 1, &grouptest.Refusal{Status: status, Code: code}) // that of all
			var wg sync.WaitGroup
			for i := range 8 {
				pod := job(fmt.Sprint("together-", i))
				r.cluster.SetPod(pod)
				wg.Go(func() {
					if err := r.CreatePod(t.Context(), pod); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if n := len(r.world.Units(nil)); n != 8 {
				t.Errorf("%d tasks of 8", n)
			}
		})
	}
}

// Calls are not longer than Batch takes them, and callers that give up harm no others.
func TestAdder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var sizes []int
		a := adder{send: func(_ context.Context, tasks []azbatch.CreateTaskContent) map[string]error {
			total := 0
			for _, task := range tasks {
				total += len(*task.CommandLine)
			}
			mu.Lock()
			sizes = append(sizes, total)
			mu.Unlock()
			return map[string]error{}
		}}
		var wg sync.WaitGroup
		gone, cancel := context.WithCancel(t.Context())
		wg.Go(func() {
			if err := a.add(gone, &azbatch.CreateTaskContent{ID: new("gone"), CommandLine: new("x")}); !errdefs.IsUnavailable(err) {
				t.Errorf("a caller that has gone: %v", err)
			}
		})
		synctest.Wait()
		for i := range 5 {
			wg.Go(func() {
				if err := a.add(t.Context(), &azbatch.CreateTaskContent{ID: new(fmt.Sprint(i)), CommandLine: new(strings.Repeat("x", 400<<10))}); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		cancel()
		wg.Wait()
		if fmt.Sprint(sizes) != fmt.Sprint([]int{800 << 10, 800 << 10, 400 << 10}) {
			t.Errorf("the calls had %v bytes", sizes)
		}
	})
}

func TestTooLarge(t *testing.T) {
	inBubble(t, false, func(t *testing.T, r *rig) {
		pod := job("large")
		for i := range 20 { // in sum; each is what a process may have
			pod.Spec.Containers[0].Env = append(pod.Spec.Containers[0].Env, corev1.EnvVar{Name: fmt.Sprintf("V%d", i), Value: noise(100 << 10)})
		}
		r.cluster.SetPod(pod)
		if err := r.CreatePod(t.Context(), pod); !errdefs.IsPermanent(err) || !strings.Contains(err.Error(), "may have") || len(err.Error()) > 1000 {
			t.Error(err)
		}
	})
}

// noise is text that cannot be packed.
func noise(n int) string {
	var b strings.Builder
	for x := uint32(1); b.Len() < n; x = x*1664525 + 1013904223 {
		b.WriteByte('!' + byte(x>>24)%90)
	}
	return b.String()
}

func TestErrors(t *testing.T) {
	inBubble(t, false, func(t *testing.T, r *rig) {
		pod := job("later")
		r.create(t, pod)
		list := func(err error) error {
			time.Sleep(time.Hour)
			r.world.Refuse(batchtest.ActionList, 1, err)
			_, err = r.GetPods(t.Context())
			return err
		}
		for want, refusal := range map[time.Duration]error{
			12 * time.Second: grouptest.ErrQuota, time.Minute: &grouptest.Refusal{Status: 403, Code: "InsufficientAccountPermissions", Message: "no right"},
		} {
			if err := list(refusal); err == nil {
				t.Errorf("%v: there is no error", refusal)
			} else if delay, ok := errdefs.RetryAfter(err); !ok || delay < want-time.Second || delay > want {
				t.Errorf("%v: %v, after %v", refusal, err, delay)
			}
		}
		if err := list(&grouptest.Refusal{Status: 500, Code: "OperationTimedOut"}); !errdefs.IsUnavailable(err) || strings.Contains(err.Error(), "echo of") || strings.Contains(err.Error(), "RequestId") {
			t.Error(err)
		}
		time.Sleep(time.Hour)
		r.fake.DeleteJobs()
		if _, err := r.GetPods(t.Context()); !errdefs.IsUnavailable(err) {
			t.Errorf("a job that is gone: %v", err)
		}
		if _, err := r.GetPods(t.Context()); err != nil || r.world.Calls(batchtest.ActionJob) != 2 {
			t.Errorf("the job is not created again: %v", err)
		}
	})
}

// An account that may have no further job goes on with the one that there is.
func TestQuotaOfJobs(t *testing.T) {
	inBubble(t, false, func(t *testing.T, r *rig) {
		if _, err := r.GetPods(t.Context()); err != nil || r.world.Calls(batchtest.ActionJob) != 1 {
			t.Fatalf("the job is not created: %v", err)
		}
		second, err := newProvider(r.cluster.Config(), testConfig(), connect(t, r.fake))
		if err != nil {
			t.Fatal(err)
		}
		defer grouptest.Close(t, second)
		r.world.Refuse(batchtest.ActionJob, 1, &grouptest.Refusal{Status: 409, Code: "ActiveJobAndScheduleQuotaReached", Message: "too many jobs"})
		if _, err := second.GetPods(t.Context()); err != nil || r.world.Calls(batchtest.ActionJob) != 1 {
			t.Errorf("after a restart: %v, %d calls", err, r.world.Calls(batchtest.ActionJob))
		}
	})
}

// Batch refuses to read files of a task that has not begun; its answer to HEAD has no body.
func TestSizeOfALogThatHasNotBegun(t *testing.T) {
	inBubble(t, false, func(t *testing.T, r *rig) {
		r.world.Refuse(batchtest.ActionFileSize, 1, &grouptest.Refusal{Status: 409})
		b, err := newBackend(testConfig(), "vk", connect(t, r.fake))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.sizeOf(t.Context(), "task", "stdout.txt"); !errdefs.IsConflict(err) {
			t.Error(err)
		}
	})
}

func TestCapacity(t *testing.T) {
	inBubble(t, false, func(t *testing.T, r *rig) {
		var n *corev1.Node
		r.NotifyNodeStatus(t.Context(), func(changed *corev1.Node) { n = changed })
		for _, step := range []struct {
			properties map[string]any
			unusable   int
			want       string
		}{
			{nil, 0, "12 48Gi 12 0"},
			{nil, 1, "8 32Gi 8 0"},
			{map[string]any{"vmSize": "Standard_NC24ads_A100_v4", "taskSlotsPerNode": 1, "targetDedicatedNodes": 5}, 0, "144 576Gi 6 6"},
			{map[string]any{"enableAutoScale": true, "currentDedicatedNodes": 0, "currentLowPriorityNodes": 0, "targetDedicatedNodes": nil, "targetLowPriorityNodes": nil}, 0, "400 1600Gi 400 0"},
		} {
			r.fake.Properties, r.fake.Unusable = step.properties, step.unusable
			time.Sleep(poolAge)
			if err := r.Ping(t.Context()); err != nil {
				t.Fatal(err)
			}
			c := n.Status.Capacity
			gpus := c[gpu]
			if got := fmt.Sprintf("%s %s %s %s", c.Cpu(), c.Memory(), c.Pods(), gpus.String()); got != step.want {
				t.Errorf("the capacity is %s, not %s", got, step.want)
			}
		}
		r.fake.Properties = map[string]any{"state": "deleting"}
		time.Sleep(poolAge)
		if err := r.Ping(t.Context()); err == nil || !strings.Contains(err.Error(), "poolID") {
			t.Errorf("a pool that is being deleted: %v", err)
		}
	})
}

func TestSlots(t *testing.T) {
	p := pool{perNode: 8, cpu: 16000, memory: 64 << 30, gpus: 4}
	for want, size := range map[int32]podgroup.Size{
		1: {}, 2: {CPU: resource.MustParse("3")}, 4: {Memory: resource.MustParse("32Gi")}, 8: {CPU: resource.MustParse("100")}, -8: {Other: corev1.ResourceList{gpu: resource.MustParse("1")}},
	} {
		if got := p.slots(size); got != max(want, -want) {
			t.Errorf("%+v takes %d slots, not %d", size, got, want)
		}
	}
}

// token is a credential of Microsoft Entra ID.
type token struct {
	value  string
	scopes []string
}

func (k *token) GetToken(_ context.Context, o policy.TokenRequestOptions) (azcore.AccessToken, error) {
	k.scopes = o.Scopes
	return azcore.AccessToken{Token: k.value, ExpiresOn: time.Now().Add(time.Hour)}, nil
}

func TestTokens(t *testing.T) {
	world := grouptest.New(time.Second)
	fake := batchtest.New(world)
	cfg := testConfig()
	cfg.Cloud = "AzureChinaCloud"
	b, err := newBackend(cfg, "vk", connect(t, fake))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	credential := &token{value: "abc"}
	b.client, err = azbatch.NewClient(b.cfg.AccountEndpoint, scoped{credential, environments[cfg.Cloud].scope}, &azbatch.ClientOptions{ClientOptions: azcore.ClientOptions{Transport: b.http}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.List(t.Context(), nil, ""); err == nil || strings.Contains(err.Error(), "abc") {
		t.Errorf("a token that is not admitted: %v", err)
	}
	fake.AllowToken("abc")
	if _, err := b.List(t.Context(), nil, ""); err != nil || credential.scopes[0] != "https://batch.chinacloudapi.cn//.default" {
		t.Errorf("%v, scopes %v", err, credential.scopes)
	}
	if _, err := b.List(t.Context(), nil, "https://PODS.westeurope.batch.chinacloudapi.cn:443/jobs/vk/tasks?api-version=2024-07-01.20.0"); err != nil {
		t.Error(err)
	}
	for _, link := range []string{"http://pods.westeurope.batch.chinacloudapi.cn/jobs", "https://other.example/jobs", "https://pods.westeurope.batch.azure.com.evil.example/jobs", "https://pods.westeurope.batch.chinacloudapi.cn@evil.example/"} {
		if _, err := b.List(t.Context(), nil, link); !errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), "not the account's") {
			t.Errorf("%s: %v", link, err)
		}
	}
}

// A key that is not the account's is refused, as is a request that was signed long ago.
func TestSignature(t *testing.T) {
	for name, key := range map[string]Secret{"a wrong key": "d3Jvbmc=", "a clock that is behind": batchtest.Key} {
		world := grouptest.New(time.Second)
		cfg := testConfig()
		if cfg.AccountKey = key; key == batchtest.Key {
			world.Advance(time.Hour)
		}
		b, err := newBackend(cfg, "vk", connect(t, batchtest.New(world)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = b.Close() })
		if _, err := b.List(t.Context(), nil, ""); err == nil || !strings.Contains(err.Error(), "AuthenticationFailed") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
