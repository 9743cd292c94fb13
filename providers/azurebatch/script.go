package azurebatch

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	_ "embed" // of run.sh
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/batch/azbatch"
	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podspec"
	"github.com/virtual-kubelet/virtual-kubelet/podspec/volume"
)

//go:embed run.sh
var functions string

const (
	// payloadName begins the names of the variables with the script and the files.
	payloadName = "VIRTUAL_KUBELET_PAYLOAD_"
	// chunk is how long one of them may be: Docker takes lines of 64 KiB from files of
	// variables, by which Batch may give them to a container.
	chunk = 32 << 10
	// maxPayload is how long all may be.
	maxPayload = 960 << 10
	// socket is where Docker listens.
	socket = "/var/run/docker.sock"
)

// script has a task run the containers of a pod by a script. The script and the files travel
// in the environment, packed: the directory .vk of the task is made of them.
func (b *backend) script(t *azbatch.CreateTaskContent, r *podgroup.Request, pod *corev1.Pod, pool pool) error {
	text, err := b.packed(r, pod)
	if err != nil {
		return err
	}
	if len(text) > maxPayload {
		return errdefs.AsPermanent(fmt.Errorf("the pod's files, variables and commands have %d bytes packed, and a task of Azure Batch may have %d: use a volume of the machines, or the image", len(text), maxPayload))
	}
	var names []string
	for part := range slices.Chunk([]byte(text), chunk) {
		names = append(names, payloadName+strconv.Itoa(len(names)))
		t.EnvironmentSettings = append(t.EnvironmentSettings, azbatch.EnvironmentSetting{Name: new(names[len(names)-1]), Value: new(string(part))})
	}
	// Neither a quote nor a variable in it: the service has its own way with both.
	t.CommandLine = new("/bin/sh -c 'mkdir -p .vk && printenv " + strings.Join(names, " ") + " | base64 -d | tar -xzpf - -C .vk && unset " + strings.Join(names, " ") + " && exec /bin/sh .vk/run.sh'")
	if pool.containers {
		t.ContainerSettings = &azbatch.TaskContainerSettings{ImageName: &b.cfg.HelperImage, ContainerRunOptions: new("--rm -v " + socket + ":" + socket)}
	}
	return nil
}

// packed returns the files of the directory .vk: a tar.gz in base64.
func (b *backend) packed(r *podgroup.Request, pod *corev1.Pod) (string, error) {
	var out bytes.Buffer
	zipped := gzip.NewWriter(&out)
	files := tar.NewWriter(zipped)
	write := func(name string, file volume.File) error {
		h := &tar.Header{Name: name, Mode: int64(file.Mode.Perm()), Size: int64(len(file.Data)), ModTime: time.Unix(0, 0)}
		if file.UID != nil {
			h.Uid = int(*file.UID)
		}
		if err := files.WriteHeader(h); err != nil {
			return err
		}
		_, err := files.Write(file.Data)
		return err
	}
	if err := write("run.sh", volume.File{Data: []byte(b.scriptOf(r, pod)), Mode: 0o600}); err != nil {
		return "", err
	}
	login, err := dockerConfig(r.Logins)
	if err != nil {
		return "", err
	}
	if err := write("docker/config.json", volume.File{Data: login, Mode: 0o600}); err != nil {
		return "", err
	}
	for _, v := range slices.Sorted(maps.Keys(r.Files)) {
		if !slices.ContainsFunc(pod.Spec.Volumes, func(of corev1.Volume) bool { return of.Name == v }) {
			continue
		}
		if err := files.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: "files/" + v + "/", Mode: 0o755, ModTime: time.Unix(0, 0)}); err != nil {
			return "", err
		}
		for _, name := range slices.Sorted(maps.Keys(r.Files[v])) {
			if err := write("files/"+v+"/"+name, r.Files[v][name]); err != nil {
				return "", err
			}
		}
	}
	if err := files.Close(); err != nil {
		return "", err
	}
	if err := zipped.Close(); err != nil {
		return "", err
	}
	return base64.StdEncoding.EncodeToString(out.Bytes()), nil
}

