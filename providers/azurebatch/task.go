package azurebatch

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/batch/azbatch"
	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
)

const (
	defaultRetention = 7 * 24 * time.Hour
	// tokenLifetime is that of service account tokens, which a task cannot be given again.
	tokenLifetime = 24 * time.Hour
	// maxFiles is how many bytes all files of a pod may have: the task, in which they are
	// base64, may have a MiB.
	maxFiles = 600 << 10
	// maxLabel is how long the display name of a task may be.
	maxLabel = 1024
)

// label is what the display name of a task says of its pod, in JSON: Batch has no tags, and
// lists would have all files of all pods if they had the environment.
type label struct {
	Tags map[string]string `json:"tags"`
	// Init and Containers are the names of the pod's containers.
	Init       []string `json:"init,omitempty"`
	Containers []string `json:"containers"`
	// Script is set if a script runs the containers: it writes what becomes of them, and logs.
	Script bool `json:"script,omitempty"`
	// Restart is the restart policy.
	Restart corev1.RestartPolicy `json:"restart"`
}

func parseLabel(text string) *label {
	var l label
	if json.Unmarshal([]byte(text), &l) != nil || l.Tags[podgroup.TagUID] == "" {
		return nil
	}
	return &l
}

// has reports whether the pod has all of these tags.
func (l *label) has(tags map[string]string) bool {
	for key, value := range tags {
		if l.Tags[key] != value {
			return false
		}
	}
	return true
}

func namesOf(containers []corev1.Container) (names []string) {
	for i := range containers {
		names = append(names, containers[i].Name)
	}
	return names
}

// task returns the task of a pod.
func (b *backend) task(r *podgroup.Request, pool pool) (*azbatch.CreateTaskContent, *label, error) {
	pod := b.withoutAPIAccess(r.Pod)
	l := &label{Tags: r.Tags, Init: namesOf(pod.Spec.InitContainers), Containers: namesOf(pod.Spec.Containers), Restart: pod.Spec.RestartPolicy}
	command, plain := b.plainCommand(pod)
	l.Script = !pool.containers || !plain || len(r.Logins) > 1 || len(r.DNS.Nameservers)+len(r.DNS.Searches)+len(r.DNS.Options) > 0
	text, err := json.Marshal(l)
	if err != nil {
		return nil, nil, err
	}
	if n := len([]rune(string(text))); n > maxLabel {
		return nil, nil, errdefs.AsPermanent(fmt.Errorf("the names of the cluster, the node, the pod and its containers are too long: together they have %d characters, and may have %d", n, maxLabel))
	}
	id := notAnID.ReplaceAllString(r.Token, "-")
	t := &azbatch.CreateTaskContent{
		ID: new(id[:min(len(id), 64)]), DisplayName: new(string(text)), RequiredSlots: new(pool.slots(r.Size)),
		Constraints: &azbatch.TaskConstraints{RetentionTime: new(iso8601(b.cfg.Retention.Duration)), MaxTaskRetryCount: new(int32(0))},
		// As root of the machine, as in other containers, unless the image says otherwise.
		UserIdentity: &azbatch.UserIdentity{AutoUser: &azbatch.AutoUserSpecification{ElevationLevel: new(azbatch.ElevationLevelAdmin), Scope: new(azbatch.AutoUserScopePool)}},
	}
	if l.Script {
		return t, l, b.script(t, r, pod, pool)
	}
	c := &pod.Spec.Containers[0]
	if pod.Spec.RestartPolicy == corev1.RestartPolicyOnFailure {
		t.Constraints.MaxTaskRetryCount = b.cfg.MaxRetries
	}
	t.CommandLine = new(strings.Join(command, " "))
	t.ContainerSettings = &azbatch.TaskContainerSettings{
		ImageName: &c.Image, WorkingDirectory: new(azbatch.ContainerWorkingDirectoryContainerImageDefault), ContainerRunOptions: new(strings.Join(plainOptions(c), " ")),
		ContainerHostBatchBindMounts: []azbatch.ContainerHostBindMountEntry{}, // nothing of the machine
	}
	for _, login := range r.Logins {
		t.ContainerSettings.Registry = &azbatch.ContainerRegistryReference{RegistryServer: new(login.Registry), Username: new(login.Username), Password: new(login.Password)}
	}
	for _, e := range c.Env {
		t.EnvironmentSettings = append(t.EnvironmentSettings, azbatch.EnvironmentSetting{Name: new(e.Name), Value: new(e.Value)})
	}
	return t, l, nil
}

// iso8601 returns a duration as the service has it.
func iso8601(d time.Duration) string {
	return "PT" + strconv.FormatInt(int64(d.Round(time.Second)/time.Second), 10) + "S"
}

// accessPrefix is that of the volume with a token that the API server adds to each pod.
const accessPrefix = "kube-api-access-"

