package nomad

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
	"github.com/virtual-kubelet/virtual-kubelet/podspec/volume"
)

func testJob(t *testing.T, pod *corev1.Pod, r podgroup.Request, change ...func(*Config)) *api.Job {
	t.Helper()
	var cfg Config
	for _, f := range change {
		f(&cfg)
	}
	b, err := newBackend(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r.Pod, r.Name = pod, "default-web-0123456789"
	job, err := b.job(&r)
	if err != nil {
		t.Fatal(err)
	}
	return job
}

// Nomad evaluates the texts of drivers as HCL, and replaces ${NAME} in variables.
func TestNomadInterpolatesNothing(t *testing.T) {
	pod := grouptest.NewPod("web")
	c := &pod.Spec.Containers[0]
	c.Command = []string{"sh", "-c", `echo "${HOME:-x}" %{http_code} $(id)`}
	c.Env = []corev1.EnvVar{{Name: "A", Value: "${node.unique.id} $x %{y}\n\"'"}}
	task := testJob(t, pod, podgroup.Request{}).TaskGroups[0].Tasks[0]
	if got, want := task.Config["entrypoint"].([]string)[2], `echo "$${HOME:-x}" %%{http_code} $(id)`; got != want {
		t.Errorf("the command is %s, want %s", got, want)
	}
	if got, want := strings.ReplaceAll(task.Env["A"], "${NOMAD_META_VK_DOLLAR}", "$"), c.Env[0].Value; got != want {
		t.Errorf("the variable becomes %q, want %q", got, want)
	}
	if strings.Contains(task.Env["A"], "${node") {
		t.Errorf("the variable is replaced: %q", task.Env["A"])
	}
}

// Memory is in megabytes, and CPU in MHz.
func TestResources(t *testing.T) {
	list := func(cpu, memory string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
	}
	for _, c := range []struct {
		requests, limits corev1.ResourceList
		over             bool
		cpu, memory, max int
	}{
		{nil, nil, false, 0, 0, 0},
		{list("500m", "128Mi"), nil, false, 1000, 128, 0},
		{list("1m", "1"), nil, false, 2, 10, 0},
		{list("500m", "100Mi"), list("2", "1Gi"), false, 1000, 1024, 0},
		{list("500m", "100Mi"), list("2", "1Gi"), true, 1000, 100, 1024},
	} {
		pod := grouptest.NewPod("web")
		pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: c.requests, Limits: c.limits}
		r := testJob(t, pod, podgroup.Request{}, func(cfg *Config) { cfg.MemoryOversubscription = c.over }).TaskGroups[0].Tasks[0].Resources
		if value(r.CPU) != c.cpu || value(r.MemoryMB) != c.memory || value(r.MemoryMaxMB) != c.max {
			t.Errorf("%v, limits %v: %d MHz, %d MB, at most %d MB", c.requests, c.limits, value(r.CPU), value(r.MemoryMB), value(r.MemoryMaxMB))
		}
	}
}

// A driver has a network of its own unless the job names that of the host.
func TestNetworkOfTheHost(t *testing.T) {
	pod := grouptest.NewPod("web")
	for mode, want := range map[string]any{networkHost: networkHost, networkBridge: nil} {
		task := testJob(t, pod, podgroup.Request{}, func(cfg *Config) { cfg.Network = mode }).TaskGroups[0].Tasks[0]
		if got := task.Config["network_mode"]; got != want {
			t.Errorf("in the network %s the driver's is %v", mode, got)
		}
	}
}

// Nomad has no order of init containers.
func TestTurns(t *testing.T) {
	pod := grouptest.NewPod("web")
	pod.Spec.InitContainers = []corev1.Container{{Name: "first"}, {Name: "side", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}, {Name: "last"}}
	b, err := newBackend(Config{})
	if err != nil {
		t.Fatal(err)
	}
	options := b.options()
	if missing := options.Features.Check(pod); len(missing) > 0 || !slices.Contains(options.Features.Fields, "initContainers.restartPolicy") {
		t.Errorf("Nomad lacks %v, or sidecars", missing)
	}
	job := testJob(t, pod, podgroup.Request{})
	for i, want := range []int{0, 1, 1, 0} {
		if got := job.TaskGroups[0].Tasks[i].Templates; len(got) != want {
			t.Errorf("container %d waits for %d templates", i, len(got))
		}
	}
	at := time.Unix(1000, 0)
	states := map[string]*api.TaskState{}
	r := &record{meta: job.Meta, alloc: &api.Allocation{TaskStates: states}}
	for _, step := range []struct {
		name  string
		state api.TaskState
		turn  int
	}{
		{"first", api.TaskState{State: "running", StartedAt: at}, 0},
		{"first", api.TaskState{State: "dead", StartedAt: at, Failed: true}, 0},
		{"first", api.TaskState{State: "dead", StartedAt: at}, 1},
		{"side", api.TaskState{State: "pending"}, 1},
		{"side", api.TaskState{State: "running", StartedAt: at}, 2},
		{"last", api.TaskState{State: "running", StartedAt: at}, 2},
	} {
		states[step.name] = &step.state
		if got := r.turn(); got != step.turn {
			t.Errorf("after %s is %s: turn %d, want %d", step.name, step.state.State, got, step.turn)
		}
	}
}

