package azurebatch

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
	"github.com/virtual-kubelet/virtual-kubelet/podspec/volume"
)

// machine is one of a pool, on which tasks are run by a shell.
type machine struct {
	docker
	working string
	task    *exec.Cmd
	output  strings.Builder
}

// runTask runs the task of a request, as Batch does.
func runTask(t *testing.T, r *podgroup.Request, change func(*Config)) *machine {
	t.Helper()
	cfg := testConfig()
	change(&cfg)
	b, err := newBackend(cfg, "vk", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	task, l, err := b.task(r, pool{perNode: 1})
	if err != nil || !l.Script {
		t.Fatalf("%+v, %v", l, err)
	}
	m := &machine{docker: docker{t.TempDir()}, working: t.TempDir()}
	bin := t.TempDir()
	for name, text := range map[string]string{
		"docker": dockerVariable + "=" + m.directory + " exec " + os.Args[0] + ` "$@"`,
		"sleep":  `case $1 in 1000) exec /bin/sleep 1000;; esac; exec /bin/sleep 0.05`,
	} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	m.task = exec.CommandContext(t.Context(), "/bin/sh", "-c", "exec "+*task.CommandLine)
	m.task.Dir, m.task.Stdout, m.task.Stderr = m.working, &m.output, &m.output
	m.task.Env = []string{
		"PATH=" + bin + ":" + os.Getenv("PATH"), "AZ_BATCH_TASK_WORKING_DIR=" + m.working, "AZ_BATCH_JOB_ID=job", "AZ_BATCH_TASK_ID=" + *task.ID, "GOCOVERDIR=" + t.TempDir(),
	}
	for _, e := range task.EnvironmentSettings {
		m.task.Env = append(m.task.Env, *e.Name+"="+*e.Value)
	}
	if err := m.task.Start(); err != nil {
		t.Fatal(err)
	}
	return m
}

// wait returns the task's exit code.
func (m *machine) wait(t *testing.T) int {
	t.Helper()
	err := m.task.Wait()
	if failed, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		t.Fatal(err)
	} else if ok {
		return failed.ExitCode()
	}
	return 0
}

func (m *machine) file(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(m.working, name))
	if err != nil {
		t.Fatalf("%v; the task has written %s", err, m.output.String())
	}
	return string(text)
}

// left returns what the task has not removed.
func (m *machine) left(t *testing.T) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(m.working)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	containers, _ := filepath.Glob(m.docker.file("*", "json"))
	return append(names, containers...)
}

func request(pod *corev1.Pod) *podgroup.Request {
	return &podgroup.Request{Pod: pod, Token: string(pod.UID), Tags: map[string]string{podgroup.TagUID: string(pod.UID), podgroup.TagPodName: pod.Name}}
}

func shell(name, script string) corev1.Container {
	return corev1.Container{Name: name, Image: "busybox:1", Command: []string{"/bin/sh", "-c"}, Args: []string{script}}
}

const hostile = "it's \"$(id)\" `id` $HOME \\ %s\n; exit 7 # '"

