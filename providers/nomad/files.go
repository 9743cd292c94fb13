package nomad

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"

	"github.com/distribution/reference"
	"github.com/hashicorp/nomad/api"
	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/podspec/volume"
)

// Files of volumes are in variables of Nomad, which are encrypted: one variable for each
// container, that only its task may read. Templates write them into the task's private
// directory, which is in memory and not shown by Nomad's API, and again when the variable
// changes. The job has no contents: another version of it would start the pod again.

// No container has the directories that follow, but what is in its volumes: Nomad's templates and
// the drivers follow links, and one in the place of a volume could lead to any file of the machine.
const (
	// filesDir is the directory of volumes with files, in that of the task.
	filesDir = "private/vk"
	// emptyDirs is the directory of the pod's empty directories, as seen from a task's. It is
	// beside that of the allocation's data, which all containers have, and no name of a container
	// has a dot.
	emptyDirs = "../vk.volumes"
	// jobsPath is what the paths of jobs' variables begin with.
	jobsPath = "nomad/jobs/"
)

// files returns the volumes of a container, as drivers write them, and the templates of
// its files.
func files(r *podgroup.Request, jobID string, c *corev1.Container) (mounts []string, templates []*api.Template, err error) {
	variable := variablePath(jobID, c.Name)
	written := map[string]bool{}
	for _, m := range c.VolumeMounts {
		contents, hasFiles := r.Files[m.Name]
		source, readOnly := path.Join(emptyDirs, m.Name), m.ReadOnly
		if hasFiles {
			source, readOnly = path.Join(filesDir, m.Name), true
		}
		mount := path.Join(source, m.SubPath) + ":" + m.MountPath
		if readOnly {
			mount += ":ro"
		}
		mounts = append(mounts, mount)
		if written[m.Name] {
			continue
		}
		written[m.Name] = true
		for _, name := range slices.Sorted(maps.Keys(contents)) {
			if strings.Contains(name, "${") {
				return nil, nil, podgroup.NotSupportedf("the path %q in volume %s: Nomad replaces what is in ${}", name, m.Name)
			}
			key := itemKey(m.Name, name)
			templates = append(templates, &api.Template{
				DestPath:     new(path.Join(source, name)),
				EmbeddedTmpl: new(fmt.Sprintf(`{{ with nomadVar "%s" }}{{ with .%s }}{{ .Value | base64Decode }}{{ end }}{{ end }}`, variable, key)),
				ChangeMode:   new("noop"),
				Perms:        new(fmt.Sprintf("%04o", contents[name].Mode.Perm())),
				Uid:          owner(contents[name].UID),
			})
		}
	}
	return mounts, templates, nil
}

// replaceable returns the container that could make a mounted part of an emptyDir a link, since it has
// more of it, writable. Also the one that mounts it: it may be started again.
func replaceable(pod *corev1.Pod, mount corev1.VolumeMount) (container string, ok bool) {
	if !slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == mount.Name && v.EmptyDir != nil }) {
		return "", false
	}
	part := path.Join("/", mount.SubPath)
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for _, m := range c.VolumeMounts {
			whole := path.Join("/", m.SubPath)
			if m.Name == mount.Name && !m.ReadOnly && whole != part && strings.HasPrefix(part, strings.TrimSuffix(whole, "/")+"/") {
				return c.Name, true
			}
		}
	}
	return "", false
}

func owner(uid *int64) *int {
	if uid == nil {
		return nil
	}
	return new(int(*uid))
}

// itemKey returns the key of a file in a variable, a name in templates.
func itemKey(volumeName, file string) string {
	sum := sha256.Sum256([]byte(volumeName + "/" + file))
	return "f" + hex.EncodeToString(sum[:8])
}

// variablePath returns the path of a variable that a task may read by default.
func variablePath(jobID, container string) string {
	return jobsPath + jobID + "/" + groupName + "/" + container
}

// variables returns the variables of a pod: of each container that mounts files.
func (b *backend) variables(jobID string, pod *corev1.Pod, contents map[string]volume.Files) (vars []*api.Variable) {
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		v := &api.Variable{Namespace: b.cfg.Namespace, Path: variablePath(jobID, c.Name), Items: api.VariableItems{}}
		for _, m := range c.VolumeMounts {
			for name, file := range contents[m.Name] {
				v.Items[itemKey(m.Name, name)] = base64.StdEncoding.EncodeToString(file.Data)
			}
		}
		if len(v.Items) > 0 {
			vars = append(vars, v)
		}
	}
	return vars
}

// putVariables writes variables of a job.
func (b *backend) putVariables(ctx context.Context, action podgroup.Action, jobID string, vars []*api.Variable) error {
	defer func() { // also after an error: the answer may be lost
		b.mu.Lock()
		defer b.mu.Unlock()
		b.state(jobID).clean = false
	}()
	for _, v := range vars {
		b.sign(v)
		if _, _, err := b.api.Variables().Update(v, write(ctx)); err != nil {
			return classify(action, err)
		}
	}
	return nil
}

// hasVariables reports whether a job has variables, going by its meta.
func hasVariables(meta map[string]string) bool { return meta[metaFiles] != "" || meta[metaTurns] != "" }

// deleteVariables deletes the variables of a job, which its meta names.
func (b *backend) deleteVariables(ctx context.Context, jobID string, meta map[string]string) error {
	var paths []string
	for _, container := range strings.FieldsFunc(meta[metaFiles], func(r rune) bool { return r == ',' }) {
		paths = append(paths, variablePath(jobID, container))
	}
	if meta[metaTurns] != "" {
		paths = append(paths, turnsPath(jobID))
	}
	for _, path := range paths {
		_, err := b.api.Variables().Delete(path, write(ctx))
		if err != nil && !isStatus(err, http.StatusNotFound) {
			return classify(podgroup.ActionUpdate, err) // not Missing: the job may be there
		}
	}
	return nil
}

// Update implements podgroup.Updater: templates write the files again, and nothing is
// started again. Files of other names than at the creation are not written.
func (b *backend) Update(ctx context.Context, u *podgroup.Unit, change podgroup.Change) error {
	if change.Images {
		return podgroup.NotSupportedf("another image of a container that runs: Nomad would start the pod again, elsewhere")
	}
	if change.Files == nil {
		return nil
	}
	vars := b.variables(u.ID, change.Pod, change.Files)
	known := strings.Split(u.Tags[metaFiles], ",")
	vars = slices.DeleteFunc(vars, func(v *api.Variable) bool { return !slices.Contains(known, path.Base(v.Path)) })
	err := b.putVariables(ctx, podgroup.ActionUpdate, u.ID, vars)
	if b.isOver(u.ID) { // since then: its variables may have been deleted before
		b.askAgain(u.ID, u.Tags)
	}
	return err
}

// registryOf returns the registry of an image; empty if it is no name.
func registryOf(image string) string {
	name, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return ""
	}
	return reference.Domain(name)
}
