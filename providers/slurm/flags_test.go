package slurm

import (
	"context"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
	"github.com/virtual-kubelet/virtual-kubelet/providers/slurm/internal/login"
)

func TestFlagsOfAnnotations(t *testing.T) {
	for _, c := range []struct{ text, want, wrong string }{
		{text: "", want: ""},
		{text: "--job-name=test-pod -t 2800 --ntasks=8 --nodes=1 --mem-per-cpu=2000", want: "--time=2800|--ntasks=8|--nodes=1|--mem-per-cpu=2000"},
		{text: "-N2 -p gpu --gres gpu:a100:2 --exclusive", want: "--nodes=2|--partition=gpu|--gres=gpu:a100:2|--exclusive"},
		{text: "--constraint='[rack1|rack2]' --comment=\"two words\"", want: "--constraint=[rack1|rack2]"},
		{text: "--qos=a --nice --hold", want: "--qos=a|--nice|--hold"},
		{text: "--output=/home/me/.ssh/authorized_keys", wrong: "--output"},
		{text: "--wrap=true", wrong: "--wrap"},
		{text: "-D /tmp", wrong: "-D"},
		{text: "--requeue", wrong: "--requeue"},
		{text: "--array=1-1000", wrong: "--array"},
		{text: "--export=ALL", wrong: "--export"},
		{text: "script.sh", wrong: "script.sh"},
		{text: "--time", wrong: "has no value"},
		{text: "--constraint='a", wrong: "not closed"},
	} {
		flags, err := parseFlags(c.text)
		if got := strings.Join(flags, "|"); got != c.want || (err != nil) != (c.wrong != "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("flags %q are %q, error %v", c.text, got, err)
		}
	}
}

func request(pod *corev1.Pod) *podgroup.Request {
	return &podgroup.Request{Pod: pod, Name: "default-one-0123456789", Token: string(pod.UID), Tags: map[string]string{"PodName": pod.Name}}
}

func completed(t *testing.T, c Config) *backend {
	t.Helper()
	c.Cluster = "test"
	if err := c.complete(); err != nil {
		t.Fatal(err)
	}
	return newBackend(c, nil)
}

func TestFlagsOfAJob(t *testing.T) {
	b := completed(t, Config{Partition: "batch", Account: "p1", Flags: []string{"--nice=10"}, Time: "1-0"})
	pod := grouptest.NewPod("one")
	deadline := int64(90)
	pod.Spec.ActiveDeadlineSeconds = &deadline
	r := request(pod)
	r.Size = podgroup.Size{CPU: resource.MustParse("1500m"), Memory: resource.MustParse("100M"), Other: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("2")}}
	flags, err := b.flags(r)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"--nice=10", "--partition=batch", "--account=p1", "--time=1-0", "--time=3", "--cpus-per-task=2", "--mem=96M", "--gres=gpu:2",
		`--comment={"PodName":"one"}`, "--job-name=default-one-0123456789", "--export=NIL", "--no-requeue",
	}
	if !slices.Equal(flags, want) {
		t.Errorf("the flags are\n%q and not\n%q", flags, want)
	}

	// What the pod says itself comes later, and sbatch takes one of two flags for memory.
	pod.Annotations = map[string]string{annotationFlags: "--mem-per-cpu=1G --partition=gpu --comment=mine"}
	r.Token += "-again" // the service has lost the first job
	if flags, err = b.flags(r); err != nil {
		t.Fatal(err)
	}
	text := strings.Join(flags, " ")
	if strings.Contains(text, "--mem=") || strings.Contains(text, "mine") || !strings.Contains(text, "PodName") || strings.LastIndex(text, "--partition=gpu") < strings.Index(text, "--partition=batch") ||
		!strings.Contains(text, "--job-name=default-one-0123456789-again") {
		t.Errorf("the flags are %q", flags)
	}
}

// What a pod asks for that jobs do not have is refused before anything is submitted.
func TestChecks(t *testing.T) {
	for _, c := range []struct {
		name    string
		config  Config
		change  func(*corev1.Pod)
		missing string
	}{
		{"plain", Config{Runtime: RuntimePodman}, func(*corev1.Pod) {}, ""},
		{"flag", Config{Runtime: RuntimePodman}, func(p *corev1.Pod) { p.Annotations = map[string]string{annotationFlags: "--uid=0"} }, "pods may not have --uid"},
		{"no command", Config{}, func(*corev1.Pod) {}, "containers[main] without a command"},
		{"shell", Config{Runtime: RuntimePodman}, func(p *corev1.Pod) { p.Annotations = map[string]string{annotationPreExec: "id"} }, "allowPreExec"},
		{"shell allowed", Config{Runtime: RuntimePodman, AllowPreExec: true}, func(p *corev1.Pod) { p.Annotations = map[string]string{annotationPreExec: "id"} }, ""},
		{"resource", Config{Runtime: RuntimePodman}, func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"example.com/fpga": resource.MustParse("1")}
		}, "the resource example.com/fpga"},
		{"host path", Config{Runtime: RuntimePodman, HostPaths: []string{"/scratch"}}, hostPath("/scratch/me"), ""},
		{"host path beside", Config{Runtime: RuntimePodman, HostPaths: []string{"/scratch"}}, hostPath("/scratch2"), "hostPath /scratch2"},
		{"host path above", Config{Runtime: RuntimePodman, HostPaths: []string{"/scratch"}}, hostPath("/scratch/../etc"), "hostPath /scratch/../etc"},
		{"node list in a file", Config{}, flagsOf("--nodelist=/home/me/.netrc"), "--nodelist"},
		{"node list in a file, by its letter", Config{}, flagsOf("-w ./.netrc"), "--nodelist"},
		{"nodes without those in a file", Config{}, flagsOf("-x /dev/stdin"), "--exclude"},
		{"node list", Config{}, flagsOf("--nodelist=node[1-3] -x node2"), ""},
		{"colon", Config{Runtime: RuntimePodman}, mount("/a:/etc"), "a path with one of the characters"},
		{"nested", Config{}, func(p *corev1.Pod) { mount("/a")(p); mount("/a/b")(p) }, "in another volume"},
	} {
		t.Run(c.name, func(t *testing.T) {
			pod := grouptest.NewPod("one")
			c.change(pod)
			missing := strings.Join(completed(t, c.config).check(pod), "; ")
			if c.missing == "" && missing != "" || !strings.Contains(missing, c.missing) {
				t.Errorf("missing is %q, and not %q", missing, c.missing)
			}
		})
	}
}