func TestScript(t *testing.T) {
	t.Parallel()
	pod := grouptest.NewPod("script")
	pod.Spec.RestartPolicy, pod.Spec.Hostname = corev1.RestartPolicyNever, "host"
	pod.Spec.Volumes = []corev1.Volume{
		{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}, {Name: "conf", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}},
	}
	pod.Spec.InitContainers = []corev1.Container{shell("setup", "echo ready")}
	main := shell("main", `printf '%s|' "$HOSTILE" "$1"; exit 3`)
	main.Args = append(main.Args, "main", hostile)
	main.Env = []corev1.EnvVar{{Name: "HOSTILE", Value: hostile}}
	main.VolumeMounts = []corev1.VolumeMount{{Name: "scratch", MountPath: "/s", SubPath: "a b"}, {Name: "conf", MountPath: "/it's", ReadOnly: true}}
	pod.Spec.Containers = []corev1.Container{main, shell("other", "true")}
	r := request(pod)
	r.Files = map[string]volume.Files{"conf": {"dir/key": {Data: []byte("value"), Mode: 0o640}}}
	r.Logins = []podgroup.Login{{Registry: "registry.example", Username: "u", Password: "hush"}}
	m := runTask(t, r, func(*Config) {})
	if code := m.wait(t); code != 3 {
		t.Errorf("the task has ended with %d: %s", code, m.output.String())
	}
	state, failed := parseState(nil, m.file(t, "state.txt"), nil)
	if got := state["main"].now; failed != nil || got.State != podgroup.Terminated || got.ExitCode != 3 || got.Reason != "Error" || got.Finished.IsZero() ||
		state["setup"].now.Reason != "Completed" || state["other"].now.State != podgroup.Terminated {
		t.Errorf("%+v, %v", state, failed)
	}
	var text strings.Builder
	for line := range strings.Lines(m.file(t, "logs/main.0.log")) {
		at, rest := stamped(line)
		if at.IsZero() {
			t.Errorf("line %q has no time", line)
		}
		text.WriteString(rest)
	}
	if want := hostile + "|" + hostile + "|\n"; text.String() != want {
		t.Errorf("the log is %q, not %q", text.String(), want)
	}
	if left := m.left(t); !slices.Equal(left, []string{"logs", "state.txt"}) {
		t.Errorf("the task has left %v", left)
	}
	made, err := os.ReadFile(m.docker.file("vk-job-"+string(pod.UID)+"-main-0", "made"))
	if want := m.working + "/.vk/files/conf:/it's:ro"; err != nil || !strings.Contains(string(made), want) || !strings.Contains(string(made), m.working+"/volumes/scratch/a b:/s:rw") {
		t.Errorf("the container has %s, %v", made, err)
	}
	if strings.Contains(m.output.String(), "hush") {
		t.Error("the password is printed")
	}
}

// The directories of a subPath in an emptyDir are open to all users, as in a kubelet.
func TestScriptWithSubPath(t *testing.T) {
	t.Parallel()
	pod := grouptest.NewPod("sub")
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	pod.Spec.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	main := shell("main", `d=${`+mountVariable+`%%:*}; stat -c mode=%a "$d" "$d/.."`)
	main.VolumeMounts = []corev1.VolumeMount{{Name: "scratch", MountPath: "/s", SubPath: "a/b"}}
	pod.Spec.Containers = []corev1.Container{main}
	m := runTask(t, request(pod), func(*Config) {})
	if code := m.wait(t); code != 0 {
		t.Errorf("the task has ended with %d: %s", code, m.output.String())
	}
	if log := m.file(t, "logs/main.0.log"); strings.Count(log, "mode=777") != 2 {
		t.Errorf("the log is %s", log)
	}
}

// A limit of CPUs may be more than the machine has, and less than a thousandth of its time.
func TestScriptWithLimits(t *testing.T) {
	t.Parallel()
	for cpus, quota := range map[string]string{"1000": `"--cpu-quota","100000000"`, "1m": `"--cpu-quota","1000"`} {
		pod := grouptest.NewPod("limits")
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
		pod.Spec.InitContainers = []corev1.Container{shell("setup", "true")}
		main := shell("main", "true")
		main.Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpus)}
		pod.Spec.Containers = []corev1.Container{main}
		m := runTask(t, request(pod), func(*Config) {})
		if code := m.wait(t); code != 0 {
			t.Errorf("with a limit of %s CPUs the task has ended with %d: %s", cpus, code, m.file(t, "state.txt"))
		}
		if made := m.read("vk-job-"+string(pod.UID)+"-main-0", "made"); !strings.Contains(made, `"--cpu-period","100000",`+quota) {
			t.Errorf("with a limit of %s CPUs the container is %s", cpus, made)
		}
	}
}