// hub is the name of Docker's own registry in the client's configuration.
const hub = "https://index.docker.io/v1/"

// dockerConfig returns the configuration of the Docker client.
func dockerConfig(logins []podgroup.Login) ([]byte, error) {
	auths := map[string]map[string]string{}
	for _, l := range logins {
		name := l.Registry
		if name == "docker.io" {
			name = hub
		}
		auths[name] = map[string]string{"auth": base64.StdEncoding.EncodeToString([]byte(l.Username + ":" + l.Password))}
	}
	return json.Marshal(map[string]any{"auths": auths})
}

// quoted returns words for a shell.
func quoted(words ...string) string {
	for i, word := range words {
		words[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	return strings.Join(words, " ")
}

// defaultGrace is the time in which a container has to end, where the pod does not say.
const defaultGrace = 30

// scriptOf returns the script of a pod.
func (b *backend) scriptOf(r *podgroup.Request, pod *corev1.Pod) string {
	grace := int64(defaultGrace)
	if g := pod.Spec.TerminationGracePeriodSeconds; g != nil {
		grace = *g
	}
	var s strings.Builder
	fmt.Fprintf(&s, "grace=%d retries=%d helper=%s\n%s\n", grace, *b.cfg.MaxRetries, quoted(b.cfg.HelperImage), functions)
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; v.EmptyDir != nil {
			s.WriteString(`mkdir -p -m 0777 "$wd"/volumes/` + quoted(v.Name) + "\n")
		}
	}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for _, m := range c.VolumeMounts {
			if m.SubPath != "" && isEmptyDir(pod, m.Name) {
				s.WriteString(`(umask 0 && mkdir -p "$wd"/volumes/` + quoted(path.Join(m.Name, m.SubPath)) + ")\n") // open to all users, as in a kubelet
			}
		}
	}
	s.WriteString("network " + quoted(networkOptions(r, pod)...) + "\n")
	for i := range pod.Spec.InitContainers {
		writeCall(&s, "before", pod, &pod.Spec.InitContainers[i], 0)
	}
	gpus := int64(0) // of the containers before
	for i := range pod.Spec.Containers {
		gpus += writeCall(&s, "beside", pod, &pod.Spec.Containers[i], gpus)
	}
	s.WriteString("end\n")
	return s.String()
}

// writeCall writes the call of a function for a container, which gets the machine's GPUs from
// firstGPU on, and returns how many these are.
func writeCall(s *strings.Builder, function string, pod *corev1.Pod, c *corev1.Container, firstGPU int64) (gpus int64) {
	limit := c.Resources.Limits[gpu]
	before, after := createArgs(pod, c)
	if gpus = limit.Value(); gpus > 0 {
		before = append(before, "--gpus", devices(firstGPU, gpus))
	}
	options, checks := mounts(pod, c)
	s.WriteString("inside() { " + checks + ":; }\n")
	s.WriteString(strings.Join([]string{function, quoted(c.Name, string(pod.Spec.RestartPolicy)), quoted(before...), options, quoted(after...)}, " ") + "\n")
	return gpus
}

// devices returns the value of Docker's option for some of the machine's GPUs. A number would give
// each container the first ones.
func devices(first, n int64) string {
	var indices []string
	for i := range n {
		indices = append(indices, strconv.FormatInt(first+i, 10))
	}
	if n == 1 {
		return "device=" + indices[0]
	}
	return `"device=` + strings.Join(indices, ",") + `"` // Docker divides the value at commas that are not in quotes
}

func isEmptyDir(pod *corev1.Pod, name string) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == name && v.EmptyDir != nil })
}