// Contents are in variables alone, for the container that mounts them.
func TestJobHasNoContents(t *testing.T) {
	pod := grouptest.NewPod("web")
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "secret", MountPath: "/a"}, {Name: "secret", MountPath: "/b", SubPath: "key"}}
	pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "other", Image: "busybox:1"})
	files := map[string]volume.Files{"secret": {"key": {Data: []byte("hunter2"), Mode: 0o400}}}
	job := testJob(t, pod, podgroup.Request{Files: files})
	tasks := job.TaskGroups[0].Tasks
	if n := len(tasks[0].Templates); n != 1 || len(tasks[1].Templates) != 0 || *tasks[0].Templates[0].Perms != "0400" || *tasks[0].Templates[0].DestPath != "private/vk/secret/key" {
		t.Errorf("the templates are %+v and %+v", tasks[0].Templates, tasks[1].Templates)
	}
	if got := fmt.Sprint(tasks[0].Config["volumes"]); got != "[private/vk/secret:/a:ro private/vk/secret/key:/b:ro]" {
		t.Errorf("the volumes are %s", got)
	}
	if strings.Contains(fmt.Sprintf("%+v", tasks[0]), "hunter2") {
		t.Error("the job shows a secret")
	}
	if job.Meta[metaFiles] != "main" {
		t.Errorf("the meta is %v", job.Meta)
	}
}

// Drivers mount, and Nomad writes, what a link on the machine leads to: what volumes come from is not
// in a directory that a container has.
func TestContainersCannotReplaceVolumes(t *testing.T) {
	pod := grouptest.NewPod("web")
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "local", MountPath: "/a"}, {Name: "secret", MountPath: "/b"}, {Name: "secret", MountPath: "/c", SubPath: "key"}}
	pod.Spec.InitContainers = []corev1.Container{*pod.Spec.Containers[0].DeepCopy()}
	pod.Spec.InitContainers[0].Name = "vk"
	for _, driver := range []string{driverDocker, driverPodman} {
		job := testJob(t, pod, podgroup.Request{Files: map[string]volume.Files{"secret": {"key": {}}}}, func(cfg *Config) { cfg.Driver = driver })
		tasks := job.TaskGroups[0].Tasks
		mounted := []string{"alloc"} // in every container
		for _, task := range tasks {
			mounted = append(mounted, path.Join(task.Name, "local"), path.Join(task.Name, "secrets"))
		}
		for _, task := range tasks {
			sources := task.Config["volumes"].([]string)
			if len(sources) != 3 || len(task.Templates) != 1 {
				t.Fatalf("task %s has the volumes %q and the templates %v", task.Name, sources, task.Templates)
			}
			for _, source := range append(sources, *task.Templates[0].DestPath) {
				source, _, _ = strings.Cut(source, ":")
				source = path.Join(task.Name, source) // in the directory of the allocation
				if source == ".." || strings.HasPrefix(source, "../") || slices.ContainsFunc(mounted, func(dir string) bool { return source == dir || strings.HasPrefix(source, dir+"/") }) {
					t.Errorf("%s: task %s has %s, of %v", driver, task.Name, source, mounted)
				}
			}
		}
	}
}

// A container that has more of an emptyDir could make a part of it a link.
func TestSubPathsOfEmptyDirs(t *testing.T) {
	mount := func(subPath string, readOnly bool) corev1.VolumeMount {
		return corev1.VolumeMount{Name: "data", MountPath: "/" + subPath, SubPath: subPath, ReadOnly: readOnly}
	}
	emptyDir := corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
	for name, c := range map[string]struct {
		source     corev1.VolumeSource
		init, main []corev1.VolumeMount
		accepted   bool
		want       int
	}{
		"alone":               {emptyDir, nil, []corev1.VolumeMount{mount("a/b", false)}, false, 0},
		"the same":            {emptyDir, []corev1.VolumeMount{mount("a", false)}, []corev1.VolumeMount{mount("a/", false)}, false, 0},
		"others":              {emptyDir, []corev1.VolumeMount{mount("a", false), mount("b/c", false)}, []corev1.VolumeMount{mount("b/d", false), mount("ab", false)}, false, 0},
		"whole":               {emptyDir, []corev1.VolumeMount{mount("", false)}, []corev1.VolumeMount{mount("a", false)}, false, 1},
		"whole, at a restart": {emptyDir, nil, []corev1.VolumeMount{mount("", false), mount("a", true)}, false, 1},
		"whole, by a dot":     {emptyDir, []corev1.VolumeMount{mount(".", false)}, []corev1.VolumeMount{mount("a", false)}, false, 1},
		"a part":              {emptyDir, []corev1.VolumeMount{mount("a/b", false)}, []corev1.VolumeMount{mount("./a", false)}, false, 1},
		"read-only":           {emptyDir, []corev1.VolumeMount{mount("", true)}, []corev1.VolumeMount{mount("a", false)}, false, 0},
		"accepted":            {emptyDir, []corev1.VolumeMount{mount("", false)}, []corev1.VolumeMount{mount("a", false)}, true, 0},
		"files":               {corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}, []corev1.VolumeMount{mount("", false)}, []corev1.VolumeMount{mount("a", false)}, false, 0},
	} {
		pod := grouptest.NewPod("web")
		pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: c.source}}
		pod.Spec.InitContainers = []corev1.Container{{Name: "init", VolumeMounts: c.init}}
		pod.Spec.Containers[0].VolumeMounts = c.main
		b, err := newBackend(Config{UnsafeSubPaths: c.accepted})
		if err != nil {
			t.Fatal(err)
		}
		missing := b.check(pod)
		if len(missing) != c.want || c.want == 1 && !strings.Contains(missing[0], "].volumeMounts[data].subPath") {
			t.Errorf("%s: Nomad lacks %q, want %d", name, missing, c.want)
		}
	}
}

