package slurm

import (
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
)

// features are what jobs can do.
func (b *backend) features() podgroup.Features {
	f := podgroup.Features{
		Fields: []string{
			"restartPolicy", "initContainers", "initContainers.restartPolicy", "hostNetwork",
			"volumes.configMap", "volumes.secret", "volumes.projected", "volumes.downwardAPI", "volumes.emptyDir", "-volumes.emptyDir.medium", "-volumes.emptyDir.sizeLimit",
		},
		Ignored: []string{"volumes.emptyDir.sizeLimit"},
		Renew:   []corev1.RestartPolicy{corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever},
		Check:   b.check,
	}
	if len(b.config.HostPaths) > 0 {
		f.Fields = append(f.Fields, "volumes.hostPath")
	}
	return f
}

// check returns what else of a pod Slurm does not have.
func (b *backend) check(pod *corev1.Pod) (missing []string) {
	add := func(format string, args ...any) { missing = append(missing, fmt.Sprintf(format, args...)) }
	if _, err := parseFlags(pod.Annotations[annotationFlags]); err != nil {
		add("annotation %s: %s", annotationFlags, err)
	}
	for _, name := range []string{annotationPreExec, annotationOptions} {
		if pod.Annotations[name] != "" && !b.config.AllowPreExec {
			add("annotation %s, which the field allowPreExec would allow", name)
		}
	}
	for i := range pod.Spec.Volumes {
		switch host := pod.Spec.Volumes[i].HostPath; {
		case host == nil:
		case b.config.allowing(host.Path) == "":
			add("hostPath %s, which the field hostPaths would allow", host.Path)
		case b.separates(host.Path):
			add("hostPath %s: a path with one of the characters %s", host.Path, separators)
		case host.Type != nil && !slices.Contains([]corev1.HostPathType{"", corev1.HostPathDirectory, corev1.HostPathFile}, *host.Type):
			add("volumes[%s].hostPath.type %s", pod.Spec.Volumes[i].Name, *host.Type)
		}
	}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if _, _, err := b.config.image(pod, &c); err != nil {
			add("containers[%s]: %s", c.Name, err)
		}
		if b.config.Runtime == RuntimeNone && len(c.Command) == 0 {
			add("containers[%s] without a command: there are no images with runtime: none", c.Name)
		}
		for _, m := range c.VolumeMounts {
			isHost := slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name && v.HostPath != nil })
			if m.ReadOnly && isHost && b.config.Runtime == RuntimeNone { // others are the pod's own
				add("containers[%s].volumeMounts[%s].readOnly, with runtime: none", c.Name, m.Name)
			}
			if b.separates(m.MountPath + m.SubPath) {
				add("containers[%s].volumeMounts[%s]: a path with one of the characters %s", c.Name, m.Name, separators)
			}
		}
		if inner := nestedMount(c.VolumeMounts); inner != "" && b.config.Runtime == RuntimeNone {
			add("containers[%s].volumeMounts[%s] in another volume, with runtime: none", c.Name, inner)
		}
	}
	return append(missing, b.checkResources(pod)...)
}

const separators = `:,"\`

// separates reports whether the runtime takes a path for several, or for one with options.
func (b *backend) separates(name string) bool {
	return b.config.Runtime != RuntimeNone && strings.ContainsAny(name, separators+"\n")
}

// allowing returns the one of HostPaths that allows pods to mount a directory; empty if none
// does.
func (c *Config) allowing(dir string) string {
	dir = path.Clean(dir)
	i := slices.IndexFunc(c.HostPaths, func(allowed string) bool {
		return dir == allowed || strings.HasPrefix(dir, strings.TrimSuffix(allowed, "/")+"/")
	})
	if i < 0 || !path.IsAbs(dir) {
		return ""
	}
	return c.HostPaths[i]
}

// nestedMount returns the volume that is mounted in another one, or at the same place.
func nestedMount(mounts []corev1.VolumeMount) string {
	for i, inner := range mounts {
		for j, outer := range mounts {
			if i != j && strings.HasPrefix(path.Clean("/"+inner.MountPath)+"/", strings.TrimSuffix(path.Clean("/"+outer.MountPath), "/")+"/") {
				return inner.Name
			}
		}
	}
	return ""
}