// networkOptions are the options of the container with the pod's network.
func networkOptions(r *podgroup.Request, pod *corev1.Pod) []string {
	name := pod.Spec.Hostname
	if name == "" {
		name = pod.Name
	}
	options := []string{"--hostname", strings.TrimRight(name[:min(len(name), 63)], "-.")}
	for _, alias := range pod.Spec.HostAliases {
		for _, name := range alias.Hostnames {
			options = append(options, "--add-host", name+":"+alias.IP)
		}
	}
	for _, one := range []struct {
		option string
		values []string
	}{{"--dns", r.DNS.Nameservers}, {"--dns-search", r.DNS.Searches}, {"--dns-option", r.DNS.Options}} {
		for _, value := range one.values {
			options = append(options, one.option, value)
		}
	}
	return options
}

// mounts returns the options for the volumes of a container, and what checks that the directories are in
// their volumes, for a shell.
func mounts(pod *corev1.Pod, c *corev1.Container) (all, checks string) {
	var options []string
	for _, m := range c.VolumeMounts {
		i := slices.IndexFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
		if i < 0 {
			continue
		}
		v, root, source, readOnly := &pod.Spec.Volumes[i], "", "", m.ReadOnly
		switch {
		case v.EmptyDir != nil:
			root, source = `"$wd"/volumes/`+quoted(m.Name), `"$wd"/volumes/`+quoted(path.Join(m.Name, m.SubPath))
		case v.HostPath != nil:
			root, source = quoted(v.HostPath.Path), quoted(path.Join(v.HostPath.Path, m.SubPath))
		default:
			source, readOnly = `"$wd"/.vk/files/`+quoted(path.Join(m.Name, m.SubPath)), true
		}
		if root != "" && m.SubPath != "" {
			checks += "below " + root + " " + source + " && "
		}
		mode := "rw"
		if readOnly {
			mode = "ro"
		}
		options = append(options, "-v "+source+quoted(":"+m.MountPath+":"+mode))
	}
	return strings.Join(options, " "), checks
}

// createArgs returns the arguments of docker create for a container, without its GPUs and its
// volumes: before these, and after them.
func createArgs(pod *corev1.Pod, c *corev1.Container) (before, after []string) {
	before = limits(c)
	pull := map[corev1.PullPolicy]string{corev1.PullAlways: "always", corev1.PullNever: "never"}[c.ImagePullPolicy]
	if pull == "" {
		pull = "missing"
	}
	before = append(before, "--pull", pull)
	if user := userOf(pod, c); user != "" {
		before = append(before, "--user", user)
	}
	if s := c.SecurityContext; s != nil {
		if s.ReadOnlyRootFilesystem != nil && *s.ReadOnlyRootFilesystem {
			before = append(before, "--read-only")
		}
		if s.AllowPrivilegeEscalation != nil && !*s.AllowPrivilegeEscalation {
			before = append(before, "--security-opt", "no-new-privileges")
		}
		if s.Capabilities != nil {
			for _, name := range s.Capabilities.Drop {
				before = append(before, "--cap-drop", string(name))
			}
			for _, name := range s.Capabilities.Add {
				before = append(before, "--cap-add", string(name))
			}
		}
	}
	if c.WorkingDir != "" {
		before = append(before, "--workdir", c.WorkingDir)
	}
	for _, e := range c.Env {
		before = append(before, "--env", e.Name+"="+e.Value)
	}
	if len(c.Command) == 0 {
		return before, append([]string{c.Image}, c.Args...)
	}
	return append(before, "--entrypoint", c.Command[0]), slices.Concat([]string{c.Image}, c.Command[1:], c.Args)
}

// userOf returns user and group of a container's processes; empty if they are the image's.
func userOf(pod *corev1.Pod, c *corev1.Container) string {
	sc := podspec.SecurityContext(pod, c)
	user, group := sc.RunAsUser, sc.RunAsGroup
	if user == nil {
		return ""
	}
	text := strconv.FormatInt(*user, 10)
	if group != nil {
		text += ":" + strconv.FormatInt(*group, 10)
	}
	return text
}