func (b *backend) dropped(v *corev1.Volume) bool {
	return !b.cfg.APIAccess && v.Projected != nil && strings.HasPrefix(v.Name, accessPrefix)
}

// ignores names the volume with a token that is not brought to the machines.
func (b *backend) ignores(pod *corev1.Pod) (ignored []string) {
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; b.dropped(v) {
			ignored = append(ignored, fmt.Sprintf("volumes[%s] with a token for the API server (see the setting apiAccess)", v.Name))
		}
	}
	return ignored
}

// withoutAPIAccess returns the pod without the volume with a token.
func (b *backend) withoutAPIAccess(pod *corev1.Pod) *corev1.Pod {
	i := slices.IndexFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return b.dropped(&v) })
	if i < 0 {
		return pod
	}
	pod = pod.DeepCopy()
	name := pod.Spec.Volumes[i].Name
	pod.Spec.Volumes = slices.Delete(pod.Spec.Volumes, i, i+1)
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			containers[i].VolumeMounts = slices.DeleteFunc(containers[i].VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == name })
		}
	}
	return pod
}

var (
	// plainWord needs no quotes, however Batch divides a command line into words.
	plainWord = regexp.MustCompile(`^[A-Za-z0-9_./:=@%+,-]+$`)
	plainName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	// plainText is on one line.
	plainText = regexp.MustCompile(`^[\x20-\x7e]*$`)
)

// plainCommand returns the command line of a task of Batch's own container tasks, if it can
// run the pod as it is: one container, with nothing but variables that are no secrets.
func (b *backend) plainCommand(pod *corev1.Pod) (words []string, ok bool) {
	c := &pod.Spec.Containers[0]
	spec := &pod.Spec
	if len(spec.InitContainers)+len(spec.Volumes) > 0 || len(spec.Containers) > 1 || spec.Hostname != "" || len(spec.HostAliases) > 0 ||
		c.SecurityContext != nil || spec.SecurityContext != nil && (spec.SecurityContext.RunAsUser != nil || spec.SecurityContext.RunAsGroup != nil) ||
		c.ImagePullPolicy == corev1.PullAlways || c.ImagePullPolicy == corev1.PullNever || !plainWord.MatchString(c.Image) || b.hasSecretEnv(pod) {
		return nil, false
	}
	for _, e := range c.Env {
		if !plainName.MatchString(e.Name) || !plainText.MatchString(e.Value) || strings.HasPrefix(e.Name, "AZ_BATCH_") {
			return nil, false
		}
	}
	words = c.Args
	if len(c.Command) > 0 {
		words = slices.Concat(c.Command[1:], c.Args)
	}
	for _, word := range append(slices.Concat(c.Command, c.Args), cmp.Or(c.WorkingDir, "/")) {
		if !plainWord.MatchString(word) {
			return nil, false
		}
	}
	return words, true
}

// hasSecretEnv reports whether variables of a pod are from Secrets, or may be.
func (b *backend) hasSecretEnv(pod *corev1.Pod) bool {
	if b.pods == nil {
		return false
	}
	known, err := b.pods.Pods(pod.Namespace).Get(pod.Name) // its variables are not resolved
	if err != nil || known.UID != pod.UID {
		return true
	}
	for _, c := range known.Spec.Containers {
		if slices.ContainsFunc(c.EnvFrom, func(e corev1.EnvFromSource) bool { return e.SecretRef != nil }) ||
			slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil }) {
			return true
		}
	}
	return false
}

// plainOptions are the options of a container of a plain command: words that need no quotes.
// Batch gives it the machine's GPUs.
func plainOptions(c *corev1.Container) []string {
	options := append([]string{"--rm"}, limits(c)...)
	if len(c.Command) > 0 {
		options = append(options, "--entrypoint", c.Command[0])
	}
	if c.WorkingDir != "" {
		options = append(options, "--workdir", c.WorkingDir)
	}
	return options
}

// cpuPeriod is the time in which a container may use its limit of CPUs, and minQuota the least
// limit that Docker takes for it, in microseconds.
const cpuPeriod, minQuota = 100_000, 1000

// limits returns the limits of a container as options of Docker, which refuses --cpus with more
// CPUs than the machine has: a limit of a pod may be more.
func limits(c *corev1.Container) (options []string) {
	if cpu, ok := c.Resources.Limits[corev1.ResourceCPU]; ok && cpu.Sign() > 0 {
		quota := max(cpu.MilliValue()*cpuPeriod/1000, minQuota)
		options = append(options, "--cpu-period", strconv.Itoa(cpuPeriod), "--cpu-quota", strconv.FormatInt(quota, 10))
	}
	if memory, ok := c.Resources.Limits[corev1.ResourceMemory]; ok && memory.Value() > 0 {
		options = append(options, "--memory", strconv.FormatInt(memory.Value(), 10))
	}
	return options
}
