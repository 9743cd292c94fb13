package slurm

import (
	"archive/tar"
	_ "embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podspec"
	"github.com/virtual-kubelet/virtual-kubelet/podspec/volume"
	"github.com/virtual-kubelet/virtual-kubelet/providers/slurm/internal/login"
)

//go:embed job.bash
var jobScript string

const (
	secretMode fs.FileMode = 0o600
	dirMode    fs.FileMode = 0o755 // the pod's directory, above, is 0700
)

// archive is a tar of the files of a pod.
type archive struct {
	text strings.Builder
	w    *tar.Writer
	dirs map[string]bool
	err  error
}

func newArchive() *archive {
	a := &archive{dirs: map[string]bool{".": true, "/": true}}
	a.w = tar.NewWriter(&a.text)
	return a
}

func (a *archive) header(h tar.Header) {
	h.Format = tar.FormatPAX
	if a.err == nil {
		a.err = a.w.WriteHeader(&h)
	}
}

// dir adds a directory, and those above it.
func (a *archive) dir(name string, mode fs.FileMode) {
	if name = path.Clean(name); a.dirs[name] {
		return
	}
	a.dirs[name] = true
	a.dir(path.Dir(name), dirMode)
	a.header(tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: int64(mode)})
}

func (a *archive) file(name, content string, mode fs.FileMode) {
	a.dir(path.Dir(name), dirMode)
	a.header(tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: int64(mode.Perm()), Size: int64(len(content))})
	if a.err == nil {
		_, a.err = a.w.Write([]byte(content))
	}
}

func (a *archive) link(name, target string) {
	a.dir(path.Dir(name), dirMode)
	a.header(tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777})
}

func (a *archive) close() (string, error) {
	if a.err == nil {
		a.err = a.w.Close()
	}
	return a.text.String(), a.err
}

// volume adds the files of a volume, in the form of a kubelet's: ..data is a link that
// changes at once, and the names that users see are links through it.
func (a *archive) volume(name string, files volume.Files) {
	dir := "volumes/" + name
	data := "..files-" + fmt.Sprintf("%x", time.Now().UnixNano())
	a.dir(dir+"/"+data, dirMode)
	seen := map[string]bool{}
	for _, key := range slices.Sorted(maps.Keys(files)) {
		a.file(dir+"/"+data+"/"+key, string(files[key].Data), files[key].Mode)
		top, _, _ := strings.Cut(key, "/")
		if !seen[top] {
			a.link(dir+"/"+top, "..data/"+top)
		}
		seen[top] = true
	}
	a.link(dir+"/..data", data)
}

// stageVolumes returns a tar of the files of volumes, and the volumes' names.
func stageVolumes(pod *corev1.Pod, files map[string]volume.Files) (text string, names []string) {
	a := newArchive()
	for i := range pod.Spec.Volumes {
		name := pod.Spec.Volumes[i].Name
		if contents, ok := files[name]; ok {
			a.volume(name, contents)
			names = append(names, name)
		}
	}
	text, _ = a.close() // a writer in memory: what could fail are names, which the creation had
	return text, names
}

// stage returns a tar of the directory of a pod.
func (b *backend) stage(r *podgroup.Request) (string, error) {
	a := newArchive()
	for _, c := range slices.Concat(r.Pod.Spec.InitContainers, r.Pod.Spec.Containers) {
		if err := b.stageContainer(a, r, &c); err != nil {
			return "", fmt.Errorf("container %s: %w", c.Name, err)
		}
	}
	for i := range r.Pod.Spec.Volumes {
		switch v := &r.Pod.Spec.Volumes[i]; {
		case volume.HasContents(v):
			a.volume(v.Name, r.Files[v.Name])
		case v.EmptyDir != nil:
			a.dir("volumes/"+v.Name, 0o777)
		case v.HostPath != nil:
			a.link("volumes/"+v.Name, path.Clean(v.HostPath.Path))
		}
	}
	a.file("run", jobScript, 0o700)
	a.file("pod", b.podFile(r.Pod), secretMode)
	if text := loginsFile(b.config.Runtime, r.Logins); text != "" {
		a.file("logins", text, secretMode)
	}
	tags, err := json.Marshal(r.Tags)
	if err != nil {
		return "", err
	}
	var state strings.Builder
	fmt.Fprintf(&state, "tags %s\ncreated %d\n", tags, time.Now().Unix())
	for _, c := range slices.Concat(r.Pod.Spec.InitContainers, r.Pod.Spec.Containers) {
		image := c.Image
		if b.config.Runtime == RuntimeNone {
			image = "" // it means nothing
		}
		fmt.Fprintf(&state, "container %s %s\n", c.Name, image)
	}
	a.file("staged", state.String(), secretMode) // the last one: it becomes the file state
	return a.close()
}

// podFile returns what the job's script has to know of the pod.
func (b *backend) podFile(pod *corev1.Pod) string {
	var inits, containers []string
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		policy := corev1.RestartPolicyOnFailure
		switch {
		case podspec.IsSidecar(c):
			policy = corev1.RestartPolicyAlways
		case pod.Spec.RestartPolicy == corev1.RestartPolicyNever:
			policy = corev1.RestartPolicyNever
		}
		inits = append(inits, login.Quote(c.Name+"="+string(policy)))
	}
	for i := range pod.Spec.Containers {
		containers = append(containers, login.Quote(pod.Spec.Containers[i].Name))
	}
	text := fmt.Sprintf("policy=%s\ninits=(%s)\ncontainers=(%s)\n", login.Quote(string(pod.Spec.RestartPolicy)), strings.Join(inits, " "), strings.Join(containers, " "))
	// A command in a container needs the preamble's modules and variables, and not what it
	// prints.
	if b.config.Preamble != "" {
		text += "if [ \"${1-}\" = exec ]; then eval " + login.Quote(b.config.Preamble) + " </dev/null >/dev/null 2>&1; else eval " + login.Quote(b.config.Preamble) + " </dev/null; fi\n"
	}
	if commands := pod.Annotations[annotationPreExec]; commands != "" {
		text += "[ \"${1-}\" = exec ] || eval " + login.Quote(commands) + " </dev/null\n"
	}
	return text
}

// stageContainer adds the programs of a container, and its view of the volumes.
func (b *backend) stageContainer(a *archive, r *podgroup.Request, c *corev1.Container) error {
	dir := "containers/" + c.Name + "/"
	l, err := b.newLaunch(r, c)
	if err != nil {
		return err
	}
	for name, text := range map[string]string{"run": l.run(), "enter": l.enter(), "kill": l.kill()} {
		l.files[name] = text
	}
	for _, name := range slices.Sorted(maps.Keys(l.files)) {
		a.file(dir+name, l.files[name], secretMode)
	}
	a.dir("mounts/"+c.Name, dirMode)
	for _, m := range c.VolumeMounts {
		i := slices.IndexFunc(r.Pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
		if i < 0 {
			return fmt.Errorf("there is no volume %s", m.Name)
		}
		if sub := path.Clean(m.SubPath); m.SubPath != "" && r.Pod.Spec.Volumes[i].EmptyDir != nil {
			a.dir("volumes/"+m.Name+"/"+sub, 0o777)
		}
		if b.config.Runtime == RuntimeNone && path.Clean(m.MountPath) != "/" {
			at := "mounts/" + c.Name + path.Clean("/"+m.MountPath)
			a.link(at, strings.Repeat("../", strings.Count(at, "/"))+path.Join("volumes", m.Name, m.SubPath))
		}
	}
	return nil
}