// Each container has GPUs of its own. Init containers have ended before.
func TestScriptWithGPUs(t *testing.T) {
	t.Parallel()
	pod := grouptest.NewPod("gpus")
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	with := func(name, gpus string) corev1.Container {
		c := shell(name, "true")
		c.Resources.Limits = corev1.ResourceList{gpu: resource.MustParse(gpus)}
		return c
	}
	pod.Spec.InitContainers = []corev1.Container{with("setup", "1")}
	pod.Spec.Containers = []corev1.Container{with("first", "1"), shell("none", "true"), with("second", "2")}
	m := runTask(t, request(pod), func(*Config) {})
	if code := m.wait(t); code != 0 {
		t.Errorf("the task has ended with %d: %s", code, m.output.String())
	}
	for name, want := range map[string]string{"setup": `"--gpus","device=0"`, "first": `"--gpus","device=0"`, "second": `"--gpus","\"device=1,2\""`} {
		if made := m.read("vk-job-"+string(pod.UID)+"-"+name+"-0", "made"); !strings.Contains(made, want) {
			t.Errorf("container %s is %s", name, made)
		}
	}
	pod.Spec.Containers[0].Resources.Limits[gpu] = resource.MustParse("1000000000")
	if missing := check(pod); len(missing) != 1 {
		t.Errorf("of a pod with very many GPUs Batch lacks %v", missing)
	}
}

func TestScriptWithoutImage(t *testing.T) {
	t.Parallel()
	pod := grouptest.NewPod("missing")
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	pod.Spec.InitContainers = []corev1.Container{shell("setup", "true")}
	pod.Spec.InitContainers[0].Image = missingImage
	m := runTask(t, request(pod), func(*Config) {})
	if code := m.wait(t); code != 128 {
		t.Errorf("the task has ended with %d: %s", code, m.output.String())
	}
	state, _ := parseState(nil, m.file(t, "state.txt"), nil)
	if got := state["setup"].now; got.Reason != "StartError" || got.Message != "pull access denied for "+missingImage {
		t.Errorf("%+v", got)
	}
	if _, started := state["main"]; started {
		t.Error("a container has started although the init container has failed")
	}
}

func TestScriptRestarts(t *testing.T) {
	t.Parallel()
	pod := grouptest.NewPod("again")
	pod.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
	pod.Spec.Containers = []corev1.Container{shell("main", "echo no; exit 5")}
	m := runTask(t, request(pod), func(c *Config) { c.MaxRetries = new(int32(1)) })
	if code := m.wait(t); code != 5 {
		t.Errorf("the task has ended with %d: %s", code, m.output.String())
	}
	state, _ := parseState(nil, m.file(t, "state.txt"), nil)
	if got := state["main"]; got.run != 1 || got.now.ExitCode != 5 || got.last.ExitCode != 5 {
		t.Errorf("%+v", got)
	}
	for _, name := range []string{"logs/main.0.log", "logs/main.1.log"} {
		if text := m.file(t, name); !strings.HasSuffix(text, " no\n") {
			t.Errorf("%s is %q", name, text)
		}
	}
}