func flagsOf(text string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Annotations = map[string]string{annotationFlags: text}
		p.Spec.Containers[0].Command = []string{"true"}
	}
}

func hostPath(path string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path}}}}
	}
}

func mount(path string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		c := &p.Spec.Containers[0]
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "v", MountPath: path})
	}
}

// ended is a login.Runner whose commands fail.
type ended struct{ err error }

func (e ended) Run(context.Context, login.Command) error { return e.err }

// What Slurm refuses for good fails a pod; all else is tried again.
func TestErrors(t *testing.T) {
	for text, permanent := range map[string]bool{
		"sbatch: error: Batch job submission failed: Requested node configuration is not available":                                         true,
		"sbatch: error: invalid partition specified: nope sbatch: error: Batch job submission failed: Invalid partition name specified":     true,
		"sbatch: error: Memory specification can not be satisfied":                                                                          true,
		"sbatch: error: Invalid generic resource (gres) specification":                                                                      true,
		"sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)":                                  false,
		"sbatch: error: Batch job submission failed: Socket timed out on send/recv operation":                                               false,
		"sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)": false,
		"sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying":                                                      false,
		"sbatch: error: Batch job submission failed: Required node not available (down, drained or reserved)":                               false,
		"sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified":                            true,
		"tar: state: Cannot write: Disk quota exceeded":                                                                                     false,
		"sbatch: error: something that nobody has seen":                                                                                     false,
		"slurm_load_jobs error: Unable to contact slurm controller (connect failure)":                                                       false,
	} {
		err := classify(podgroup.ActionCreate, &login.Error{Code: 1, Text: text})
		if errdefs.IsPermanent(err) != permanent {
			t.Errorf("of %q the error is permanent: %v", text, !permanent)
		}
		if !strings.Contains(err.Error(), text) {
			t.Errorf("the error does not have %q: %v", text, err)
		}
	}
	if err := classify(podgroup.ActionDelete, &login.Error{Code: login.NotFound}); !errdefs.IsNotFound(err) {
		t.Errorf("a job that is not there is %v", err)
	}
	if err := classify(podgroup.ActionList, &login.Error{Code: 255, Unreachable: true}); !errdefs.IsUnavailable(err) {
		t.Errorf("a machine that cannot be reached is %v", err)
	}
	if _, err := newBackend(Config{}, ended{&login.Error{Code: 1, Text: "Unable to contact slurm controller"}}).List(t.Context(), nil, ""); !errdefs.IsUnavailable(err) {
		t.Errorf("a list that fails is %v", err)
	}
}

func TestConfig(t *testing.T) {
	_, err := ParseConfig([]byte("root: 'a;b'\nruntime: docker\nhostPaths: [scratch]\nflags: ['--wrap=x', nice]\nssh: {}\nqueue: x\npartition: 'a b'\nenvironment: {'A B': c}\n"))
	for _, want := range []string{"cluster:", "root:", "runtime:", "hostPaths:", "--wrap", `"nice"`, "ssh.host", "queue", "partition:", `"A B"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not name %s: %v", want, err)
		}
	}
	if !errdefs.IsInvalidInput(err) {
		t.Errorf("the error is not of class InvalidInput: %v", err)
	}
	c, err := ParseConfig([]byte("cluster: home\nrefresh: 10s\ncpu: 100\nssh: {host: login, user: me, port: 2222, options: [ProxyJump=gate]}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(c.SSH.argv(), " "); !strings.HasSuffix(got, "-o ProxyJump=gate -l me -p 2222 -- login") {
		t.Errorf("the command is %q", got)
	}
}

func TestCapacity(t *testing.T) {
	b := completed(t, Config{})
	list := b.capacityOf("n1|64|1000|mixed|gpu:a100:4(S:0-1),nic:1\nn2|64+|1000|idle|gpu:2\nn3|64|1000|drained|gpu:4\nn4|64|1000|idle*|(null)\nn1|64|1000|mixed|gpu:a100:4(S:0-1)\n")
	cpu, memory, gpu := list[corev1.ResourceCPU], list[corev1.ResourceMemory], list["nvidia.com/gpu"]
	if cpu.Value() != 128 || memory.Value() != 2000<<20 || gpu.Value() != 6 {
		t.Errorf("the capacity is %v", list)
	}
}