func TestContainerStates(t *testing.T) {
	at := time.Unix(1000, 0)
	event := func(kind string, code int, details map[string]string) *api.TaskEvent {
		return &api.TaskEvent{Type: kind, Time: at.UnixNano(), ExitCode: code, DisplayMessage: kind + " happened", Details: details}
	}
	for name, c := range map[string]struct {
		state api.TaskState
		want  string
	}{
		"not begun": {api.TaskState{State: "pending"}, "0  0, last 0 0"},
		"runs":      {api.TaskState{State: "running", StartedAt: at}, "1  0, last 0 0"},
		"has ended": {api.TaskState{State: "dead", StartedAt: at, FinishedAt: at, Events: []*api.TaskEvent{event(api.TaskTerminated, 3, nil)}}, "2  3, last 0 0"},
		"out of memory": {api.TaskState{State: "dead", StartedAt: at, Failed: true, Events: []*api.TaskEvent{
			event(api.TaskTerminated, 137, map[string]string{"oom_killed": "true", "exit_code": "137"})}}, "2 OOMKilled 137, last 0 0"},
		"runs again": {api.TaskState{State: "running", Restarts: 1, Events: []*api.TaskEvent{event(api.TaskTerminated, 2, nil), event(api.TaskRestarting, 0, nil)}}, "1  0, last 2 2"},
		"waits to run again": {api.TaskState{State: "pending", Restarts: 1, Events: []*api.TaskEvent{event(api.TaskTerminated, 2, nil), event(api.TaskRestarting, 0, nil)}},
			"0 CrashLoopBackOff 0, last 2 2"},
		"no image":      {api.TaskState{State: "pending", Events: []*api.TaskEvent{event(api.TaskDriverFailure, 0, nil), event(api.TaskRestarting, 0, nil)}}, "0 CreateContainerError 0, last 0 0"},
		"never started": {api.TaskState{State: "dead", Failed: true, Events: []*api.TaskEvent{event(api.TaskDriverFailure, 0, nil)}}, "2 StartError 128, last 0 0"},
		"end not seen":  {api.TaskState{State: "dead", StartedAt: at, Failed: true}, "2 ContainerStatusUnknown 137, last 0 0"},
	} {
		found := container("main", &c.state)
		if got := fmt.Sprintf("%d %s %d, last %d %d", found.Now.State, found.Now.Reason, found.Now.ExitCode, found.Last.State, found.Last.ExitCode); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestConfig(t *testing.T) {
	c, err := ParseConfig([]byte("address: ftp://x\ntoken: hunter2\njobPrefix: Vk_\ndriver: raw_exec\nnetwork: none\nclientCert: /a\n"))
	if err == nil {
		err = c.Complete()
	}
	if !errdefs.IsInvalidInput(err) || strings.Contains(err.Error(), "hunter2") {
		t.Fatalf("the error is %v", err)
	}
	for _, name := range []string{"address", "jobPrefix", "driver", "network", "clientKey"} {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("the error does not name %s: %v", name, err)
		}
	}
	if text := fmt.Sprintf("%+v %#v", c, c); strings.Contains(text, "hunter2") {
		t.Errorf("a secret is printed: %s", text)
	}
	env := map[string]string{"NOMAD_ADDR": "https://a:4646", "NOMAD_TOKEN": "t\n", "NOMAD_SKIP_VERIFY": "true"}
	c = Config{Address: "http://b"}
	if err := errors.Join(c.Merge(func(name string) string { return env[name] }), c.Complete()); err != nil || c.Address != "https://a:4646" || c.Token.Reveal() != "t" || !c.SkipVerify {
		t.Errorf("the config is %+v: %v", c, err)
	}
	if _, err := ParseConfig([]byte("adress: x\nregon: y\n")); err == nil || !strings.Contains(err.Error(), "2 mistakes") {
		t.Errorf("unknown fields give %v", err)
	}
}