func TestScriptIsStopped(t *testing.T) {
	t.Parallel()
	pod := grouptest.NewPod("stopped")
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	pod.Spec.Containers = []corev1.Container{shell("main", "sleep 1000")}
	m := runTask(t, request(pod), func(*Config) {})
	for {
		if text, _ := os.ReadFile(filepath.Join(m.working, "state.txt")); strings.Contains(string(text), "main 0 running") {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err := m.task.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := m.wait(t); code != 143 {
		t.Errorf("the task has ended with %d: %s", code, m.output.String())
	}
	if left := m.left(t); !slices.Equal(left, []string{"logs", "state.txt"}) {
		t.Errorf("the task has left %v", left)
	}
}

// A container that is to be started again is not, once the task is stopped.
func TestScriptIsStoppedBetweenRuns(t *testing.T) {
	t.Parallel()
	pod := grouptest.NewPod("between")
	pod.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
	pod.Spec.Containers = []corev1.Container{shell("main", "exit 5")}
	m := runTask(t, request(pod), func(*Config) {})
	m.task.WaitDelay = 20 * time.Second
	for {
		if text, _ := os.ReadFile(filepath.Join(m.working, "state.txt")); strings.Contains(string(text), "main 1 exited") {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err := m.task.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := m.wait(t); code != 143 {
		t.Errorf("the task has ended with %d: %s", code, m.output.String())
	}
	ended := m.file(t, "state.txt")
	for range 20 {
		time.Sleep(100 * time.Millisecond)
		if text := m.file(t, "state.txt"); text != ended {
			t.Fatalf("the script goes on: %s", text)
		}
	}
}

// An init container makes a link to a directory of the machine of one that the next container
// mounts. Links that stay in the volume are followed.
func TestScriptWithLinks(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		host   bool
		link   string
		reason string
	}{
		"emptyDir":           {link: "/", reason: "StartError"},
		"emptyDir beside":    {link: "../scratch-2", reason: "StartError"},
		"emptyDir inside":    {link: "other", reason: "Completed"},
		"hostPath":           {host: true, link: "/", reason: "StartError"},
		"hostPath above":     {host: true, link: "..", reason: "StartError"},
		"hostPath that ends": {host: true, link: "/nonexistent/x", reason: "StartError"},
		"hostPath inside":    {host: true, link: "other", reason: "Completed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := grouptest.NewPod("links")
			pod.Spec.RestartPolicy = corev1.RestartPolicyNever
			pod.Spec.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
			if tc.host {
				pod.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: t.TempDir() + "/a volume"}}
			}
			setup := shell("setup", `d=${`+mountVariable+`%%:*}; mkdir -p "$d/other" "$d-2" && rm -rf "$d/sub" && ln -s `+tc.link+` "$d/sub"`)
			setup.VolumeMounts = []corev1.VolumeMount{{Name: "scratch", MountPath: "/s"}}
			main := shell("main", "true")
			main.VolumeMounts = []corev1.VolumeMount{{Name: "scratch", MountPath: "/s", SubPath: "sub"}}
			pod.Spec.InitContainers, pod.Spec.Containers = []corev1.Container{setup}, []corev1.Container{main}
			m := runTask(t, request(pod), func(*Config) {})
			code := m.wait(t)
			if want := map[string]int{"StartError": 128}[tc.reason]; code != want {
				t.Errorf("the task has ended with %d, want %d: %s", code, want, m.output.String())
			}
			state, _ := parseState(nil, m.file(t, "state.txt"), nil)
			got := state["main"].now
			if got.Reason != tc.reason || strings.Contains(got.Message, "symbolic link") != (code == 128) || state["setup"].now.ExitCode != 0 {
				t.Errorf("%+v", state)
			}
		})
	}
}

// The container with the network goes on while the file with the time is empty, and removes
// all when that is gone.
func TestScriptWatch(t *testing.T) {
	t.Parallel()
	_, rest, _ := strings.Cut(functions, "watch='")
	watch, _, _ := strings.Cut(rest, "'\n")
	bin, pod := t.TempDir(), t.TempDir()
	for _, name := range []string{".vk", "volumes", "logs"} {
		if err := os.Mkdir(filepath.Join(pod, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{
		// Each sleep is followed by another content of the file; after the fourth it is gone.
		"sleep":  `echo x >>"$POD/sleeps"; case $(wc -l <"$POD/sleeps") in 1) : >"$POD/.vk/alive";; 2) echo 7 >"$POD/.vk/alive";; 3) : >"$POD/.vk/alive";; *) rm "$POD/.vk/alive";; esac`,
		"docker": `echo "$*" >>"$POD/docker"; case $1 in ps) echo id;; esac`,
	} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(pod, ".vk", "alive"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), "/bin/sh", "-c", strings.ReplaceAll(watch, "/pod/", pod+"/"), "label")
	c.Env = []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "POD=" + pod}
	if output, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	if sleeps, _ := os.ReadFile(filepath.Join(pod, "sleeps")); strings.Count(string(sleeps), "x") != 4 {
		t.Errorf("it has waited %q times", sleeps)
	}
	calls, _ := os.ReadFile(filepath.Join(pod, "docker"))
	if want := "ps -aq --filter label=label --filter label=container\nrm -f -v id\nps -aq --filter label=label\nrm -f -v id\n"; string(calls) != want {
		t.Errorf("it has called docker with %s", calls)
	}
	left, _ := filepath.Glob(filepath.Join(pod, "*"))
	if hidden, _ := filepath.Glob(filepath.Join(pod, ".vk")); len(hidden) > 0 || slices.Contains(left, filepath.Join(pod, "volumes")) || !slices.Contains(left, filepath.Join(pod, "logs")) {
		t.Errorf("it has left %v, %v", left, hidden)
	}
}
