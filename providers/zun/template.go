package zun

import (
	"fmt"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
	"github.com/virtual-kubelet/virtual-kubelet/providers/zun/internal/wire"
)

// template translates the request for a pod.
func (b *backend) template(r *podgroup.Request) (*wire.Template, error) {
	if len(r.Logins) > 0 {
		return nil, podgroup.NotSupportedf("capsules have no credentials of registries, such as those for %s: make the image public, or take it from a registry that Zun's own configuration knows", r.Logins[0].Registry)
	}
	t := &wire.Template{Kind: "capsule", AvailabilityZone: b.cfg.AvailabilityZone}
	t.Metadata.Name, t.Metadata.Labels, t.Spec.RestartPolicy = r.Name, r.Tags, string(r.Pod.Spec.RestartPolicy)
	for _, id := range b.cfg.Networks {
		t.Nets = append(t.Nets, map[string]string{"network": id})
	}
	mounted := map[string]bool{}
	for i, c := range slices.Concat(r.Pod.Spec.InitContainers, r.Pod.Spec.Containers) {
		for _, v := range c.Env {
			if v.Name == wire.EnvName && v.Value != c.Name {
				return nil, podgroup.NotSupportedf("containers[%s].env[%s]: the name of the container is kept in it, since Zun gives containers other names", c.Name, wire.EnvName)
			}
		}
		if one := b.container(r, &c, mounted); i < len(r.Pod.Spec.InitContainers) {
			t.Spec.InitContainers = append(t.Spec.InitContainers, one)
		} else {
			t.Spec.Containers = append(t.Spec.Containers, one)
		}
	}
	for i := range r.Pod.Spec.Volumes {
		v := &r.Pod.Spec.Volumes[i]
		if !mounted[v.Name] { // Zun refuses it
			continue
		}
		volume := wire.Volume{Name: volumeName(v.Name)}
		if claim := r.Claims[v.Name]; claim != nil {
			if volume.Cinder.VolumeID = cinderID(claim); volume.Cinder.VolumeID == "" {
				return nil, podgroup.NotSupportedf("volume %s: PersistentVolume %s is no volume of Cinder", v.Name, claim.Name)
			}
		} else {
			volume.Cinder.Size, volume.Cinder.AutoRemove = 1, true
			if limit := v.EmptyDir.SizeLimit; limit != nil {
				volume.Cinder.Size = max(1, roundUp(limit, 1<<30))
			}
		}
		t.Spec.Volumes = append(t.Spec.Volumes, volume)
	}
	return t, nil
}

// container translates a container, and notes which volumes it mounts.
func (b *backend) container(r *podgroup.Request, c *corev1.Container, mounted map[string]bool) wire.Container {
	t := wire.Container{Image: c.Image, Command: c.Command, Args: c.Args, WorkDir: c.WorkingDir, Env: map[string]string{wire.EnvName: c.Name}}
	for _, v := range c.Env {
		t.Env[v.Name] = v.Value
	}
	if b.cfg.ImagePullPolicy {
		t.ImagePullPolicy = strings.ToLower(string(c.ImagePullPolicy))
	}
	for _, p := range c.Ports {
		t.Ports = append(t.Ports, wire.Port{ContainerPort: p.ContainerPort, Protocol: string(p.Protocol)})
	}
	size := podgroup.SizeOf(&c.Resources)
	if !size.CPU.IsZero() || !size.Memory.IsZero() {
		t.Resources = &wire.Resources{}
		t.Resources.Requests.CPU, t.Resources.Requests.Memory = float64(size.CPU.MilliValue())/1000, roundUp(&size.Memory, 1<<20)
	}
	for _, m := range c.VolumeMounts {
		for i := range r.Pod.Spec.Volumes {
			v := &r.Pod.Spec.Volumes[i]
			if v.Name == m.Name && (v.EmptyDir != nil || r.Claims[v.Name] != nil) { // else the volume is ignored
				t.VolumeMounts, mounted[v.Name] = append(t.VolumeMounts, wire.Mount{Name: volumeName(v.Name), MountPath: m.MountPath}), true
			}
		}
	}
	return t
}

// volumeName returns a name of at least two characters, as Zun wants it.
func volumeName(name string) string { return "v-" + name }

// cinderID returns the ID of a volume of Cinder; empty if it is another one.
func cinderID(v *corev1.PersistentVolume) string {
	switch {
	case v.Spec.CSI != nil && v.Spec.CSI.Driver == "cinder.csi.openstack.org":
		return v.Spec.CSI.VolumeHandle
	case v.Spec.Cinder != nil:
		return v.Spec.Cinder.VolumeID
	}
	return ""
}

func roundUp(q *resource.Quantity, unit float64) int64 {
	return int64(math.Ceil(q.AsApproximateFloat64() / unit))
}

// check returns what else of a pod capsules do not have.
func check(pod *corev1.Pod) (missing []string) {
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		mounted := map[string]bool{}
		for _, m := range c.VolumeMounts {
			if slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name && v.Projected != nil }) {
				continue // it is ignored, and not mounted
			}
			if m.ReadOnly {
				missing = append(missing, fmt.Sprintf("containers[%s].volumeMounts[%s].readOnly, which it would mount to write", c.Name, m.Name))
			}
			if mounted[m.Name] {
				missing = append(missing, fmt.Sprintf("containers[%s].volumeMounts[%s] at a second path, of which it would mount one only", c.Name, m.Name))
			}
			mounted[m.Name] = true
		}
	}
	return missing
}
